#include "core/passes/lift_transform_params.h"

#include <gtest/gtest.h>

#include "core/passes/dead_code.h"

namespace inlay::passes {
namespace {

ir::TensorType F32(std::vector<int64_t> shape) { return ir::MakeTensorType(ir::DType::kF32, shape); }

TEST(LiftTransformParams, MovesWhatDependsOnWeightsAlone) {
  ir::IRModule module;
  ir::Function& main = module.functions["main"];
  ir::Builder builder(&main);
  auto x = builder.Param("x", F32({4, 8}));
  auto w = ir::MakeWeight(F32({8, 8}), Digest::Of("w"));
  auto scale = ir::MakeWeight(F32({8}), Digest::Of("s"));
  auto scaled = *builder.Call("mul", {w, scale});
  auto y = *builder.Call("matmul", {x, scaled});
  builder.Return({*builder.Call("add", {y, ir::MakeScalar(ir::DType::kF32, 1.0)})});
  auto result = LiftTransformParams()->Run(module, module.config());
  ASSERT_TRUE(result.ok());
  const ir::Function& after = result->functions.at("main");
  const ir::Function& transform = result->functions.at("transform_params");
  ASSERT_EQ(transform.body.bindings.size(), 1);
  EXPECT_TRUE(transform.body.bindings[0].IsCall("mul"));
  EXPECT_EQ(after.body.bindings.size(), 2);
  ASSERT_EQ(after.params.size(), 2);
  EXPECT_EQ(after.params[1], scaled);
  EXPECT_EQ(after.attrs.Int("num_lifted_params"), 1);
}

TEST(LiftTransformParams, WeightThatIsUsedAsItIsStaysWhereItIs) {
  ir::IRModule module;
  ir::Builder builder(&module.functions["main"]);
  auto x = builder.Param("x", F32({4, 8}));
  builder.Return({*builder.Call("matmul", {x, ir::MakeWeight(F32({8, 8}), Digest::Of("w"))})});
  auto result = LiftTransformParams()->Run(module, module.config());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->functions.count("transform_params"), 0);
  EXPECT_EQ(result->functions.at("main").params.size(), 1);
}

TEST(DeadCode, RemovesChainsThatNobodyNeeds) {
  ir::IRModule module;
  ir::Builder builder(&module.functions["main"]);
  auto x = builder.Param("x", F32({4}));
  auto unused = *builder.Call("exp", {x});
  (void)*builder.Call("tanh", {unused});
  builder.Return({*builder.Call("relu", {x})});
  auto result = DeadCode()->Run(module, module.config());
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->functions.at("main").body.bindings.size(), 1);
  EXPECT_TRUE(result->functions.at("main").body.bindings[0].IsCall("relu"));
}

}  // namespace
}  // namespace inlay::passes
