// The whole pipeline on pieces of real models.
#include <cmath>

#include "core/ir/structural_hash.h"
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

ir::IRModule Normalise(const ir::IRModule& module, int opt_level = 3) {
  target::CompilationConfig config = target::CompilationConfig::Default();
  config.opt_level = opt_level;
  PassManager manager = BuildNormalisePipeline(config);
  manager.set_verify_each(true);
  absl::StatusOr<ir::IRModule> result = manager.Run(module);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : ir::IRModule();
}

VarPtr BatchNorm(FunctionBuilder& b, VarPtr x, int64_t c, const std::string& name) {
  return b.Call("batch_norm", {x, Weight({c}, name + ".scale"), Weight({c}, name + ".bias"),
                               Weight({c}, name + ".mean"), Weight({c}, name + ".var")});
}

TEST(NormalisePipelineTest, ResNetBlock) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 6, 6}));
  VarPtr y = b.Call("conv", {x, Weight({8, 8, 3, 3}, "conv1")}, {{"pads", Ints{1, 1, 1, 1}}});
  y = b.Call("relu", {BatchNorm(b, y, 8, "bn1")});
  y = b.Call("conv", {y, Weight({8, 8, 3, 3}, "conv2")}, {{"pads", Ints{1, 1, 1, 1}}});
  y = b.Call("relu", {b.Call("add", {BatchNorm(b, y, 8, "bn2"), x})});
  b.Return({y});
  ir::IRModule module = Normalise(b.Module());
  const std::string attrs = ", dilations=[1, 1], groups=1, pads=[1, 1, 1, 1], strides=[1, 1])\n";
  EXPECT_EQ(Body(module), "  %0: f32[1, 8, 6, 6] = conv(%x, %lifted0, %lifted1" + attrs +
                              "  %1: f32[1, 8, 6, 6] = relu(%0)\n"
                              "  %2: f32[1, 8, 6, 6] = conv(%1, %lifted2, %lifted3" +
                              attrs +
                              "  %3: f32[1, 8, 6, 6] = add(%2, %x)\n"
                              "  %4: f32[1, 8, 6, 6] = relu(%3)\n"
                              "  return %4\n");
  // add, rsqrt, mul, mul, sub, reshape, mul: a convolution.
  EXPECT_EQ(module.functions["transform_params"].body.bindings.size(), 14);
  EXPECT_EQ(module.functions["main"].attrs.Int("num_lifted_params"), 4);
}

TEST(NormalisePipelineTest, BatchNormIsGoneAtEveryLevel) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 6}));
  b.Return({BatchNorm(b, b.Call("identity", {x}), 8, "bn")});
  for (int level = 0; level <= 3; ++level) {
    const std::string body = Body(Normalise(b.Module(), level));
    EXPECT_EQ(body, "  %0: f32[1, 8, 6] = mul(%x, %lifted0)\n  %1: f32[1, 8, 6] = add(%0, %lifted1)\n  return %1\n");
  }
}

// BERT as torch.onnx writes it below opset 17: linear, GELU, residual, layer norm, with x - mean computed twice.
TEST(NormalisePipelineTest, BertFeedForward) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 4, 8}));
  VarPtr h = b.Call("add", {Weight({32}, "b1"), b.Call("matmul", {x, Weight({8, 32}, "w1")})});
  VarPtr e =
      b.Call("add", {b.Call("erf", {b.Call("div", {h, FloatLiteral({}, {std::sqrt(2.0)})})}), FloatLiteral({}, {1})});
  h = b.Call("mul", {b.Call("mul", {h, e}), FloatLiteral({}, {0.5})});
  VarPtr y = b.Call("add", {b.Call("add", {Weight({8}, "b2"), b.Call("matmul", {h, Weight({32, 8}, "w2")})}), x});
  const ir::Attrs last{{"axes", Ints{-1}}, {"keepdims", true}};
  VarPtr mean = b.Call("reduce_mean", {y}, last);
  VarPtr d1 = b.Call("sub", {y, mean}), d2 = b.Call("sub", {y, mean});
  VarPtr var = b.Call("reduce_mean", {b.Call("pow", {d2, FloatLiteral({}, {2})})}, last);
  VarPtr n = b.Call("div", {d1, b.Call("sqrt", {b.Call("add", {var, FloatLiteral({}, {1e-12})})})});
  b.Return({b.Call("add", {b.Call("mul", {n, Weight({8}, "g")}), Weight({8}, "beta")})});
  const std::string flags = ", transpose_a=false, transpose_b=false)\n";
  EXPECT_EQ(Body(Normalise(b.Module())), "  %0: f32[1, 4, 32] = matmul(%x, @w0" + flags +
                                             "  %1: f32[1, 4, 32] = add(%0, @w1)\n"
                                             "  %2: f32[1, 4, 32] = gelu(%1, approximate=\"none\")\n"
                                             "  %3: f32[1, 4, 8] = matmul(%2, @w2" +
                                             flags +
                                             "  %4: f32[1, 4, 8] = add(%3, @w3)\n"
                                             "  %5: f32[1, 4, 8] = add(%4, %x)\n"
                                             "  %6: f32[1, 4, 8] = layer_norm(%5, @w4, @w5, axis=2, epsilon=1e-12)\n"
                                             "  return %6\n");
}

// New weights: the same structure. Weights that happen to be equal: the same structure as ones that are not.
TEST(NormalisePipelineTest, WeightValuesDoNotMatter) {
  auto net = [](const std::string& a, const std::string& c) {
    FunctionBuilder b;
    VarPtr x = b.Param("x", F32({1, 8, 6, 6}));
    VarPtr y = b.Call("conv", {x, Weight({8, 8, 1, 1}, a)});
    y = BatchNorm(b, y, 8, a);
    y = b.Call("mul", {y, Weight({8, 1, 1}, a)});
    y = b.Call("add", {y, Weight({8, 1, 1}, c)});
    b.Return({y});
    return ir::StructuralHash(Normalise(b.Module()));
  };
  EXPECT_EQ(net("a", "b"), net("c", "d"));
  EXPECT_EQ(net("a", "b"), net("a", "a"));
}

// Normalising what is normalised changes nothing (lifting aside, which refuses a second time).
TEST(NormalisePipelineTest, SecondRunIsRefused) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 6}));
  b.Return({BatchNorm(b, x, 8, "bn")});
  ir::IRModule module = Normalise(b.Module());
  EXPECT_EQ(BuildNormalisePipeline(module.config()).Run(module).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(NormalisePipelineTest, OpenSymbolsAreNamed) {
  FunctionBuilder b;
  VarPtr x = b.Param("pixels", F32({Dim::Symbol("2*batch"), 3, 8, 8}));
  b.Return({b.Call("relu", {x})});
  EXPECT_THAT(
      BuildNormalisePipeline(target::CompilationConfig::Default()).Run(b.Module()).status(),
      ir::testing::IsInvalid("the input %pixels: f32[2*batch, 3, 8, 8] has the symbolic extent '2*batch'; fix it, as "
                             "in --shape batch=1, or use executor vm, which compiles it as it is"));
  target::CompilationConfig vm = target::CompilationConfig::Default();
  vm.executor.kind = target::ExecutorKind::kVm;
  EXPECT_TRUE(BuildNormalisePipeline(vm).Run(b.Module()).ok());
}

}  // namespace
}  // namespace inlay::passes
