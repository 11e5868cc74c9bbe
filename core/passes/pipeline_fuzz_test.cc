// Whatever FromProto accepts, the pipeline normalises or refuses with a reason: no crash, and no pass that breaks a
// module.
#include "core/ir/fuzz_util.h"
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

TEST(PipelineFuzzTest, MutatedModules) {
  const proto::IRModule seed = ir::ToProto(ir::testing::Seed(2));
  ir::testing::Random random(5);
  int accepted = 0, normalised = 0;
  for (int i = 0; i < 6000; ++i) {
    proto::IRModule mutated = seed;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) ir::testing::Mutate(&mutated, random);
    mutated.clear_config();  // an optimisation level of 0 would test little
    absl::StatusOr<ir::IRModule> module = ir::FromProto(mutated);
    if (!module.ok()) continue;
    ++accepted;
    target::CompilationConfig config = module->config();
    config.executor.kind = target::ExecutorKind::kVm;  // which lets control flow through
    module->set_config(config);
    PassManager manager = BuildNormalisePipeline(config);
    manager.set_verify_each(true);
    absl::StatusOr<ir::IRModule> result = manager.Run(*module);
    if (result.ok()) {
      ++normalised;
      // Types of results are part of the caller's contract.
      const std::vector<Operand>& a = module->functions["main"].body.results;
      const std::vector<Operand>& b = result->functions["main"].body.results;
      ASSERT_EQ(a.size(), b.size());
      for (size_t r = 0; r < a.size(); ++r) ASSERT_EQ(a[r].type(), b[r].type());
      continue;
    }
    // Only what is said to be unsupported: never an error of a pass ("after simplify: ...", INTERNAL).
    if (absl::IsUnimplemented(result.status())) {
      ASSERT_THAT(std::string(result.status().message()), ::testing::HasSubstr("is used in a branch; take its items"));
      continue;
    }
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
    ASSERT_THAT(std::string(result.status().message()), ::testing::HasSubstr("has the symbolic extent"))
        << "iteration " << i << "\n"
        << Print(*module);
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(normalised, accepted / 2);
}

}  // namespace
}  // namespace inlay::passes
