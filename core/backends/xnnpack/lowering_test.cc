#include "core/backends/xnnpack/lowering.h"

#include "core/backend/backend.h"
#include "core/backend/testing/cases.h"
#include "core/backends/xnnpack/cost.h"
#include "core/backends/xnnpack/layouts.h"
#include "core/backends/xnnpack/support.h"
#include "gtest/gtest.h"

namespace inlay::xnnpack {
namespace {

using backend::testing::Case;
using backend::testing::CaseBuilder;
using Shape = std::vector<int64_t>;

const Case& Find(const std::string& name) {
  static const auto* const kCases = new std::vector<Case>(backend::testing::AllCases());
  for (const Case& c : *kCases) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no case " << name;
  return kCases->front();
}

// "transpose conv+bias[clamp] multiply transpose"
std::string SummaryOf(const Case& c) {
  auto lowered = Lower(c.function);
  if (!lowered.ok()) return lowered.status().ToString();
  std::string text;
  for (const Step& step : lowered->description.steps) {
    text += (text.empty() ? "" : " ") + (step.algorithm.empty() ? step.op : step.algorithm);
    if (step.args.size() == 3) text += "+bias";
    if (step.clamp.has_min || step.clamp.has_max) text += "[clamp]";
  }
  return text;
}
std::string SummaryOf(const std::string& name) { return SummaryOf(Find(name)); }

TEST(Lowering, FusesBiasesAndClamps) {
  EXPECT_EQ(SummaryOf("conv_relu"), "transpose conv+bias[clamp] transpose");
  EXPECT_EQ(SummaryOf("conv_clip"), "transpose conv+bias[clamp] transpose");
  EXPECT_EQ(SummaryOf("matmul_bias_residual"), "fully_connected+bias add");
  EXPECT_EQ(SummaryOf("residual_block"), "transpose conv+bias[clamp] conv+bias add[clamp] transpose");
  EXPECT_EQ(SummaryOf("conv_hard_swish"), "transpose conv+bias hardswish transpose");
}

// The channels stay last between the borders, also through a concatenation; a flat vector has no layout.
TEST(Lowering, TransposesAtBordersOnly) {
  EXPECT_EQ(SummaryOf("fire_module"),
            "transpose conv+bias[clamp] conv+bias[clamp] conv+bias[clamp] concat conv+bias[clamp] transpose");
  EXPECT_EQ(SummaryOf("classifier"),
            "transpose conv+bias[clamp] max_pool conv+bias global_avg_pool fully_connected+bias");
  EXPECT_EQ(
      SummaryOf("squeeze_excite_1"),
      "transpose conv+bias sigmoid multiply global_avg_pool conv+bias sigmoid multiply conv+bias sigmoid multiply "
      "conv+bias transpose add transpose");
}

Case Granted(Case c) {
  const backend::ChannelsLast preferred = PrefersChannelsLast(c.function);
  c.function.attrs.Set(backend::kChannelsLastParams, preferred.params);
  c.function.attrs.Set(backend::kChannelsLastResults, preferred.results);
  return c;
}

TEST(Lowering, TransposesNothingWhereItsNeighboursHaveTheChannelsLastToo) {
  EXPECT_EQ(SummaryOf(Granted(Find("residual_block"))), "conv+bias[clamp] conv+bias add[clamp]");
  EXPECT_EQ(SummaryOf(Granted(Find("fire_module"))),
            "conv+bias[clamp] conv+bias[clamp] conv+bias[clamp] concat conv+bias[clamp]");
  EXPECT_EQ(SummaryOf(Granted(Find("two_results"))), "conv+bias[clamp] conv+bias");
  const backend::ChannelsLast of_matmul = PrefersChannelsLast(Find("matmul_bias_residual").function);
  EXPECT_TRUE(of_matmul.params.empty() && of_matmul.results.empty());
}

// A value that is a result, or used twice, stays as it was made.
TEST(Lowering, LeavesSharedValuesAlone) {
  EXPECT_EQ(SummaryOf("two_results"), "transpose conv+bias[clamp] conv+bias transpose transpose");
}

// XNNPACK's vectors read beyond the end: a caller's tensor is copied first where its rows are not whole vectors.
TEST(Lowering, CopiesArgumentsThatWouldBeReadBeyondTheirEnd) {
  for (int64_t columns : {8, 9}) {
    CaseBuilder b;
    auto y = b.Op("matmul", {b.In({3, 5}), b.Weight({5, columns})});
    const Case c = b.Done("sum", {b.Op("mul", {y, b.In({3, columns})})});
    EXPECT_EQ(SummaryOf(c), columns == 8 ? "fully_connected multiply" : "fully_connected transpose multiply");
  }
  // A convolution of one channel to one is depthwise.
  CaseBuilder b;
  auto x = b.In({1, 1, 8, 8});
  EXPECT_EQ(SummaryOf(b.Done("conv", {b.Op("conv", {x, b.Weight({1, 1, 1, 1})})})), "transpose conv");
}

// No two values that live at once share memory, and each has room to be read beyond its end.
TEST(Lowering, PlansTheWorkspace) {
  for (const Case& c : backend::testing::AllCases()) {
    auto lowered = Lower(c.function);
    if (!lowered.ok()) continue;
    const Description& d = lowered->description;
    auto last_use = [&](int value) {
      int last = -1;
      for (size_t i = 0; i < d.steps.size(); ++i) {
        for (int arg : d.steps[i].args) last = arg == value ? static_cast<int>(i) : last;
      }
      return last;
    };
    for (size_t i = 0; i < d.steps.size(); ++i) {
      const Value& made = d.values[d.steps[i].out];
      if (made.offset < 0) continue;
      EXPECT_LE(made.offset + BytesWithExtra(made), d.workspace_bytes) << c.name;
      for (size_t j = 0; j < i; ++j) {
        const Value& before = d.values[d.steps[j].out];
        if (before.offset < 0 || last_use(d.steps[j].out) < static_cast<int>(i)) continue;
        EXPECT_TRUE(made.offset + BytesWithExtra(made) <= before.offset ||
                    before.offset + BytesWithExtra(before) <= made.offset)
            << c.name << ": steps " << j << " and " << i;
      }
    }
  }
}

// Made once, at load, but a result is the caller's memory.
TEST(Cost, ResultsOfWeightsAloneAreCopied) {
  CaseBuilder b;
  const Case c = b.Done("product", {b.Op("matmul", {b.Weight({4096, 3}), b.Weight({3, 256})})});
  const double bytes = 4096 * 256 * sizeof(float);
  EXPECT_EQ(SummaryOf(c), "fully_connected transpose");
  EXPECT_GT(EstimateMicros(*Lower(c.function), *target::Target::Parse("llvm -mcpu=x86-64-v3")->Completed()),
            bytes / 50e3);
}

TEST(Lowering, RefusesWithAReason) {
  auto message = [](const Case& c) { return std::string(Lower(c.function).status().message()); };
  EXPECT_NE(message(Find("conv_variable_weights")).find("weights that change from call to call"), std::string::npos);
  EXPECT_NE(message(Find("matmul_variable")).find("weights that change from call to call"), std::string::npos);
  EXPECT_NE(message(Find("conv_3d")).find("one or two spatial axes"), std::string::npos);
  EXPECT_NE(message(Find("avg_pool_include")).find("an average that counts its padding"), std::string::npos);
  EXPECT_NE(message(Find("tanh")).find("no operator for 'tanh'"), std::string::npos);
  CaseBuilder b;
  auto y = b.Op("max_pool", {b.In({1, 4, 9, 9})},
                {{"kernel", Shape{3, 3}}, {"dilations", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}});
  EXPECT_NE(message(b.Done("pool", {y})).find("both padded and dilated"), std::string::npos);
  CaseBuilder deep;
  auto z = deep.Op("conv", {deep.In({1, 8, 9, 9}), deep.Weight({8, 1, 7, 7})}, {{"groups", int64_t{8}}});
  EXPECT_NE(message(deep.Done("depthwise", {z})).find("more than 25 taps"), std::string::npos);
}

}  // namespace
}  // namespace inlay::xnnpack
