#include "core/backends/onednn/lowering.h"

#include "core/backend/backend.h"
#include "core/backend/testing/cases.h"
#include "core/backends/onednn/cost.h"
#include "core/backends/onednn/layouts.h"
#include "gtest/gtest.h"

namespace inlay::onednn {
namespace {

using backend::testing::Case;

const Case& Find(const std::string& name) {
  static const auto* const kCases = new std::vector<Case>(backend::testing::AllCases());
  for (const Case& c : *kCases) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no case " << name;
  return kCases->front();
}

// "conv+bias[relu] conv+bias[add relu]"
std::string Summary(const Description& d) {
  std::string text;
  for (const Step& step : d.steps) {
    text += (text.empty() ? "" : " ") + step.op;
    if (step.args.size() == 3) text += "+bias";
    std::string post_ops;
    for (const PostOp& post_op : step.post_ops) post_ops += (post_ops.empty() ? "" : " ") + post_op.op;
    if (!post_ops.empty()) text += "[" + post_ops + "]";
  }
  return text;
}

std::string SummaryOf(const std::string& name) {
  auto lowered = Lower(Find(name).function);
  return lowered.ok() ? Summary(lowered->description) : lowered.status().ToString();
}

TEST(Lowering, FusesElementwiseOperatorsIntoContractions) {
  EXPECT_EQ(SummaryOf("conv_relu"), "conv+bias[relu]");
  EXPECT_EQ(SummaryOf("conv_swish_by_hand"), "conv+bias[swish]");
  EXPECT_EQ(SummaryOf("conv_hard_swish"), "conv+bias[hardswish]");
  EXPECT_EQ(SummaryOf("conv_scale_shift"), "conv[mul add relu]");
  EXPECT_EQ(SummaryOf("conv_scalars"), "conv+bias[linear linear linear]");
  EXPECT_EQ(SummaryOf("matmul_bias_gelu_none"), "matmul+bias[gelu_erf]");
  EXPECT_EQ(SummaryOf("matmul_bias_residual"), "matmul+bias[add]");
}

// An argument of a post-op must be there before the step runs: the addition goes into the later convolution.
TEST(Lowering, FusesAnAdditionIntoTheLaterMaker) {
  EXPECT_EQ(SummaryOf("residual_block"), "conv+bias[relu] conv+bias[add relu]");
  EXPECT_EQ(SummaryOf("downsample_block"), "conv+bias[relu] conv+bias[relu] conv+bias conv+bias[add relu]");
}

// With channels that come last it is vector code, alone and below AVX-512 it is not.
TEST(Cost, ALonePoolingIsScalar) {
  backend::testing::CaseBuilder b;
  auto x = b.In({1, 288, 35, 35});
  auto y = b.Op(
      "avg_pool", {x},
      {{"kernel", backend::testing::CaseBuilder::Shape{3, 3}}, {"pads", backend::testing::CaseBuilder::Shape(4, 1)}});
  std::vector<ir::Operand> results = {y};
  const Case alone = b.Done("alone", results);
  auto micros = [&](const std::string& cpu) {
    return EstimateMicros(*Lower(alone.function), *target::Target::Parse("llvm -mcpu=" + cpu)->Completed());
  };
  EXPECT_GT(micros("x86-64-v3"), 2000);
  EXPECT_LT(micros("x86-64-v4"), 200);
}

// Zen 3 took 88 us for the first and 2.7 ms for the second: 41 and 86 GFLOP/s.
TEST(Cost, FewChannelsLeaveMostOfThePeak) {
  auto gflops = [](int64_t channels) {
    backend::testing::CaseBuilder b;
    auto y = b.Op("conv", {b.In({1, channels, 4096}), b.In({channels, channels, 7})},
                  {{"pads", backend::testing::CaseBuilder::Shape{3, 3}}});
    std::vector<ir::Operand> results = {y};
    const Case alone = b.Done("alone", results);
    const auto lowered = Lower(alone.function);
    return lowered->flops / 1e3 / EstimateMicros(*lowered, *target::Target::Parse("llvm -mcpu=x86-64-v3")->Completed());
  };
  EXPECT_NEAR(gflops(8), 41, 8);
  EXPECT_NEAR(gflops(64), 70, 10);
}

// ">0 >3 0>": parameters and results.
std::string PreferredBy(const std::string& name) {
  const backend::ChannelsLast preferred = PrefersChannelsLast(Find(name).function);
  std::string text;
  for (int64_t i : preferred.params) text += (text.empty() ? ">" : " >") + std::to_string(i);
  for (int64_t i : preferred.results) text += (text.empty() ? "" : " ") + std::to_string(i) + ">";
  return text;
}

TEST(Layouts, AreTheConvolutionsAndWhatHangsOnThem) {
  EXPECT_EQ(PreferredBy("residual_block"), ">0 0>");
  EXPECT_EQ(PreferredBy("two_results"), ">0 0> 1>");
  EXPECT_EQ(PreferredBy("conv_depthwise"), ">0 0>");
  EXPECT_EQ(PreferredBy("global_mean"), ">0") << "one pixel has no layout";
  EXPECT_EQ(PreferredBy("conv_3x3"), "0>") << "stems read planes";
}

TEST(Layouts, OfMatricesAreRowMajor) { EXPECT_EQ(PreferredBy("matmul_bias_residual"), ""); }

// A value that is a result, or used twice, stays as it was made.
TEST(Lowering, LeavesSharedValuesAlone) {
  EXPECT_EQ(SummaryOf("two_results"), "conv+bias[relu] conv+bias");
  EXPECT_EQ(SummaryOf("shared_values"), "conv+bias eltwise binary[add]");
}

// Only what the generated kernels can broadcast.
TEST(Lowering, LeavesSlowBroadcastsAlone) {
  EXPECT_EQ(SummaryOf("matmul_column_scale"), "matmul binary");
  EXPECT_EQ(SummaryOf("squeeze_excite_1"),
            "conv+bias[swish] avg_pool_exclude conv+bias[swish] conv+bias[logistic] binary conv+bias[add]");
}

TEST(Lowering, CountsFlops) {
  auto lowered = Lower(Find("matmul_2d").function);
  ASSERT_TRUE(lowered.ok());
  EXPECT_EQ(lowered->flops, 2.0 * 37 * 53 * 29);
}

TEST(Lowering, RefusesWithTheReason) {
  auto status = Lower(Find("erf").function).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("no primitive for operator 'erf'"), absl::string_view::npos) << status;
  status = Lower(Find("softmax_middle").function).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  status = Lower(Find("add_both_broadcast").function).status();
  EXPECT_NE(status.message().find("broadcasting of both"), absl::string_view::npos) << status;
}

TEST(Lowering, RefusesWhatIsNoPartition) {
  ir::Function function = Find("conv_relu").function;
  function.attrs.Erase(backend::kConstantParams);
  EXPECT_EQ(Lower(function).status().code(), absl::StatusCode::kInvalidArgument);
  function.attrs.Set(backend::kConstantParams, std::vector<int64_t>{9});
  EXPECT_EQ(Lower(function).status().code(), absl::StatusCode::kInvalidArgument);
  function = Find("conv_relu").function;
  function.body.results = {function.params[0]};
  EXPECT_EQ(Lower(function).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace inlay::onednn
