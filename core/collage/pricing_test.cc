// What calls cost together, through the partitioner: fusion, margins, borders.
#include "core/collage/pricing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/collage/partitioner.h"
#include "core/ir/op_registry.h"

namespace inlay::collage {
namespace {

using ::testing::ElementsAre;

ir::TensorType F32(std::vector<int64_t> shape) { return ir::MakeTensorType(ir::DType::kF32, shape); }

// Takes the operators that it is given, at one price a partition.
class PricedBackend : public backend::Backend {
 public:
  PricedBackend(std::string name, bool fallback, double price, std::vector<std::string> ops)
      : name_(std::move(name)), fallback_(fallback), price_(price) {
    for (const std::string& op : ops) rules_.push_back({name_ + "." + op, ir::Op(op), nullptr, 0});
  }
  std::string name() const override { return name_; }
  absl::Status CheckTarget(const target::Target&, const target::Target&) const override { return absl::OkStatus(); }
  const std::vector<backend::PatternRule>& rules() const override { return rules_; }
  bool fuses_by_kind() const override { return fallback_; }
  bool is_fallback() const override { return fallback_; }
  bool merges_regions() const override { return !fallback_; }
  backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition, const target::Target&) const override {
    return {{0}, {0}};
  }
  double EstimateMicros(const ir::Function&, const target::Target&) const override { return price_; }
  double TransitionMicros(const ir::TensorType& tensor, const target::Target&) const override {
    return !fallback_ && tensor.rank() == 4 ? 20 : 0;
  }

 private:
  const std::string name_;
  const bool fallback_;
  const double price_;
  std::vector<backend::PatternRule> rules_;
};

class PricingTest : public ::testing::Test {
 protected:
  ir::VarPtr Call(const std::string& op, ir::VarPtr x, ir::Attrs attrs = {}) {
    return *builder_.Call(op, {std::move(x)}, std::move(attrs), op + std::to_string(++count_));
  }
  // "backend: op op" of each partition.
  std::vector<std::string> Choose(const PricedBackend& lib, double margin = 1) {
    module_.functions["main"] = function_;
    const auto estimator = AnalyticEstimator(module_.config(), &model_, margin);
    const Partitioner partitioner({&lib, &native_}, estimator.get());
    const auto cover = partitioner.BestByEstimate(partitioner.Propose(module_), module_.config());
    EXPECT_TRUE(cover.ok()) << cover.status();
    estimated_us_ = cover->estimated_us;
    cautious_us_ = cover->cautious_us;
    std::vector<std::string> partitions;
    for (const PartitionInfo& partition : CutAlong(module_, *cover).partitions) {
      std::string text = partition.backend + ":";
      for (const std::string& op : partition.ops) text += " " + op;
      partitions.push_back(text);
    }
    return partitions;
  }

  ir::IRModule module_;
  ir::Function function_;
  ir::Builder builder_{&function_};
  int count_ = 0;
  const CostModel model_;
  const PricedBackend native_{"native", true, 10, ir::OpRegistry::Global().Names()};
  double estimated_us_ = 0, cautious_us_ = 0;
};

// Native code takes 10 for exp, tanh, exp as it does for each of them: taking the middle away gains nothing.
TEST_F(PricingTest, WhatIsFusedIsNotPaidCallByCall) {
  builder_.Return({Call("exp", Call("tanh", Call("exp", builder_.Param("x", F32({8, 8})))))});
  EXPECT_THAT(Choose({"lib", false, 5, {"tanh"}}), ElementsAre("native: exp tanh exp"));
  EXPECT_NEAR(estimated_us_, 10, 1) << "and a call";
}

// A code generator that has a rule for two softmaxes, and one for three, and estimates 4 for each of them alone.
class GeneratorWithARule : public PricedBackend {
 public:
  explicit GeneratorWithARule(double two, double three = 10)
      : PricedBackend("native", true, 4, ir::OpRegistry::Global().Names()),
        two_(two),
        three_(three),
        rules_(PricedBackend::rules()) {
    const ir::PatternPtr pair = ir::Op("log_softmax", {ir::Op("softmax")});
    rules_.push_back({"native.whole", ir::Or({ir::Op("softmax", {pair}), pair}), nullptr, 5});
  }
  const std::vector<backend::PatternRule>& rules() const override { return rules_; }
  bool fuses_by_kind() const override { return true; }
  double EstimateMicros(const ir::Function& partition, const target::Target& target) const override {
    const size_t calls = partition.body.bindings.size();
    return calls == 3 ? three_ : calls == 2 ? two_ : PricedBackend::EstimateMicros(partition, target);
  }

 private:
  const double two_, three_;
  std::vector<backend::PatternRule> rules_;
};

class DearAtItsBorders : public PricedBackend {
 public:
  DearAtItsBorders() : PricedBackend("lib", false, 1, {"softmax"}) {}
  double TransitionMicros(const ir::TensorType&, const target::Target&) const override { return 20; }
};

TEST_F(PricingTest, AWholeRuleIsNotTakenApartByItsOwnBackend) {
  auto x = Call("softmax", builder_.Param("x", F32({8, 8})), {{"axis", int64_t{1}}});
  builder_.Return({Call("log_softmax", x, {{"axis", int64_t{1}}})});
  module_.functions["main"] = function_;
  const auto estimator = AnalyticEstimator(module_.config(), &model_);
  // A library that would take half of it, but for its borders.
  const DearAtItsBorders lib;
  for (double whole : {3.0, 10.0}) {
    const GeneratorWithARule native(whole);
    const Partitioner partitioner({&lib, &native}, estimator.get());
    const auto cover = partitioner.BestByEstimate(partitioner.Propose(module_), module_.config());
    ASSERT_TRUE(cover.ok()) << cover.status();
    EXPECT_EQ(CutAlong(module_, *cover).partitions.size(), 1) << "whole " << whole;
  }
}

// By the estimates two (3) and one (4) were better than three (10), as attention and a transposition of what it gives.
TEST_F(PricingTest, AWholeRuleIsNotTakenApartForASmallerOne) {
  const ir::Attrs axis = {{"axis", int64_t{1}}};
  auto x = Call("log_softmax", Call("softmax", builder_.Param("x", F32({8, 8})), axis), axis);
  builder_.Return({Call("softmax", x, axis)});
  module_.functions["main"] = function_;
  const auto estimator = AnalyticEstimator(module_.config(), &model_);
  const GeneratorWithARule native(3, 10);
  const Partitioner partitioner({&native}, estimator.get());
  const auto cover = partitioner.BestByEstimate(partitioner.Propose(module_), module_.config());
  ASSERT_TRUE(cover.ok()) << cover.status();
  EXPECT_EQ(CutAlong(module_, *cover).partitions.size(), 1);
}

TEST_F(PricingTest, ALibraryHasToWinByTheMargin) {
  builder_.Return({Call("softmax", builder_.Param("x", F32({8, 8})), {{"axis", int64_t{1}}})});
  EXPECT_THAT(Choose({"lib", false, 9, {"softmax"}}), ElementsAre("lib: softmax"));
  EXPECT_THAT(Choose({"lib", false, 9, {"softmax"}}, 1.25), ElementsAre("native: softmax"));
  EXPECT_THAT(Choose({"lib", false, 7, {"softmax"}}, 1.25), ElementsAre("lib: softmax"));
  EXPECT_NEAR(cautious_us_, 1.25 * estimated_us_, 1e-9);
}

// Images change their layout at the library's border (20 in, 20 out), matrices do not.
TEST_F(PricingTest, WhatDoesNotPayForItsBordersIsGivenBackAlone) {
  auto matrix = Call("softmax", builder_.Param("x", F32({8, 8})), {{"axis", int64_t{1}}});
  auto image = Call("log_softmax", builder_.Param("y", F32({1, 1, 8, 8})), {{"axis", int64_t{3}}});
  builder_.Return({matrix, image});
  EXPECT_THAT(Choose({"lib", false, 1, {"softmax", "log_softmax"}}),
              ElementsAre("lib: softmax", "native: log_softmax"));
}

// Two libraries side by side transpose what goes in (20) and what comes out (20), nothing between them.
TEST_F(PricingTest, ABorderThatBothSidesPreferCostsNothing) {
  const PricedBackend other("other", false, 1, {"log_softmax"});
  auto image = Call("softmax", builder_.Param("x", F32({1, 2, 8, 8})), {{"axis", int64_t{3}}});
  builder_.Return({Call("log_softmax", image, {{"axis", int64_t{3}}})});
  module_.functions["main"] = function_;
  const DataflowGraph graph(module_.functions.at("main"));
  const PricedBackend lib("lib", false, 1, {"softmax"});
  const std::vector<Group> groups = {{{0}, &lib, {}, 1}, {{1}, &other, {}, 1}};
  const auto estimator = AnalyticEstimator(module_.config(), &model_);
  EXPECT_EQ(BorderMicros(graph, groups, Borders::kAgreed, *estimator), 40);
  EXPECT_EQ(BorderMicros(graph, groups, Borders::kRowMajor, *estimator), 80) << "each alone";
  EXPECT_EQ(CostWithBorders(graph, groups, *estimator).us, 42);
}

TEST(CostModel, TheMarginIsSmallerWhereEstimatesAreFitted) {
  const CostModel by_hand;
  EXPECT_GT(by_hand.Margin(), 1);
  proto::CostSamples samples;
  for (int i = 0; i < 20; ++i) {
    auto* site = samples.add_sites();
    site->set_key(std::to_string(i));
    site->set_kind("matmul");
    auto* sample = site->add_samples();
    sample->set_backend("lib");
    sample->set_ratio(0.5);
  }
  const CostModel fitted({}, ScaleFit(samples));
  EXPECT_GT(fitted.Margin(), 1);
  EXPECT_LT(fitted.Margin(), by_hand.Margin());
}

}  // namespace
}  // namespace inlay::collage
