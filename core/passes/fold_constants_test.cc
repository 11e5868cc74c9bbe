#include <cmath>
#include <limits>

#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

// The literal that a function of literals folds to, printed.
std::string Folded(const FunctionBuilder& b) {
  std::string body = BodyAfter(b, FoldConstants());
  EXPECT_EQ(body.rfind("  return ", 0), 0) << body;
  return body.substr(9, body.size() - 10);
}

std::string Fold(absl::string_view op, std::vector<Operand> args, ir::Attrs attrs = {}) {
  FunctionBuilder b;
  b.Return({b.Call(op, std::move(args), std::move(attrs))});
  return Folded(b);
}

ir::ConstantPtr F(std::vector<double> v, DType dtype = DType::kF32) {
  return FloatLiteral({static_cast<int64_t>(v.size())}, v, dtype);
}
ir::ConstantPtr I(std::vector<int64_t> v, DType dtype = DType::kI64) {
  return IntLiteral({static_cast<int64_t>(v.size())}, v, dtype);
}

TEST(FoldConstantsTest, ShapeArithmetic) {
  FunctionBuilder b;
  VarPtr i = b.Call("iota", {}, {{"shape", Ints{4}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}});
  VarPtr y = b.Call("add", {b.Call("mul", {i, MakeScalar(DType::kI64, 2)}), MakeScalar(DType::kI64, 1)});
  b.Return({y});
  EXPECT_EQ(Folded(b), "i64[4]{1, 3, 5, 7}");
}

TEST(FoldConstantsTest, Movement) {
  ir::ConstantPtr x = IntLiteral({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Fold("transpose", {x}, {{"perm", Ints{1, 0}}}), "i64[3, 2]{1, 4, 2, 5, 3, 6}");
  EXPECT_EQ(Fold("slice", {x}, {{"begins", Ints{0, 2}}, {"ends", Ints{2, INT64_MIN}}, {"steps", Ints{1, -2}}}),
            "i64[2, 2]{3, 1, 6, 4}");
  EXPECT_EQ(Fold("slice", {x}, {{"begins", Ints{1, 0}}, {"ends", Ints{2, 3}}, {"steps", Ints{INT64_MAX, 1}}}),
            "i64[1, 3]{4, 5, 6}");
  EXPECT_EQ(Fold("expand", {I({1, 2})}, {{"shape", Ints{2, 2}}}), "i64[2, 2]{1, 2, 1, 2}");
  EXPECT_EQ(Fold("concat", {x, IntLiteral({2, 1}, {7, 8})}, {{"axis", int64_t{1}}}),
            "i64[2, 4]{1, 2, 3, 7, 4, 5, 6, 8}");
  EXPECT_EQ(Fold("gather", {x, I({-1, 9, -9})}, {{"axis", int64_t{1}}}), "i64[2, 3]{3, 3, 1, 6, 6, 4}");
  EXPECT_EQ(Fold("reduce_prod", {x}, {{"axes", Ints{0}}}), "i64[3]{4, 10, 18}");
  EXPECT_EQ(Fold("reduce_max", {x}), "i64(6)");
  EXPECT_EQ(Fold("where", {IntLiteral({2, 1}, {1, 0}, DType::kBool), x, MakeScalar(DType::kI64, 0)}),
            "i64[2, 3]{1, 2, 3, 0, 0, 0}");
}

TEST(FoldConstantsTest, IntegersAsDefined) {
  EXPECT_EQ(Fold("div", {I({7, -7, 5, INT64_MIN}), I({2, 2, 0, -1})}), "i64[4]{3, -3, 0, -9223372036854775808}");
  EXPECT_EQ(Fold("add", {I({127}, DType::kI8), I({1}, DType::kI8)}), "i8[1]{-128}");
  EXPECT_EQ(Fold("sub", {I({0}, DType::kU8), I({1}, DType::kU8)}), "u8[1]{255}");
  EXPECT_EQ(Fold("mul", {I({INT64_MAX}), I({2})}), "i64[1]{-2}");
  EXPECT_EQ(Fold("neg", {I({-128}, DType::kI8)}), "i8[1]{-128}");
}

TEST(FoldConstantsTest, FloatsAsDefined) {
  const double nan = NAN, inf = INFINITY;
  EXPECT_EQ(Fold("less", {F({1, nan}), F({2, 2})}), "bool[2]{true, false}");
  EXPECT_EQ(Fold("greater_equal", {F({2, nan}), F({2, nan})}), "bool[2]{true, false}");
  EXPECT_EQ(Fold("not_equal", {F({nan}), F({nan})}), "bool[1]{true}");
  EXPECT_EQ(Fold("maximum", {F({1, nan}), F({nan, 1})}), "f32[2]{nan...}");
  EXPECT_EQ(Fold("div", {F({1, -1}), F({0, 0})}), "f32[2]{inf, -inf}");
  EXPECT_EQ(Fold("mul", {F({3e38}), F({10})}), "f32[1]{inf}");
  EXPECT_EQ(Fold("add", {F({2048}, DType::kF16), F({1}, DType::kF16)}), "f16[1]{2048.0}");
  EXPECT_EQ(Fold("round", {F({0.5, 1.5, -2.5})}), "f32[3]{0.0, 2.0, -2.0}");
  EXPECT_EQ(Fold("sign", {F({-3, inf})}), "f32[2]{-1.0, 1.0}");
}

TEST(FoldConstantsTest, Casts) {
  EXPECT_EQ(Fold("cast", {F({1.9, -1.9, 300, NAN, -INFINITY})}, {{"dtype", DType::kI8}}), "i8[5]{1, -1, 127, 0, -128}");
  EXPECT_EQ(Fold("cast", {F({1e30, -1e30})}, {{"dtype", DType::kI64}}),
            "i64[2]{9223372036854775807, -9223372036854775808}");
  EXPECT_EQ(Fold("cast", {F({0, -0.0, NAN, 2})}, {{"dtype", DType::kBool}}), "bool[4]{false, false, true, true}");
  EXPECT_EQ(Fold("cast", {F({65519, 65520})}, {{"dtype", DType::kF16}}), "f16[2]{65504.0, inf}");
  EXPECT_EQ(Fold("cast", {I({300})}, {{"dtype", DType::kU8}}), "u8[1]{44}");
}

TEST(FoldConstantsTest, LargeResultsAndWeightsStay) {
  FunctionBuilder b;
  VarPtr big = b.Call("full", {}, {{"shape", Ints{100000}}, {"value", 1.0}, {"dtype", DType::kF32}});
  VarPtr w = b.Call("neg", {Weight({2})});
  b.Return({big, w});
  EXPECT_EQ(BodyAfter(b, FoldConstants()), Body(b.Module()));
}

TEST(FoldConstantsTest, EmptyTensors) {
  EXPECT_EQ(Fold("full", {}, {{"shape", Ints{0, 3}}, {"value", 1.0}, {"dtype", DType::kF32}}), "f32[0, 3]{}");
}

}  // namespace
}  // namespace inlay::passes
