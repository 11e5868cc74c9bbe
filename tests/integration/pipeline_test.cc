// The whole compiler in one process: module -> Executable -> loaded with the JIT -> results, with the real backends,
// and what a second compile finds in the cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/pipeline_fixture.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

using PipelineTest = PipelineFixture;

TEST_F(PipelineTest, CompilesAndRunsAsTheReference) {
  for (auto [m, k, n] : {std::tuple(1, 1, 1), std::tuple(3, 7, 13), std::tuple(16, 64, 33)}) {
    auto result = Compile(Mlp(m, k, n, 0.01f));
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<float> x = Ramp(m * k, 0.05f);
    std::vector<float> y = Run(result->executable, x, m * n), expected = MlpReference(x, m, k, n, 0.01f);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-5) << m << "x" << k << "x" << n << " " << i;
  }
}

TEST_F(PipelineTest, SecondCompileRunsNothingAndNewWeightsHitEverything) {
  auto first = Compile(Mlp(4, 8, 16, 0.01f));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT(first->report.actions_run(), 0);
  auto second = Compile(Mlp(4, 8, 16, 0.01f));
  EXPECT_EQ(second->report.actions_run(), 0);
  EXPECT_EQ(second->executable_digest, first->executable_digest);
  auto retrained = Compile(Mlp(4, 8, 16, 0.02f));
  EXPECT_EQ(retrained->report.actions_run(), 0) << retrained->report.DebugString();
  EXPECT_NE(retrained->executable_digest, first->executable_digest);
  std::vector<float> x = Ramp(32, 0.05f), expected = MlpReference(x, 4, 8, 16, 0.02f);
  std::vector<float> y = Run(retrained->executable, x, 64);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-5);
}

TEST_F(PipelineTest, PlanIsKeptRepeatedByWhoPinsItAndRenewedOnRequest) {
  proto::IRModule module = Mlp(4, 8, 16, 0.01f);
  auto first = Compile(module);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->report.plan_source(), "search");
  auto second = Compile(Mlp(4, 8, 16, 0.02f));  // new weights, the same plan
  EXPECT_EQ(second->report.plan_source(), "plan cache");
  EXPECT_EQ(second->report.cover().SerializeAsString(), first->report.cover().SerializeAsString());
  module.mutable_config()->mutable_search()->set_replan(true);
  EXPECT_EQ(Compile(module)->report.plan_source(), "search");

  module = Mlp(4, 8, 16, 0.01f);
  *module.mutable_config()->mutable_search()->mutable_pinned() = first->report.cover();
  auto pinned = Compile(module);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned->report.plan_source(), "pinned");
  EXPECT_EQ(pinned->executable_digest, first->executable_digest);
  module = Mlp(4, 8, 17, 0.01f);
  *module.mutable_config()->mutable_search()->mutable_pinned() = first->report.cover();
  auto other = Compile(module);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("config.search.pinned: the cover was made for another"));
}

TEST_F(PipelineTest, ChangedBackendMissesAndSaysWhy) {
  ASSERT_TRUE(Compile(Mlp(4, 8, 16, 0.01f)).ok());
  workers_->set_version_suffix("+changed");
  auto again = Compile(Mlp(4, 8, 16, 0.01f));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->report.cache_hits(), 0);
  for (const auto& partition : again->report.partitions()) {
    EXPECT_THAT(partition.miss_reason(), HasSubstr("backend_version changed"));
  }
}

TEST_F(PipelineTest, ChangedShapeMissesOnlyWhereItIs) {
  auto first = Compile(Mlp(4, 8, 16, 0.01f));
  auto other = Compile(Mlp(4, 9, 16, 0.01f));  // the softmax after it keeps its shape
  ASSERT_TRUE(first.ok() && other.ok());
  for (const auto& partition : other->report.partitions()) {
    const bool has_matmul =
        std::find(partition.ops().begin(), partition.ops().end(), "matmul") != partition.ops().end();
    EXPECT_EQ(partition.cache_hit(), !has_matmul) << partition.DebugString();
    if (has_matmul) {
      EXPECT_THAT(partition.miss_reason(), HasSubstr("new structure"));
    }
  }
}

TEST_F(PipelineTest, MissingWeightIsNamed) {
  proto::IRModule module = Mlp(4, 8, 16, 0.01f);
  module.mutable_constants(0)->set_digest(std::string(32, 'x'));
  module.mutable_constants(0)->set_name("fc.weight");
  auto result = Compile(module);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("'fc.weight'"));
}

TEST_F(PipelineTest, UnknownBackendIsRefusedWithThoseThereAre) {
  proto::IRModule module = Mlp(4, 8, 16, 0.01f);
  module.mutable_config()->mutable_search()->add_backends("cudnn");
  auto result = Compile(module);
  EXPECT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("cudnn"));
}

TEST_F(PipelineTest, CancelledBeforeItBegins) {
  CancelToken token;
  token.Cancel();
  EXPECT_EQ(pipeline_.Compile(Mlp(4, 8, 16, 0.01f), &token, nullptr).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace inlay
