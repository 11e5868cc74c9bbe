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
            b.Call("matmul", {Weight({4, 4}, "w"), x}),
            b.Call("matmul", {h, Weight({4, 4}, "v", DType::kF16)}), b.Call("softmax", {x})});
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
