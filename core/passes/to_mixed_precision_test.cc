#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

std::string Narrowed(const FunctionBuilder& b) {
  target::CompilationConfig config = target::CompilationConfig::Default();
  config.mixed_precision = "bf16";
  return Body(RunPass(b.Module(), ToMixedPrecision(), /*sweep=*/true, config));
}

TEST(ToMixedPrecisionTest, NothingUnlessAskedFor) {
  FunctionBuilder b;
  b.Return({b.Call("matmul", {b.Param("x", F32({2, 8})), Weight({8, 4}, "w")})});
  EXPECT_EQ(BodyAfter(b, ToMixedPrecision()), Body(b.Module()));
}

TEST(ToMixedPrecisionTest, BiasesStayAsTheyAreAndResidualsReadWhatWasRounded) {
  FunctionBuilder b;
  VarPtr x = b.Call("relu", {b.Param("x", F32({1, 8, 5, 5}))});
  VarPtr y = b.Call("conv", {x, Weight({8, 8, 3, 3}, "w"), Weight({8}, "b")}, {{"pads", Ints{1, 1, 1, 1}}});
  b.Return({b.Call("add", {y, x}), x});
  EXPECT_EQ(Narrowed(b),
            "  %0: f32[1, 8, 5, 5] = relu(%x)\n"
            "  %1: bf16[1, 8, 5, 5] = cast(%0, dtype=bf16)\n"
            "  %2: bf16[8, 8, 3, 3] = cast(@w0, dtype=bf16)\n"
            "  %3: bf16[1, 8, 5, 5] = conv(%1, %2, dilations=[1, 1], groups=1, pads=[1, 1, 1, 1], strides=[1, 1])\n"
            "  %4: f32[1, 8, 5, 5] = cast(%3, dtype=f32)\n"
            "  %5: f32[8, 1, 1] = reshape(@w1, shape=[8, 1, 1])\n"
            "  %6: f32[1, 8, 5, 5] = add(%4, %5)\n"
            "  %7: f32[1, 8, 5, 5] = cast(%1, dtype=f32)\n"
            "  %8: f32[1, 8, 5, 5] = add(%6, %7)\n"
            "  return %8, %0\n");
}

// As of networks that normalise in front of their convolutions. What one operator alone reads is not rounded.
TEST(ToMixedPrecisionTest, ResidualsOfConvolutionsAreRounded) {
  FunctionBuilder b;
  auto conv = [&](VarPtr x, const char* name) { return b.Call("conv", {x, Weight({8, 8, 1, 1}, name)}); };
  VarPtr x = b.Param("x", F32({1, 8, 5, 5})), y = conv(x, "w");
  VarPtr z = b.Call("add", {y, b.Call("mul", {b.Call("relu", {y}), Weight({8, 1, 1}, "s")})});
  b.Return({b.Call("add", {b.Call("relu", {z}), z})});
  EXPECT_EQ(Narrowed(b),
            "  %0: bf16[1, 8, 5, 5] = cast(%x, dtype=bf16)\n"
            "  %1: bf16[8, 8, 1, 1] = cast(@w0, dtype=bf16)\n"
            "  %2: bf16[1, 8, 5, 5] = conv(%0, %1, dilations=[1, 1], groups=1, pads=[0, 0, 0, 0], strides=[1, 1])\n"
            "  %3: f32[1, 8, 5, 5] = cast(%2, dtype=f32)\n"
            "  %4: bf16[1, 8, 5, 5] = cast(%3, dtype=bf16)\n"
            "  %5: f32[1, 8, 5, 5] = cast(%4, dtype=f32)\n"
            "  %6: f32[1, 8, 5, 5] = relu(%5)\n"
            "  %7: f32[1, 8, 5, 5] = mul(%6, @w1)\n"
            "  %8: f32[1, 8, 5, 5] = add(%5, %7)\n"
            "  %9: bf16[1, 8, 5, 5] = cast(%8, dtype=bf16)\n"
            "  %10: f32[1, 8, 5, 5] = cast(%9, dtype=f32)\n"
            "  %11: f32[1, 8, 5, 5] = relu(%10)\n"
            "  %12: f32[1, 8, 5, 5] = add(%11, %10)\n"
            "  return %12\n");
}

TEST(ToMixedPrecisionTest, OfTwoConvolutionsThatMeetTheFirstIsRounded) {
  FunctionBuilder b;
  auto conv = [&](VarPtr x, const char* name) { return b.Call("conv", {x, Weight({8, 8, 1, 1}, name)}); };
  VarPtr x = b.Param("x", F32({1, 8, 5, 5})), y = conv(x, "w"), z = conv(x, "v");
  b.Return({b.Call("add", {z, y})});
  EXPECT_EQ(Narrowed(b),
            "  %0: bf16[1, 8, 5, 5] = cast(%x, dtype=bf16)\n"
            "  %1: bf16[8, 8, 1, 1] = cast(@w0, dtype=bf16)\n"
            "  %2: bf16[1, 8, 5, 5] = conv(%0, %1, dilations=[1, 1], groups=1, pads=[0, 0, 0, 0], strides=[1, 1])\n"
            "  %3: f32[1, 8, 5, 5] = cast(%2, dtype=f32)\n"
            "  %4: bf16[8, 8, 1, 1] = cast(@w1, dtype=bf16)\n"
            "  %5: bf16[1, 8, 5, 5] = conv(%0, %4, dilations=[1, 1], groups=1, pads=[0, 0, 0, 0], strides=[1, 1])\n"
            "  %6: f32[1, 8, 5, 5] = cast(%5, dtype=f32)\n"
            "  %7: bf16[1, 8, 5, 5] = cast(%3, dtype=bf16)\n"
            "  %8: f32[1, 8, 5, 5] = cast(%7, dtype=f32)\n"
            "  %9: f32[1, 8, 5, 5] = add(%6, %8)\n"
            "  return %9\n");
}

// The residuals of a network of matrix products are the sums that it works on, and stay as exact as they are.
TEST(ToMixedPrecisionTest, ResidualsOfMatricesStay) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 8}));
  VarPtr y = b.Call("add", {b.Call("matmul", {b.Call("relu", {x}), Weight({8, 8}, "w")}), x});
  b.Return({b.Call(
      "add",
      {b.Call("matmul", {b.Call("layer_norm", {y, Weight({8}, "s"), Weight({8}, "t")}), Weight({8, 8}, "v")}), y})});
  EXPECT_EQ(Narrowed(b),
            "  %0: f32[2, 8] = relu(%x)\n"
            "  %1: bf16[2, 8] = cast(%0, dtype=bf16)\n"
            "  %2: bf16[8, 8] = cast(@w0, dtype=bf16)\n"
            "  %3: bf16[2, 8] = matmul(%1, %2, transpose_a=false, transpose_b=false)\n"
            "  %4: f32[2, 8] = cast(%3, dtype=f32)\n"
            "  %5: f32[2, 8] = add(%4, %x)\n"
            "  %6: f32[2, 8] = layer_norm(%5, @w1, @w2, axis=1, epsilon=1e-05)\n"
            "  %7: bf16[2, 8] = cast(%6, dtype=bf16)\n"
            "  %8: bf16[8, 8] = cast(@w3, dtype=bf16)\n"
            "  %9: bf16[2, 8] = matmul(%7, %8, transpose_a=false, transpose_b=false)\n"
            "  %10: f32[2, 8] = cast(%9, dtype=f32)\n"
            "  %11: f32[2, 8] = add(%10, %5)\n"
            "  return %11\n");
}

// What is rounded is what lies in memory: the operator's own value, not one that was moved.
TEST(ToMixedPrecisionTest, RoundsInFrontOfWhatMovesElements) {
  FunctionBuilder b;
  VarPtr x = b.Call("relu", {b.Param("x", F32({2, 4, 6, 6}))}), y = b.Param("y", F32({2, 4, 3, 3}));
  VarPtr pooled = b.Call("max_pool", {x}, {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  VarPtr all = b.Call("concat", {pooled, y}, {{"axis", int64_t{1}}});
  b.Return({b.Call("matmul", {b.Call("reshape", {all}, {{"shape", Ints{2, 72}}}), Weight({72, 4}, "w")})});
  EXPECT_EQ(Narrowed(b),
            "  %0: f32[2, 4, 6, 6] = relu(%x)\n"
            "  %1: bf16[2, 4, 6, 6] = cast(%0, dtype=bf16)\n"
            "  %2: bf16[2, 4, 3, 3] = max_pool(%1, ceil_mode=false, dilations=[1, 1], kernel=[2, 2], pads=[0, 0, 0, "
            "0], strides=[2, 2])\n"
            "  %3: bf16[2, 4, 3, 3] = cast(%y, dtype=bf16)\n"
            "  %4: bf16[2, 8, 3, 3] = concat(%2, %3, axis=1)\n"
            "  %5: bf16[2, 72] = reshape(%4, shape=[2, 72])\n"
            "  %6: bf16[72, 4] = cast(@w0, dtype=bf16)\n"
            "  %7: bf16[2, 4] = matmul(%5, %6, transpose_a=false, transpose_b=false)\n"
            "  %8: f32[2, 4] = cast(%7, dtype=f32)\n"
            "  return %8\n");
}

TEST(ToMixedPrecisionTest, RecurrentCells) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({3, 1, 8})), h = b.Param("h", F32({1, 1, 4}));
  VarPtr cells = b.Call("gru", {x, Weight({1, 12, 8}, "w"), Weight({1, 12, 4}, "r"), Weight({1, 24}, "b"), h},
                        {{"hidden_size", int64_t{4}}, {"direction", "forward"}});
  b.Return({b.Call("relu", {b.GetItem(cells, 0)}), b.GetItem(cells, 1)});
  EXPECT_EQ(Narrowed(b),
            "  %0: bf16[3, 1, 8] = cast(%x, dtype=bf16)\n"
            "  %1: bf16[1, 12, 8] = cast(@w0, dtype=bf16)\n"
            "  %2: bf16[1, 12, 4] = cast(@w1, dtype=bf16)\n"
            "  %3: bf16[1, 24] = cast(@w2, dtype=bf16)\n"
            "  %4: bf16[1, 1, 4] = cast(%h, dtype=bf16)\n"
            "  %5: (bf16[3, 1, 1, 4], bf16[1, 1, 4]) = gru(%0, %1, %2, %3, %4, direction=\"forward\", hidden_size=4, "
            "linear_before_reset=false)\n"
            "  %6: bf16[3, 1, 1, 4] = %5.0\n"
            "  %7: f32[3, 1, 1, 4] = cast(%6, dtype=f32)\n"
            "  %8: f32[3, 1, 1, 4] = relu(%7)\n"
            "  %9: bf16[1, 1, 4] = %5.1\n"
            "  %10: f32[1, 1, 4] = cast(%9, dtype=f32)\n"
            "  return %8, %10\n");
}

// Softmax's result is rounded for the second product, its argument is not.
TEST(ToMixedPrecisionTest, LargeProductsOfActivations) {
  FunctionBuilder b;
  VarPtr q = b.Param("q", F32({2, 20, 16})), k = b.Param("k", F32({2, 18, 16})), v = b.Param("v", F32({2, 18, 24}));
  VarPtr scores = b.Call("matmul", {q, k}, {{"transpose_b", true}});
  b.Return({b.Call("matmul", {b.Call("softmax", {scores}), v})});
  EXPECT_EQ(Narrowed(b),
            "  %0: bf16[2, 20, 16] = cast(%q, dtype=bf16)\n"
            "  %1: bf16[2, 18, 16] = cast(%k, dtype=bf16)\n"
            "  %2: bf16[2, 20, 18] = matmul(%0, %1, transpose_a=false, transpose_b=true)\n"
            "  %3: f32[2, 20, 18] = cast(%2, dtype=f32)\n"
            "  %4: f32[2, 20, 18] = softmax(%3, axis=2)\n"
            "  %5: bf16[2, 20, 18] = cast(%4, dtype=bf16)\n"
            "  %6: bf16[2, 18, 24] = cast(%v, dtype=bf16)\n"
            "  %7: bf16[2, 20, 24] = matmul(%5, %6, transpose_a=false, transpose_b=false)\n"
            "  %8: f32[2, 20, 24] = cast(%7, dtype=f32)\n"
            "  return %8\n");
}

TEST(ToMixedPrecisionTest, SmallProductsOfActivationsAndOtherTypesStay) {
  FunctionBuilder b;
  VarPtr positions = b.Param("positions", F32({64, 1})), frequencies = b.Param("frequencies", F32({1, 64}));
  VarPtr row = b.Param("row", F32({1, 64})), keys = b.Param("keys", F32({64, 64}));
  VarPtr x = b.Param("x", F32({4, 4})), h = b.Param("h", ir::TensorType{DType::kF16, {4, 4}});
  b.Return({b.Call("matmul", {positions, frequencies}), b.Call("matmul", {row, keys}), b.Call("matmul", {x, x}),
            b.Call("matmul", {Weight({4, 4}, "w"), x}), b.Call("matmul", {h, Weight({4, 4}, "v", DType::kF16)}),
            b.Call("softmax", {x})});
  EXPECT_EQ(Narrowed(b), Body(b.Module()));
}

// The function's own parameters are given as they are, and others may want them so.
TEST(ToMixedPrecisionTest, ParametersAreReadAsTheyAre) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 4}));
  b.Return({b.Call("add", {b.Call("matmul", {x, Weight({4, 4}, "w")}), x})});
  EXPECT_NE(Narrowed(b).find("add(%3, %x)"), std::string::npos) << Narrowed(b);
}

}  // namespace
}  // namespace inlay::passes
