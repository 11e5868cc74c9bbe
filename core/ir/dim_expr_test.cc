#include "core/ir/dim_expr.h"

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
  EXPECT_EQ(CanonicalDim("(h - 1)/2 + 1").ToString(), "((h-1)/2)+1");
  EXPECT_EQ(CanonicalDim("(((-1+h)//2)+1)*2").ToString(), "2*((h-1)/2)+2");
  EXPECT_EQ(CanonicalDim("(4*h)/4").ToString(), "h");
  EXPECT_EQ(CanonicalDim("(a+b)*c").ToString(), "a*c+b*c");
  EXPECT_EQ(CanonicalDim("slice((1+seq),-1,5,2)").ToString(), "slice(seq+1,-1,5,2)");
  for (const char* own :
       {"((h-1)/2)", "slice(((h)/2)+1,0,-1,1)", "pool(h,3,2,0,0)", "2*a*b-c-1", "floor(h/2)", "a/b"}) {
    EXPECT_EQ(CanonicalDim(own).ToString(), own);
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
