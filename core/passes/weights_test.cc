// The passes that work on weights: expand_batch_norm, fold_scale_bias, fold_requantisation, lift_transform_params.
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

TEST(ExpandBatchNormTest, BecomesScaleAndBias) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 4, 4}));
  b.Return({b.Call("batch_norm", {x, Weight({3}, "s"), Weight({3}, "b"), Weight({3}, "m"), Weight({3}, "v")},
                   {{"epsilon", 1e-3}}, "bn1")});
  EXPECT_EQ(BodyAfter(b, ExpandBatchNorm()),
            "  %0: f32[3] = add(@w0, f32(0.001))  // bn1\n"
            "  %1: f32[3] = rsqrt(%0)  // bn1\n"
            "  %2: f32[3] = mul(@w1, %1)  // bn1\n"
            "  %3: f32[3] = mul(@w2, %2)  // bn1\n"
            "  %4: f32[3] = sub(@w3, %3)  // bn1\n"
            "  %5: f32[3, 1, 1] = reshape(%2, shape=[3, 1, 1])  // bn1\n"
            "  %6: f32[3, 1, 1] = reshape(%4, shape=[3, 1, 1])  // bn1\n"
            "  %7: f32[1, 3, 4, 4] = mul(%x, %5)  // bn1\n"
            "  %8: f32[1, 3, 4, 4] = add(%7, %6)  // bn1\n"
            "  return %8\n");
}

TEST(ExpandBatchNormTest, HalfPrecisionIsComputedWide) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::TensorType{DType::kF16, {1, 3, 4}});
  auto w = [](const char* name) { return Weight({3}, name, DType::kF16); };
  b.Return({b.Call("batch_norm", {x, w("s"), w("b"), w("m"), w("v")})});
  const std::string body = BodyAfter(b, ExpandBatchNorm());
  EXPECT_NE(body.find("f32[3] = rsqrt"), std::string::npos) << body;
  EXPECT_NE(body.find("f16[1, 3, 4] = mul(%x"), std::string::npos) << body;
}

TEST(FoldRequantisationTest, ScalesAreDividedByTheScale) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::TensorType{DType::kI32, {2, 8}});
  VarPtr y = b.Param("y", ir::TensorType{DType::kU8, {2, 8}});
  auto real = [&](const VarPtr& v) { return b.Call("cast", {v}, {{"dtype", DType::kF32}}); };
  VarPtr sum = b.Call("add", {b.Call("mul", {real(x), Weight({8}, "s")}), Weight({8}, "b")});
  VarPtr both = b.Call("add", {sum, b.Call("mul", {MakeScalar(DType::kF32, 0.5), real(y)})});
  VarPtr clipped = b.Call("clip", {b.Call("relu", {both})}, {{"max", 6.0}});
  b.Return({b.Call("div", {clipped, MakeScalar(DType::kF32, 0.25)})});
  EXPECT_EQ(BodyAfter(b, FoldRequantisation()),
            "  %0: f32[2, 8] = cast(%x, dtype=f32)\n"
            "  %1: f32[2, 8] = cast(%y, dtype=f32)\n"
            "  %2: f32[8] = div(@w0, f32(0.25))\n"
            "  %3: f32[2, 8] = mul(%0, %2)\n"
            "  %4: f32[8] = div(@w1, f32(0.25))\n"
            "  %5: f32[2, 8] = add(%3, %4)\n"
            "  %6: f32[] = div(f32(0.5), f32(0.25))\n"
            "  %7: f32[2, 8] = mul(%6, %1)\n"
            "  %8: f32[2, 8] = add(%5, %7)\n"
            "  %9: f32[2, 8] = relu(%8)\n"
            "  %10: f32[2, 8] = clip(%9, max=24.0)\n"
            "  return %10\n");
}

TEST(FoldRequantisationTest, OtherQuotientsStay) {
  for (const double divisor : {-0.5, 0.0, 1e-30}) {
    FunctionBuilder b;
    VarPtr x = b.Call("cast", {b.Param("x", ir::TensorType{DType::kI32, {2, 8}})}, {{"dtype", DType::kF32}});
    b.Return({b.Call("div", {b.Call("mul", {x, Weight({8}, "s")}), MakeScalar(DType::kF32, divisor)})});
    EXPECT_EQ(BodyAfter(b, FoldRequantisation()), Body(b.Module())) << divisor;
  }
  FunctionBuilder b;  // of floats; of what others use too
  VarPtr x = b.Call("mul", {b.Param("x", F32({2, 8})), Weight({8}, "s")});
  VarPtr y = b.Call("cast", {b.Param("y", ir::TensorType{DType::kI32, {2, 8}})}, {{"dtype", DType::kF32}});
  VarPtr z = b.Call("mul", {y, Weight({8}, "t")});
  auto quotient = [&](const VarPtr& v) { return b.Call("div", {v, MakeScalar(DType::kF32, 0.5)}); };
  b.Return({quotient(x), quotient(z), z});
  EXPECT_EQ(BodyAfter(b, FoldRequantisation()), Body(b.Module()));
}

TEST(FoldScaleBiasTest, IntoConvolution) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 4, 4}));
  VarPtr c = b.Call("conv", {x, Weight({8, 3, 3, 3}, "w"), Weight({8}, "b")}, {{"pads", Ints{1, 1, 1, 1}}});
  VarPtr m = b.Call("mul", {c, Weight({8, 1, 1}, "s")});
  b.Return({b.Call("add", {m, Weight({8, 1, 1}, "t")})});
  EXPECT_EQ(BodyAfter(b, FoldScaleBias()),
            "  %0: f32[8] = reshape(@w0, shape=[8])\n"
            "  %1: f32[8, 1, 1, 1] = reshape(%0, shape=[8, 1, 1, 1])\n"
            "  %2: f32[8, 3, 3, 3] = mul(@w1, %1)\n"
            "  %3: f32[8] = mul(@w2, %0)\n"
            "  %4: f32[8] = reshape(@w3, shape=[8])\n"
            "  %5: f32[8] = add(%3, %4)\n"
            "  %6: f32[1, 8, 4, 4] = conv(%x, %2, %5, dilations=[1, 1], groups=1, pads=[1, 1, 1, 1], strides=[1, 1])\n"
            "  return %6\n");
}

TEST(FoldScaleBiasTest, ScalarIntoConvolution) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 4}));
  VarPtr c = b.Call("conv", {x, Weight({8, 3, 1}, "w")});
  b.Return({b.Call("mul", {c, MakeScalar(DType::kF32, 0.5)})});
  const std::string body = BodyAfter(b, FoldScaleBias());
  EXPECT_NE(body.find("conv(%x, %"), std::string::npos) << body;
  EXPECT_EQ(body.find("f32[1, 8, 4] = mul"), std::string::npos) << body;
}

TEST(FoldScaleBiasTest, IntoTransposedConvolution) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 4}));
  VarPtr plain = b.Call("conv_transpose", {x, Weight({3, 8, 2}, "w")});
  VarPtr grouped = b.Call("conv_transpose", {x, Weight({3, 2, 2}, "g")}, {{"groups", int64_t{3}}});
  b.Return({b.Call("mul", {plain, Weight({8, 1}, "s")}), b.Call("mul", {grouped, Weight({6, 1}, "t")})});
  EXPECT_EQ(BodyAfter(b, FoldScaleBias()),
            "  %0: f32[1, 6, 5] = conv_transpose(%x, @w0, dilations=[1], groups=3, output_padding=[0], pads=[0, 0], "
            "strides=[1])\n"
            "  %1: f32[8] = reshape(@w1, shape=[8])\n"
            "  %2: f32[1, 8, 1] = reshape(%1, shape=[1, 8, 1])\n"
            "  %3: f32[3, 8, 2] = mul(@w2, %2)\n"
            "  %4: f32[1, 8, 5] = conv_transpose(%x, %3, dilations=[1], groups=1, output_padding=[0], pads=[0, 0], "
            "strides=[1])\n"
            "  %5: f32[1, 6, 5] = mul(%0, @w3)\n"
            "  return %4, %5\n");
}

TEST(FoldScaleBiasTest, IntoMatmul) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 5, 4}));
  VarPtr m = b.Call("matmul", {x, Weight({6, 4}, "w")}, {{"transpose_b", true}});
  VarPtr a = b.Call("add", {m, Weight({6}, "b")});
  VarPtr s = b.Call("mul", {a, Weight({1, 6}, "s")});
  b.Return({b.Call("add", {s, Weight({6}, "t")})});
  EXPECT_EQ(BodyAfter(b, FoldScaleBias()),
            "  %0: f32[6, 1] = reshape(@w0, shape=[6, 1])\n"
            "  %1: f32[6, 4] = mul(@w1, %0)\n"
            "  %2: f32[2, 5, 6] = matmul(%x, %1, transpose_a=false, transpose_b=true)\n"
            "  %3: f32[1, 6] = mul(@w2, @w0)\n"
            "  %4: f32[1, 6] = add(%3, @w3)\n"
            "  %5: f32[2, 5, 6] = add(%2, %4)\n"
            "  return %5\n");
}

TEST(FoldScaleBiasTest, WhatDoesNotFitStays) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 4, 4})), s = b.Param("s", F32({8, 1, 1}));
  ir::ConstantPtr w = Weight({8, 3, 1, 1}, "w");
  VarPtr dynamic = b.Call("mul", {b.Call("conv", {x, w}), s});
  VarPtr along_width = b.Call("mul", {b.Call("conv", {x, w}), Weight({4}, "col")});
  VarPtr used_twice = b.Call("conv", {x, w});
  VarPtr scaled = b.Call("mul", {used_twice, Weight({8, 1, 1}, "k")});
  VarPtr widened = b.Call("mul", {b.Call("conv", {x, w}), Weight({2, 8, 1, 1}, "n")});
  b.Return({dynamic, along_width, b.Call("add", {scaled, used_twice}), widened});
  EXPECT_EQ(BodyAfter(b, FoldScaleBias()), Body(b.Module()));
}

TEST(LiftTransformParamsTest, Golden) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8}));
  VarPtr w = b.Call("mul", {Weight({8, 4}, "w"), Weight({4}, "s")});
  VarPtr m = b.Call("matmul", {x, w});
  VarPtr unused_outside = b.Call("neg", {Weight({4}, "b")});
  VarPtr bias = b.Call("exp", {unused_outside});
  b.Return({b.Call("add", {b.Call("add", {m, bias}), Weight({4}, "raw")})});
  EXPECT_EQ(Print(RunPass(b.Module(), LiftTransformParams())),
            "@w0: f32[4] \"raw\"\n"
            "@w1: f32[8, 4] \"w\"\n"
            "@w2: f32[4] \"s\"\n"
            "@w3: f32[4] \"b\"\n\n"
            "fn @main(%x: f32[1, 8], %lifted0: f32[8, 4], %lifted1: f32[4]) {num_lifted_params=2} {\n"
            "  %0: f32[1, 4] = matmul(%x, %lifted0, transpose_a=false, transpose_b=false)\n"
            "  %1: f32[1, 4] = add(%0, %lifted1)\n"
            "  %2: f32[1, 4] = add(%1, @w0)\n"
            "  return %2\n"
            "}\n\n"
            "fn @transform_params() {\n"
            "  %0: f32[8, 4] = mul(@w1, @w2)\n"
            "  %1: f32[4] = neg(@w3)\n"
            "  %2: f32[4] = exp(%1)\n"
            "  return %0, %2\n"
            "}\n");
}

TEST(LiftTransformParamsTest, NothingToLift) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  b.Return({b.Call("add", {x, Weight({4})})});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(module.functions.size(), 1);
  EXPECT_EQ(module.functions["main"].attrs.Int("num_lifted_params"), 0);
}

TEST(LiftTransformParamsTest, TuplesStayWhole) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr parts = b.Call("split", {Weight({8})}, {{"axis", int64_t{0}}, {"sizes", Ints{4, 4}}});
  b.Return({b.Call("add", {x, b.GetItem(parts, 1)})});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(Body(module), "  %0: f32[4] = add(%x, %lifted0)\n  return %0\n");
  EXPECT_EQ(module.functions["transform_params"].body.bindings.size(), 2);
}

// A network on constant coordinates (relative position biases): its hidden values are larger than what is kept of them.
TEST(LiftTransformParamsTest, WhatIsBetweenMayBeLarge) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4096, 3}));
  VarPtr hidden = b.Call("relu", {b.Call("matmul", {Weight({4096, 2}, "at"), Weight({2, 384}, "in")})});
  VarPtr bias = b.Call("matmul", {hidden, Weight({384, 3}, "out")});
  b.Return({b.Call("add", {x, bias})});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(Body(module), "  %0: f32[4096, 3] = add(%x, %lifted0)\n  return %0\n");
  EXPECT_EQ(module.functions["transform_params"].body.bindings.size(), 3);
}

TEST(LiftTransformParamsTest, WhatIsMuchWorkIsKept) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1024, 1024}));
  VarPtr product = b.Call("matmul", {Weight({1024, 64}, "a"), Weight({64, 1024}, "b")});
  b.Return({b.Call("add", {x, product})});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(Body(module), "  %0: f32[1024, 1024] = add(%x, %lifted0)\n  return %0\n");
}

// Softmax of a bias that few weights make (positions' part of an attention), and what is computed of it.
TEST(LiftTransformParamsTest, WhatTakesAPassIsKept) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({9, 256, 256}));
  VarPtr wide = b.Call("expand", {Weight({256})}, {{"shape", Ints{9, 256, 256}}});
  VarPtr scaled = b.Call("mul", {b.Call("softmax", {wide}), Weight({1, 1, 256}, "gate")});
  b.Return({b.Call("add", {x, scaled})});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(Body(module), "  %0: f32[9, 256, 256] = add(%x, %lifted0)\n  return %0\n");
}

// What is small is kept, not what its users make of it.
TEST(LiftTransformParamsTest, WhatGrowsBehindAPassIsMadeAgain) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1024, 1024}));
  VarPtr wide = b.Call("expand", {b.Call("softmax", {Weight({1024})})}, {{"shape", Ints{1024, 1024}}});
  b.Return({b.Call("add", {x, wide})});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(module.functions["main"].params.back()->type, F32({1024}));
}

TEST(LiftTransformParamsTest, BothMayMakeWhatIsNotWorthKeeping) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1024, 1024}));
  VarPtr wide = b.Call("expand", {Weight({1024})}, {{"shape", Ints{1024, 1024}}});
  VarPtr wider = b.Call("neg", {wide});
  VarPtr sum = b.Call("reduce_sum", {b.Call("exp", {wide})}, {{"axes", Ints{0}}, {"keepdims", false}});
  b.Return({b.Call("add", {b.Call("mul", {x, wider}), sum})});
  EXPECT_EQ(Print(RunPass(b.Module(), LiftTransformParams())),
            "@w0: f32[1024] \"w\"\n\n"
            "fn @main(%x: f32[1024, 1024], %lifted0: f32[1024]) {num_lifted_params=1} {\n"
            "  %0: f32[1024, 1024] = expand(@w0, shape=[1024, 1024])\n"
            "  %1: f32[1024, 1024] = neg(%0)\n"
            "  %2: f32[1024, 1024] = mul(%x, %1)\n"
            "  %3: f32[1024, 1024] = add(%2, %lifted0)\n"
            "  return %3\n"
            "}\n\n"
            "fn @transform_params() {\n"
            "  %0: f32[1024, 1024] = expand(@w0, shape=[1024, 1024])\n"
            "  %1: f32[1024, 1024] = exp(%0)\n"
            "  %2: f32[1024] = reduce_sum(%1, axes=[0], keepdims=false)\n"
            "  return %2\n"
            "}\n");
}

TEST(LiftTransformParamsTest, WhatGrowsMuchIsMadeAgain) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1024, 1024}));
  VarPtr wide = b.Call("expand", {Weight({1024})}, {{"shape", Ints{1024, 1024}}});
  b.Return({b.Call("add", {x, wide})});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(module.functions["main"].attrs.Int("num_lifted_params"), 0);
}

TEST(LiftTransformParamsTest, WhatContractionsReadIsKeptUpToAGibibyte) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 16384}));
  for (int i = 0; i < 3; ++i) {  // half a gibibyte each
    x = b.Call("matmul", {x, b.Call("expand", {Weight({8192})}, {{"shape", Ints{16384, 8192}}})});
    if (i < 2) x = b.Call("concat", {x, x}, {{"axis", int64_t{1}}});
  }
  b.Return({x});
  ir::IRModule module = RunPass(b.Module(), LiftTransformParams());
  EXPECT_EQ(module.functions["main"].attrs.Int("num_lifted_params"), 2);
}

}  // namespace
}  // namespace inlay::passes
