#include <cmath>

#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

// x: f32[4] (or another dtype) through one call.
std::string After(absl::string_view op, std::function<std::vector<Operand>(VarPtr)> args, DType dtype = DType::kF32) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::TensorType{dtype, {4}});
  b.Return({b.Call(op, args(x))});
  return BodyAfter(b, Simplify());
}

std::string WithScalar(absl::string_view op, double c, DType dtype = DType::kF32) {
  return After(op, [&](VarPtr x) { return std::vector<Operand>{x, MakeScalar(dtype, c)}; }, dtype);
}

constexpr char kX[] = "  return %x\n";

TEST(SimplifyTest, NeutralElements) {
  EXPECT_EQ(WithScalar("mul", 1), kX);
  EXPECT_EQ(WithScalar("div", 1), kX);
  EXPECT_EQ(WithScalar("pow", 1), kX);
  EXPECT_EQ(WithScalar("sub", 0), kX);
  EXPECT_EQ(WithScalar("add", -0.0), kX);
  EXPECT_EQ(WithScalar("add", 0, DType::kI32), kX);
  EXPECT_EQ(WithScalar("sub", 0, DType::kI32), kX);
  EXPECT_EQ(WithScalar("mul", 1, DType::kI8), kX);
}

TEST(SimplifyTest, WhatOnlyLooksNeutralStays) {
  EXPECT_EQ(WithScalar("add", 0.0), "  %0: f32[4] = add(%x, f32(0.0))\n  return %0\n");    // -0.0 + 0.0 = 0.0
  EXPECT_EQ(WithScalar("sub", -0.0), "  %0: f32[4] = sub(%x, f32(-0.0))\n  return %0\n");  // -0.0 - -0.0 = 0.0
  EXPECT_EQ(WithScalar("mul", 0), "  %0: f32[4] = mul(%x, f32(0.0))\n  return %0\n");      // NaN
  EXPECT_EQ(WithScalar("div", 3), "  %0: f32[4] = div(%x, f32(3.0))\n  return %0\n");      // rounding
  EXPECT_EQ(WithScalar("pow", 0.5), "  %0: f32[4] = pow(%x, f32(0.5))\n  return %0\n");    // pow(-inf, .5) = inf
  EXPECT_EQ(WithScalar("maximum", -0.0), "  %0: f32[4] = maximum(%x, f32(-0.0))\n  return %0\n");
}

TEST(SimplifyTest, NeutralElementThatBroadcastsStays) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  b.Return({b.Call("mul", {x, FloatLiteral({2, 1}, {1, 1})})});
  EXPECT_EQ(BodyAfter(b, Simplify()), "  %0: f32[2, 4] = mul(%x, f32[2, 1]{1.0...})\n  return %0\n");
}

TEST(SimplifyTest, DivisionByPowersOfTwo) {
  EXPECT_EQ(WithScalar("div", 8), "  %0: f32[4] = mul(%x, f32(0.125))\n  return %0\n");
  EXPECT_EQ(WithScalar("div", -0.25), "  %0: f32[4] = mul(%x, f32(-4.0))\n  return %0\n");
  EXPECT_EQ(WithScalar("div", 8, DType::kI32), "  %0: i32[4] = div(%x, i32(8))\n  return %0\n");
  // 2^-15 is subnormal in f16.
  EXPECT_EQ(WithScalar("div", 32768, DType::kF16), "  %0: f16[4] = div(%x, f16(32768.0))\n  return %0\n");
}

TEST(SimplifyTest, Powers) {
  EXPECT_EQ(WithScalar("pow", 2), "  %0: f32[4] = mul(%x, %x)\n  return %0\n");
  EXPECT_EQ(WithScalar("pow", 3), "  %0: f32[4] = mul(%x, %x)\n  %1: f32[4] = mul(%0, %x)\n  return %1\n");
  EXPECT_EQ(WithScalar("pow", -1), "  %0: f32[4] = reciprocal(%x)\n  return %0\n");
  EXPECT_EQ(WithScalar("pow", -1, DType::kI32), "  %0: i32[4] = pow(%x, i32(-1))\n  return %0\n");
}

TEST(SimplifyTest, ConstantsComeSecond) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr y = b.Call("add", {Weight({4}), x});
  b.Return({b.Call("sub", {MakeScalar(DType::kF32, 2), y})});
  EXPECT_EQ(BodyAfter(b, Simplify()), "  %0: f32[4] = add(%x, @w0)\n  %1: f32[4] = sub(f32(2.0), %0)\n  return %1\n");
}

TEST(SimplifyTest, BroadcastsThatTheOperatorDoesItself) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 4})), y = b.Param("y", F32({4}));
  VarPtr wide = b.Call("expand", {y}, {{"shape", Ints{2, 4}}});
  VarPtr full = b.Call("full", {}, {{"shape", Ints{2, 4}}, {"value", 0.5}, {"dtype", DType::kF32}});
  VarPtr a = b.Call("add", {x, wide});
  VarPtr m = b.Call("mul", {a, full});
  VarPtr tiled = b.Call("tile", {b.Call("reshape", {y}, {{"shape", Ints{1, 4}}})}, {{"repeats", Ints{2, 1}}});
  b.Return({b.Call("sub", {m, tiled}), b.Call("add", {y, b.Call("expand", {y}, {{"shape", Ints{3, 4}}})})});
  EXPECT_EQ(BodyAfter(b, Simplify()),
            "  %0: f32[2, 4] = add(%x, %y)\n"
            "  %1: f32[2, 4] = mul(%0, f32(0.5))\n"
            "  %2: f32[1, 4] = reshape(%y, shape=[1, 4])\n"
            "  %3: f32[2, 4] = sub(%1, %2)\n"
            "  %4: f32[3, 4] = expand(%y, shape=[3, 4])\n"
            "  %5: f32[3, 4] = add(%y, %4)\n"
            "  return %3, %5\n");
}

TEST(SimplifyTest, IntegerChains) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", I64({4}));
  VarPtr y = b.Call("add", {b.Call("add", {x, MakeScalar(DType::kI64, 2)}), MakeScalar(DType::kI64, 3)});
  b.Return({b.Call("mul", {b.Call("mul", {y, MakeScalar(DType::kI64, 2)}), MakeScalar(DType::kI64, -3)})});
  EXPECT_EQ(BodyAfter(b, Simplify()), "  %0: i64[4] = add(%x, i64(5))\n  %1: i64[4] = mul(%0, i64(-6))\n  return %1\n");
}

TEST(SimplifyTest, RootsAndRepetition) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr r = b.Call("reciprocal", {b.Call("sqrt", {x})});
  VarPtr d = b.Call("div", {MakeScalar(DType::kF32, 1), b.Call("sqrt", {x})});
  VarPtr n = b.Call("neg", {b.Call("neg", {x})});
  VarPtr relu = b.Call("relu", {b.Call("maximum", {x, MakeScalar(DType::kF32, 0)})});
  b.Return({r, d, n, relu});
  EXPECT_EQ(BodyAfter(b, Simplify()),
            "  %0: f32[4] = rsqrt(%x)\n"
            "  %1: f32[4] = rsqrt(%x)\n"
            "  %2: f32[4] = relu(%x)\n"
            "  return %0, %1, %x, %2\n");
}

TEST(SimplifyTest, Where) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4})), y = b.Param("y", F32({2, 4}));
  ir::ConstantPtr no = IntLiteral({2, 1}, {0, 0}, DType::kBool), yes = IntLiteral({}, {1}, DType::kBool);
  b.Return({b.Call("where", {no, x, y}), b.Call("where", {yes, x, y})});
  EXPECT_EQ(BodyAfter(b, Simplify()), "  %0: f32[2, 4] = expand(%x, shape=[2, 4])\n  return %y, %0\n");
}

TEST(SimplifyTest, GatherOfARangeIsASlice) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 5, 3}));
  auto gather = [&](ir::ConstantPtr indices) { return b.Call("gather", {x, indices}, {{"axis", int64_t{1}}}); };
  b.Return({gather(IntLiteral({}, {-1})), gather(IntLiteral({2}, {3, 4})), gather(IntLiteral({2}, {4, 3})),
            gather(IntLiteral({2}, {4, 5})), gather(IntLiteral({}, {9}))});
  EXPECT_EQ(BodyAfter(b, Simplify()),
            "  %0: f32[2, 1, 3] = slice(%x, begins=[0, 4, 0], ends=[2, 5, 3], steps=[1, 1, 1])\n"
            "  %1: f32[2, 3] = reshape(%0, shape=[2, 3])\n"
            "  %2: f32[2, 2, 3] = slice(%x, begins=[0, 3, 0], ends=[2, 5, 3], steps=[1, 1, 1])\n"
            "  %3: f32[2, 2, 3] = gather(%x, i64[2]{4, 3}, axis=1)\n"
            "  %4: f32[2, 2, 3] = gather(%x, i64[2]{4, 5}, axis=1)\n"
            "  %5: f32[2, 1, 3] = slice(%x, begins=[0, 4, 0], ends=[2, 5, 3], steps=[1, 1, 1])\n"
            "  %6: f32[2, 3] = reshape(%5, shape=[2, 3])\n"
            "  return %1, %2, %3, %4, %6\n");
}

}  // namespace
}  // namespace inlay::passes
