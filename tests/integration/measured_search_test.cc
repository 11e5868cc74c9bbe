// The measured search with the real backends, compiled, loaded and run in this process. What a measurement says is then
// changed by the test, where it wants to know who would win if.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler/measurer.h"
#include "server/measuring/measure_action.h"
#include "tests/integration/pipeline_fixture.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

// Measures here; times of whatever has code of `slow_backend` are then multiplied.
class InProcessMeasurer : public compiler::Measurer {
 public:
  absl::StatusOr<proto::MeasureResult> Measure(const proto::MeasureAction& action, CancelToken* token) override {
    ++calls;
    proto::MeasureAction brief = action;
    brief.set_budget_ms(std::min(action.budget_ms(), 20.0));
    brief.set_min_rounds(2);
    auto result = server::RunMeasureAction(brief, nullptr);
    if (!result.ok()) return result;
    for (int i = 0; i < action.subjects_size(); ++i) {
      for (const proto::StaticLibrary& library : action.subjects(i).libraries()) {
        if (library.manifest().backend() != slow_backend) continue;
        proto::MeasureResult::Timing* timing = result->mutable_timings(i);
        timing->set_min_us(timing->min_us() * factor);
        timing->set_median_us(timing->median_us() * factor);
        break;
      }
    }
    return result;
  }
  std::string device() const override { return "this process, " + slow_backend; }

  std::string slow_backend;
  double factor = 1000;
  int calls = 0;
};

// A library whose code generator has a bug: its relu is a tanh.
class BrokenOneDnn : public compiler::InProcessCompiler {
 public:
  using InProcessCompiler::InProcessCompiler;
  absl::StatusOr<proto::StaticLibrary> Compile(const proto::CompileAction& action, CancelToken* token) override {
    if (action.backend() != "onednn") return InProcessCompiler::Compile(action, token);
    proto::CompileAction broken = action;
    for (auto& [name, function] : *broken.mutable_module()->mutable_functions()) {
      for (proto::Binding& binding : *function.mutable_body()->mutable_bindings()) {
        if (binding.call().op() == "relu") binding.mutable_call()->set_op("tanh");
      }
    }
    return InProcessCompiler::Compile(broken, token);
  }
};

class MeasuredSearchTest : public PipelineFixture {
 protected:
  explicit MeasuredSearchTest(std::unique_ptr<compiler::InProcessCompiler> workers = nullptr)
      : PipelineFixture(std::move(workers), &measurer_) {}

  proto::IRModule Model(int64_t n = 48) {
    proto::IRModule module = Mlp(16, 64, n, 0.01f);
    module.mutable_config()->mutable_search()->set_mode(proto::SearchOptions::MEASURED);
    module.mutable_config()->set_num_threads(1);
    for (const char* name : {"native", "onednn"}) module.mutable_config()->mutable_search()->add_backends(name);
    return module;
  }

  static std::string BackendOf(const proto::CompileReport& report, const std::string& op) {
    for (const auto& partition : report.partitions()) {
      if (std::find(partition.ops().begin(), partition.ops().end(), op) != partition.ops().end()) {
        return partition.backend();
      }
    }
    return "none";
  }

  InProcessMeasurer measurer_;
};

TEST_F(MeasuredSearchTest, TheFastestWinsAndSlowingItDownFlipsTheChoice) {
  for (auto [slow, winner] : {std::pair("native", "onednn"), std::pair("onednn", "native")}) {
    measurer_.slow_backend = slow;
    auto result = Compile(Model());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(BackendOf(result->report, "matmul"), winner);
    int chosen = 0;
    for (const auto& plan : result->report.plans()) {
      chosen += plan.chosen();
      EXPECT_TRUE(plan.excluded().empty()) << plan.DebugString();
      EXPECT_GT(plan.measured_us(), 0) << plan.DebugString();
    }
    EXPECT_EQ(chosen, 1);
    std::vector<float> x = Ramp(16 * 64, 0.05f), expected = MlpReference(x, 16, 64, 48, 0.01f);
    std::vector<float> y = Run(result->executable, x, 16 * 48);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-5);
  }
}

TEST_F(MeasuredSearchTest, WhatWasMeasuredIsNotMeasuredAgain) {
  auto first = Compile(Model());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT(first->report.actions_run(), 0);
  const int calls = measurer_.calls;
  auto second = Compile(Model());
  EXPECT_EQ(second->report.plan_source(), "plan cache");
  EXPECT_EQ(measurer_.calls, calls);
  EXPECT_EQ(second->report.actions_run(), 0);
  proto::IRModule again = Model();
  again.mutable_config()->mutable_search()->set_replan(true);
  auto third = Compile(again);
  EXPECT_EQ(measurer_.calls, calls + 1) << "the whole models alone: the cost table has the sites";
  EXPECT_EQ(third->report.actions_run(), 0);
}

TEST_F(MeasuredSearchTest, WithoutBudgetSitesAreEstimatedAndPlansStillTimed) {
  proto::IRModule module = Model();
  module.mutable_config()->mutable_search()->set_budget_s(1e-9);
  auto result = Compile(module);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(measurer_.calls, 1);
  for (const auto& candidate : result->report.candidates()) EXPECT_FALSE(candidate.measured());
}

TEST_F(MeasuredSearchTest, NegativeBudgetIsRefused) {
  proto::IRModule module = Model();
  module.mutable_config()->mutable_search()->set_budget_s(-1);
  EXPECT_EQ(Compile(module).status().code(), absl::StatusCode::kInvalidArgument);
}

class BrokenBackendTest : public MeasuredSearchTest {
 protected:
  BrokenBackendTest() : MeasuredSearchTest(std::make_unique<BrokenOneDnn>(testing::TempDir())) {}
};

TEST_F(BrokenBackendTest, WrongResultsExcludeWithTheReason) {
  measurer_.slow_backend = "native";  // speed does not help it
  auto result = Compile(Model());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(BackendOf(result->report, "relu"), "native");
  int excluded = 0;
  for (const auto& candidate : result->report.candidates()) {
    const bool has_relu = std::find(candidate.ops().begin(), candidate.ops().end(), "relu") != candidate.ops().end();
    if (candidate.backend() != "onednn" || !has_relu) continue;
    EXPECT_THAT(candidate.excluded(), HasSubstr("output")) << candidate.DebugString();
    EXPECT_FALSE(candidate.chosen());
    ++excluded;
  }
  EXPECT_GT(excluded, 0);
}

}  // namespace
}  // namespace inlay
