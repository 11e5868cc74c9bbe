#include "core/ir/dim_expr.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/extents.h"
#include "core/ir/open_symbols.h"
#include "core/ir/testing.h"

namespace inlay::ir {
namespace {

using testing::IsInvalid;

Dim S(const std::string& name) { return Dim::Symbol(name); }

TEST(DimExprTest, DerivedExtentsHaveOneForm) {
  EXPECT_EQ(MulDims(S("batch"), 2)->ToString(), "2*batch");
  EXPECT_EQ(MulDims(2, S("batch")).value(), MulDims(S("batch"), 2).value());
  EXPECT_EQ(AddDims(S("b"), S("a"))->ToString(), "a+b");
  EXPECT_EQ(AddDims(S("h"), 1)->ToString(), "h+1");
  EXPECT_EQ(AddDims(*AddDims(S("h"), 1), -1).value(), S("h"));
  EXPECT_EQ(FloorDivDims(*AddDims(S("h"), 1), 2)->ToString(), "((h+1)/2)");
  EXPECT_EQ(FloorDivDims(*MulDims(S("h"), 4), 2)->ToString(), "2*h");
  EXPECT_EQ(AddDims(*FloorDivDims(S("h"), 2), 1)->ToString(), "((h)/2)+1");
  EXPECT_EQ(CanonicalDim("batch * 4").ToString(), "4*batch");
  EXPECT_EQ(CanonicalDim("unk__12").ToString(), "unk__12");
  EXPECT_EQ(CanonicalDim("((").ToString(), "((");
  // As other writers spell them.
  EXPECT_EQ(CanonicalDim("(h - 1)/2 + 1").ToString(), "((h+1)/2)");
  EXPECT_EQ(CanonicalDim("(((-1+h)//2)+1)*2").ToString(), "2*((h+1)/2)");
  EXPECT_EQ(CanonicalDim("(a+b)*c").ToString(), "a*c+b*c");
  EXPECT_EQ(CanonicalDim("slice((1+seq),-1,5,2)").ToString(), "slice(seq+1,-1,5,2)");
  for (const char* own :
       {"((h+1)/2)", "slice(((h)/2)+1,0,-1,1)", "pool(h,3,2,0,0)", "2*a*b-c-1", "floor(h/2)", "a/b", "batch size"}) {
    EXPECT_EQ(CanonicalDim(own).ToString(), own);
  }
}

// The client's have the same results: client/python/tests/test_dims.py.
TEST(DimExprTest, Divisions) {
  for (const auto& [written, normal] : std::vector<std::pair<std::string, std::string>>{
           {"(4*h)/4", "h"},
           {"(8*h-1)/2+1", "4*h"},
           {"(h-1)/2", "((h+1)/2)-1"},
           {"(3*h+2)/2", "((h)/2)+h+1"},
           {"(-h)/2", "((h)/2)-h"},
           {"(2*h+1)/4", "((h)/2)"},
           {"(4*h+6*w+3)/8", "((2*h+3*w+1)/4)"},
           {"(batch size * 2 + 5) / 3", "((2*batch size+2)/3)+1"},
           // One after another.
           {"h/2/2", "((h)/4)"},
           {"((h-1)/2)/2+1", "((h+3)/4)"},
           {"((((h-1)/2+1-1)/2+1-1)/2+1-1)/2+1", "((h+15)/16)"},
           {"(w+h/2)/2", "((h+2*w)/4)"},
           {"(h+h/2)/3", "((h)/2)"},
           {"(h/2+h/3)/2", "((((h)/2)+((h)/3))/2)"},
           {"(h/2*w)/2", "((((h)/2)*w)/2)"},
           {"(h/4611686018427387904)/2", "((((h)/4611686018427387904))/2)"},  // 2^63 would be too large
       }) {
    const Dim dim = CanonicalDim(written);
    EXPECT_EQ(dim.ToString(), normal) << written;
    EXPECT_EQ(CanonicalDim(normal), dim);
  }
}

// Random expressions, against what they are in numbers.
TEST(DimExprTest, NormalFormKeepsTheValue) {
  std::mt19937 random(20);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  const std::vector<std::map<std::string, int64_t>> values = {
      {{"a", 0}, {"b", 0}}, {{"a", 1}, {"b", 7}}, {{"a", 225}, {"b", 31}}, {{"a", 64}, {"b", 1000}}};
  for (int i = 0; i < 2000; ++i) {
    Dim dim = S(below(2) == 0 ? "a" : "b");
    std::vector<int64_t> direct;
    for (const auto& v : values) direct.push_back(v.at(dim.symbol()));
    for (int64_t steps = 1 + below(8); steps > 0; --steps) {
      const int64_t n = below(9) - 4, divisor = 1 + below(6);
      const std::string name = below(2) == 0 ? "a" : "b";
      absl::StatusOr<Dim> next;
      const int64_t kind = below(5);
      if (kind == 0) next = AddDims(dim, n);
      if (kind == 1) next = AddDims(dim, S(name));
      if (kind == 2) next = MulDims(dim, n);
      if (kind > 2) next = FloorDivDims(dim, divisor);
      ASSERT_TRUE(next.ok()) << next.status();
      dim = *next;
      for (size_t k = 0; k < values.size(); ++k) {
        int64_t& value = direct[k];
        value = kind == 0   ? value + n
                : kind == 1 ? value + values[k].at(name)
                : kind == 2 ? value * n
                            : FloorDivExtent(value, divisor);
        EXPECT_EQ(EvaluateDim(dim, values[k]).value(), value) << dim.ToString();
      }
    }
    EXPECT_EQ(CanonicalDim(dim.ToString()).ToString(), dim.ToString());
  }
}

TEST(DimExprTest, ExactDivision) {
  EXPECT_EQ(ExactDivDims(*MulDims(S("b"), 768), 768).value(), S("b"));
  EXPECT_EQ(ExactDivDims(*MulDims(S("b"), 768), *MulDims(S("b"), 12)).value(), Dim(64));
  EXPECT_THAT(ExactDivDims(S("b"), 2).status(), IsInvalid("b can't be divided by 2"));
  EXPECT_THAT(ExactDivDims(7, 2).status(), IsInvalid("7 can't be divided by 2"));
}

TEST(DimExprTest, OverflowIsAnError) {
  EXPECT_THAT(MulDims(INT64_MAX, 2).status(), IsInvalid("overflows"));
  EXPECT_THAT(AddDims(INT64_MAX, 1).status(), IsInvalid("overflows"));
  EXPECT_THAT(MulDims(*MulDims(S("b"), INT64_MAX), 2).status(), IsInvalid("overflows"));
}

TEST(DimExprTest, Evaluate) {
  EXPECT_EQ(EvaluateDim(CanonicalDim("2*batch+seq-1"), {{"batch", 3}, {"seq", 5}}).value(), 10);
  EXPECT_THAT(EvaluateDim(S("seq"), {{"batch", 3}}).status(), IsInvalid("'seq' has no value"));
  EXPECT_THAT(SymbolNames(CanonicalDim("2*batch*seq+seq")), ::testing::ElementsAre("batch", "seq"));
}

TEST(DimExprTest, Terms) {
  std::vector<DimTerm> terms = DimTerms(CanonicalDim("2*batch*seq-1"));
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(terms[0].coefficient, -1);
  EXPECT_THAT(terms[0].names, ::testing::IsEmpty());
  EXPECT_EQ(terms[1].coefficient, 2);
  EXPECT_THAT(terms[1].names, ::testing::ElementsAre("batch", "seq"));
  EXPECT_TRUE(DimTerms(Dim(0)).empty());
}

TEST(DimExprTest, OpaquePartsAreComputed) {
  const std::map<std::string, int64_t> values = {{"h", 10}, {"seq", 7}};
  EXPECT_EQ(EvaluateDim(CanonicalDim("((h-1)/2)+1"), values).value(), 5);
  EXPECT_EQ(EvaluateDim(*FloorDivDims(*FloorDivDims(S("h"), 2), 2), values).value(), 2);
  EXPECT_EQ(EvaluateDim(OpaqueDim("slice", {"seq", "1", "5", "2"}), values).value(), 2);
  EXPECT_EQ(EvaluateDim(OpaqueDim("slice", {"((h-1)/2)+1", "-3", "9223372036854775807", "1"}), values).value(), 3);
  EXPECT_EQ(EvaluateDim(OpaqueDim("pool", {"seq", "3", "2", "0", "0"}), values).value(), 3);
  EXPECT_EQ(EvaluateDim(OpaqueDim("pool", {"seq", "2", "2", "0", "1"}), values).value(), 4);
  EXPECT_THAT(EvaluateDim(OpaqueDim("pool", {"seq", "9", "2", "0", "0"}), values).status(), IsInvalid("no extent"));
  EXPECT_THAT(EvaluateDim(OpaqueDim("pool", {"w", "9", "2", "0", "0"}), values).status(),
              IsInvalid("'w' has no value"));
  // One that an input has by name.
  EXPECT_EQ(EvaluateDim(CanonicalDim("((n)/2)"), {{"((n)/2)", 4}}).value(), 4);
  for (const char* plain : {"seq", "slice", "slice(seq,1)", "slice(seq,1,5,0)", "slice(,1,5,1)", "pool(seq,3,0,0,0)",
                            "((h)/0)", "((h)/x)", "((", "((3)/2)", "other(seq,1)"}) {
    EXPECT_FALSE(ParseOpaque(plain).has_value()) << plain;
  }
}

// A hostile text costs no more than a long one.
TEST(DimExprTest, NestingIsReadOnce) {
  std::string slices = "h", halves = "h";
  for (int i = 0; i < 30; ++i) {
    slices = absl::StrCat("slice(", slices, ",0,5,2)");
    halves = absl::StrCat("slice((", halves, "+w)/2,0,5,2)");
  }
  EXPECT_EQ(CanonicalDim(slices).ToString(), slices);
  EXPECT_FALSE(CanonicalDim(halves).is_static());
  EXPECT_TRUE(ParseOpaque(slices).has_value());
}

TEST(OpenSymbolsTest, OfParamsBindingsAndResults) {
  Function f;
  Builder b(&f);
  VarPtr x = b.Param("x", {DType::kF32, {S("seq"), CanonicalDim("2*batch+1"), 8}});
  VarPtr y = b.Param("y", {DType::kF32, {*FloorDivDims(S("h"), 2)}});
  b.Return({x, y});
  EXPECT_THAT(OpenSymbols(f), ::testing::ElementsAre("((h)/2)", "batch", "seq"));
  EXPECT_THAT(OpenSymbols(Function()), ::testing::IsEmpty());
}

}  // namespace
}  // namespace inlay::ir
