// The measured search with the real backends, compiled, loaded and run in this process. What a measurement says is then
// changed by the test, where it wants to know who would win if.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/backend/backend.h"
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
    if (action.reference() == 0 && action.subjects(0).name() == "native") {
      repeated_sites += !sites.insert(action.SerializeAsString()).second;
    }
    if (fail_calls > 0 && action.subjects(0).name() == "native") {  // of a site
      --fail_calls;
      return absl::UnavailableError("the measuring process: out of order");
    }
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
      if (libraries_take > 0 && IsOfWholeModels(action)) {
        proto::MeasureResult::Timing* timing = result->mutable_timings(i);
        const auto& libraries = action.subjects(i).libraries();
        const bool native = std::all_of(libraries.begin(), libraries.end(),
                                        [](auto& library) { return library.manifest().backend() == "native"; });
        timing->set_median_us(native ? 100 : 100 * libraries_take);
        timing->set_spread_us(1);
      }
      if (noise > 0) {  // all alike, but for noise
        proto::MeasureResult::Timing* timing = result->mutable_timings(i);
        timing->set_median_us(100 * (1 + std::uniform_real_distribution<>(-noise, noise)(random)));
        timing->set_min_us(timing->median_us());
        timing->set_spread_us(100 * noise);
      }
    }
    for (int i = 0; i < action.subjects_size(); ++i) {
      if (action.subjects(i).name() != unlucky) continue;
      proto::MeasureResult::Timing* timing = result->mutable_timings(i);
      timing->Clear();
      timing->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
      timing->set_message("no memory just now");
    }
    return result;
  }
  std::string device() const override {
    return device_is_slow_backend ? "this process, " + slow_backend : "this process";
  }

  // Their subjects are named in words, those of sites by their backends.
  static bool IsOfWholeModels(const proto::MeasureAction& action) {
    const std::string& name = action.subjects(0).name();
    return name != "native" && name != "onednn" && name.rfind("transition probe", 0) != 0;
  }

  bool device_is_slow_backend = true;
  std::string slow_backend;
  double factor = 1000;
  double noise = 0;
  double libraries_take = 0;  // not 0: of what native code alone takes, in whole models
  std::mt19937 random{1};
  int fail_calls = 0;
  std::string unlucky;  // of that name nobody is measured, for want of memory
  int calls = 0, repeated_sites = 0;
  std::set<std::string> sites;
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
  EXPECT_GT(measurer_.calls, calls) << "the whole models";
  EXPECT_GT(measurer_.sites.size(), 0);
  EXPECT_EQ(measurer_.repeated_sites, 0) << "the cost table has them";
}

TEST_F(MeasuredSearchTest, WhatDecidedATieIsNotMeasuredAgain) {
  measurer_.libraries_take = 0.955;
  proto::IRModule module = Model();
  for (const bool replan : {false, true}) {
    const int calls = measurer_.calls;
    module.mutable_config()->mutable_search()->set_replan(replan);
    auto result = Compile(module);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(BackendOf(result->report, "matmul"), "onednn");
    for (const auto& plan : result->report.plans()) {
      if (!plan.chosen()) continue;
      EXPECT_THAT(plan.note(), HasSubstr("measured 3 more times"));
      EXPECT_THAT(plan.note(), HasSubstr("was ahead each time, by 4.5%"));
    }
    if (replan) {
      EXPECT_EQ(measurer_.calls - calls, 1) << "all plans against each other";
    }
  }
}

TEST_F(MeasuredSearchTest, ATieIsDecidedByWhatEarlierSearchesMeasuredToo) {
  proto::IRModule module = Model();
  for (const double libraries_take : {1.02, 0.955}) {
    measurer_.libraries_take = libraries_take;
    const int calls = measurer_.calls;
    auto result = Compile(module);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(BackendOf(result->report, "matmul"), "native") << "4.5% ahead now, and behind before";
    if (libraries_take < 1) {
      EXPECT_EQ(measurer_.calls - calls, 1) << "nothing more has to be measured";
    }
    module.mutable_config()->mutable_search()->set_replan(true);
  }
}

// A cost table is a cache: what can't be read is measured again.
TEST_F(MeasuredSearchTest, DamagedRowsAreMeasuredAgain) {
  measurer_.libraries_take = 0.955;
  proto::IRModule module = Model();
  auto first = Compile(module);
  ASSERT_TRUE(first.ok()) << first.status();
  module.mutable_config()->mutable_search()->set_replan(true);
  const auto no_protobuf = [](const std::string&) { return std::string("\xff\xff\xff"); };
  const auto a_time_less = [](const std::string& bytes) {
    proto::MeasureResult row;
    if (!row.ParseFromString(bytes) || row.timings_size() < 2) return bytes;
    row.mutable_timings()->RemoveLast();
    return row.SerializeAsString();
  };
  for (const std::function<std::string(const std::string&)>& damage :
       {std::function<std::string(const std::string&)>(no_protobuf), {a_time_less}}) {
    costs_.damage = damage;
    const int calls = measurer_.calls;
    auto result = Compile(module);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(BackendOf(result->report, "matmul"), BackendOf(first->report, "matmul"));
    EXPECT_GE(measurer_.calls - calls, 4) << "the whole models, and three times more for the tie";
  }
}

TEST_F(MeasuredSearchTest, TransitionsAreMeasuredOnceAndKnownToTheAnalyticSearchToo) {
  auto first = Compile(Model());
  ASSERT_TRUE(first.ok()) << first.status();
  const proto::TransitionCosts& costs = first->report.transitions();
  ASSERT_EQ(costs.dispatch_size(), 2);
  for (const auto& dispatch : costs.dispatch()) {
    EXPECT_EQ(dispatch.failed(), "");
    EXPECT_GT(dispatch.us(), 0) << dispatch.backend();
    EXPECT_GT(dispatch.estimated_us(), 0) << dispatch.backend();
  }
  ASSERT_EQ(costs.copies_size(), 4);
  EXPECT_GT(costs.copies(3).us(), costs.copies(0).us()) << "64 MiB and 16 KiB";
  ASSERT_EQ(costs.layouts_size(), 3);
  for (const auto& layout : costs.layouts()) {
    EXPECT_EQ(layout.failed(), "");
    EXPECT_EQ(layout.backend(), "onednn") << "native works in the layout of the model";
    EXPECT_GE(layout.us(), 0);
  }
  const int calls = measurer_.calls;
  auto other = Compile(Model(32));  // another model
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->report.transitions().SerializeAsString(), costs.SerializeAsString());
  proto::IRModule analytic = Model(24);
  analytic.mutable_config()->mutable_search()->set_mode(proto::SearchOptions::ANALYTIC);
  const int before = measurer_.calls;
  EXPECT_GT(before, calls);
  EXPECT_EQ(Compile(analytic)->report.transitions().SerializeAsString(), costs.SerializeAsString());
  EXPECT_EQ(measurer_.calls, before) << "the analytic search measures nothing";
  analytic = Model(20);
  analytic.mutable_config()->mutable_search()->set_mode(proto::SearchOptions::ANALYTIC);
  analytic.mutable_config()->set_num_threads(2);
  EXPECT_EQ(Compile(analytic)->report.transitions().dispatch_size(), 0) << "of two threads nothing is known";
}

TEST_F(MeasuredSearchTest, TheAnalyticModelIsFittedToWhatWasMeasuredAndFinishedPlansStay) {
  auto analytic = [&](int64_t n) {
    proto::IRModule module = Model(n);
    module.mutable_config()->mutable_search()->set_mode(proto::SearchOptions::ANALYTIC);
    return module;
  };
  auto before = Compile(analytic(64));
  ASSERT_TRUE(before.ok()) << before.status();
  measurer_.device_is_slow_backend = false;
  measurer_.slow_backend = "native";
  measurer_.factor = 30;
  for (int64_t n : {48, 80, 96}) {
    auto result = Compile(Model(n));
    ASSERT_TRUE(result.ok()) << result.status();
    for (const auto& candidate : result->report.candidates()) {
      if (!candidate.measured()) continue;
      EXPECT_GT(candidate.unfitted_us(), 0) << candidate.DebugString();
      EXPECT_GT(candidate.estimate_us(), 0) << candidate.DebugString();
    }
  }
  auto same = Compile(analytic(64));
  EXPECT_EQ(same->report.plan_source(), "plan cache") << "what was compiled stays as it was";
  EXPECT_EQ(same->executable_digest, before->executable_digest);
  auto another = Compile(analytic(65));
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_EQ(BackendOf(another->report, "matmul"), "onednn") << "it has learnt that native code is slow here";
  EXPECT_THAT(another->report.partitions(0).why(), HasSubstr("by the analytic model (fitted to "));
  proto::IRModule renewed = analytic(64);
  renewed.mutable_config()->mutable_search()->set_replan(true);
  EXPECT_EQ(BackendOf(Compile(renewed)->report, "matmul"), "onednn") << "unless it is asked to be renewed";
}

TEST_F(MeasuredSearchTest, WithoutBudgetSitesAreEstimatedAndPlansStillTimed) {
  proto::IRModule module = Model();
  module.mutable_config()->mutable_search()->set_budget_s(1e-9);
  auto result = Compile(module);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(measurer_.calls, 1);
  for (const auto& candidate : result->report.candidates()) EXPECT_FALSE(candidate.measured());
}

TEST_F(MeasuredSearchTest, PlansDoNotFlipByNoise) {
  measurer_.noise = 0.05;
  std::string first;
  for (int i = 0; i < 8; ++i) {
    proto::IRModule module = Model();
    module.mutable_config()->mutable_search()->set_replan(true);
    auto result = Compile(module);
    ASSERT_TRUE(result.ok()) << result.status();
    proto::Cover cover = result->report.cover();
    cover.clear_name();
    if (i == 0) first = cover.DebugString();
    EXPECT_EQ(cover.DebugString(), first) << i;
    for (const auto& plan : result->report.plans()) {
      if (!plan.chosen()) continue;
      EXPECT_THAT(plan.note(), HasSubstr("a tie of '")) << "in words, with whom and how it was decided";
      EXPECT_THAT(plan.note(), ::testing::AnyOf(HasSubstr("fewer partitions"), HasSubstr("less of libraries")));
    }
  }
}

TEST_F(MeasuredSearchTest, AMeasurementThatTheMachineFailedIsMadeAgainByTheNextCompile) {
  measurer_.fail_calls = 1;
  auto first = Compile(Model());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->report.notes_size(), 1);
  EXPECT_THAT(first->report.notes(0), HasSubstr("1 measurement failed"));
  EXPECT_THAT(first->report.notes(0), HasSubstr("the measuring process: out of order"));
  int unmeasured = 0;
  for (const auto& candidate : first->report.candidates()) unmeasured += !candidate.measured();
  auto second = Compile(Model());
  EXPECT_EQ(second->report.plan_source(), "search") << "the plan of the first was not kept";
  EXPECT_EQ(second->report.notes_size(), 0);
  for (const auto& candidate : second->report.candidates()) unmeasured -= !candidate.measured();
  EXPECT_GT(unmeasured, 0) << "what the first could not measure, the second did";
  EXPECT_EQ(Compile(Model())->report.plan_source(), "plan cache");
}

TEST_F(MeasuredSearchTest, WhatACandidateIsNotToBlameForIsNotKeptAgainstIt) {
  measurer_.unlucky = "onednn";
  measurer_.slow_backend = "native";
  auto first = Compile(Model());
  ASSERT_TRUE(first.ok()) << first.status();
  int excluded = 0;
  for (const auto& candidate : first->report.candidates()) excluded += candidate.excluded() == "no memory just now";
  EXPECT_GT(excluded, 0);
  measurer_.unlucky = "";
  auto second = Compile(Model());
  EXPECT_EQ(BackendOf(second->report, "matmul"), "onednn");
  for (const auto& candidate : second->report.candidates()) EXPECT_NE(candidate.excluded(), "no memory just now");
}

TEST_F(MeasuredSearchTest, NegativeBudgetIsRefused) {
  proto::IRModule module = Model();
  module.mutable_config()->mutable_search()->set_budget_s(-1);
  EXPECT_EQ(Compile(module).status().code(), absl::StatusCode::kInvalidArgument);
}

// On a CPU without bf16 products all of them compute as in f32.
TEST_F(MeasuredSearchTest, ResultsMayBeOffByWhatTheCodegenTargetPromises) {
  proto::IRModule module = Model();
  proto::Target* rounding = module.mutable_config()->add_targets();
  rounding->set_kind("onednn");
  (*rounding->mutable_attrs())["fpmath"] = "bf16";
  measurer_.slow_backend = "native";
  auto result = Compile(module);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(BackendOf(result->report, "matmul"), "onednn");
  for (const auto& candidate : result->report.candidates()) {
    EXPECT_TRUE(candidate.measured() || candidate.backend() != "onednn") << candidate.DebugString();
  }
  for (const auto& plan : result->report.plans()) EXPECT_EQ(plan.excluded(), "") << plan.DebugString();
  const backend::Backend* onednn = backend::BackendRegistry::Global().Find("onednn");
  EXPECT_EQ(onednn->tolerance({"onednn", {}}).rtol, backend::Tolerance().rtol) << "no more than others without it";
  EXPECT_GT(onednn->tolerance({"onednn", {{"fpmath", "any"}}}).rtol, backend::Tolerance().rtol);
}

class BrokenBackendTest : public MeasuredSearchTest {
 protected:
  BrokenBackendTest() : MeasuredSearchTest(std::make_unique<BrokenOneDnn>(testing::TempDir())) {}
  void ExpectExcluded(const proto::IRModule& module);
};

TEST_F(BrokenBackendTest, WrongResultsExcludeWithTheReason) {
  measurer_.slow_backend = "native";  // speed does not help it
  ExpectExcluded(Model());
}

TEST_F(BrokenBackendTest, MoreToleranceDoesNotHideABug) {
  measurer_.slow_backend = "native";
  proto::IRModule module = Model();
  proto::Target* rounding = module.mutable_config()->add_targets();
  rounding->set_kind("onednn");
  (*rounding->mutable_attrs())["fpmath"] = "bf16";
  ExpectExcluded(module);
}

void BrokenBackendTest::ExpectExcluded(const proto::IRModule& module) {
  auto result = Compile(module);
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
