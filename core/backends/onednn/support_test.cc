#include "core/backends/onednn/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/ir/ir_module.h"

namespace inlay::onednn {
namespace {

using ::testing::HasSubstr;

using Shape = std::vector<int64_t>;

ir::TensorType F32(const Shape& shape) { return ir::MakeTensorType(ir::DType::kF32, shape); }

// Of a call of `op` on images of 14 x 14 (or of as many axes as the weights say).
absl::Status Check(const std::string& op, int64_t channels, const Shape& weights, int64_t groups, int64_t dilation = 1,
                   int64_t stride = 1) {
  ir::Function function;
  ir::Builder builder(&function);
  const size_t axes = weights.size() - 2;
  Shape input = {1, channels};
  input.resize(weights.size(), 14);
  ir::Attrs attrs{{"groups", groups}};
  attrs.Set("pads", Shape(2 * axes, dilation * (weights[2] / 2)));
  attrs.Set("strides", Shape(axes, stride));
  attrs.Set("dilations", Shape(axes, dilation));
  auto call = builder.Call(op, {builder.Param("x", F32(input)), ir::MakeWeight(F32(weights), Digest::Of("w"))},
                           std::move(attrs), "y");
  if (!call.ok()) return call.status();
  return CheckCall(function.body.bindings.back());
}

void ExpectRefused(const absl::Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << what;
  EXPECT_EQ(status.message(), what + ": oneDNN has no kernel for it but a reference one");
}

TEST(Support, ConvolutionsThatItHasKernelsFor) {
  EXPECT_EQ(Check("conv", 3, {17, 3, 3, 3}, 1), absl::OkStatus());
  EXPECT_EQ(Check("conv", 1, {1, 1, 3}, 1), absl::OkStatus());
  EXPECT_EQ(Check("conv", 64, {64, 16, 3, 3}, 4), absl::OkStatus());
  EXPECT_EQ(Check("conv", 36, {8, 9, 3, 3}, 4), absl::OkStatus()) << "whatever the number of output channels";
  EXPECT_EQ(Check("conv", 32, {64, 8, 3, 3}, 4), absl::OkStatus());
  EXPECT_EQ(Check("conv", 33, {33, 1, 3, 3}, 33), absl::OkStatus()) << "depthwise";
  EXPECT_EQ(Check("conv", 32, {32, 1, 7, 7}, 32, 1, 2), absl::OkStatus());
  EXPECT_EQ(Check("conv", 32, {32, 1, 5, 5}, 32, 2), absl::OkStatus());
  EXPECT_EQ(Check("conv", 3, {64, 3, 7, 7}, 1), absl::OkStatus());
  EXPECT_EQ(Check("conv", 5, {8, 5, 11}, 1), absl::OkStatus());
  EXPECT_EQ(Check("conv", 1, {8, 1, 3, 3}, 1, 3), absl::OkStatus());
  EXPECT_EQ(Check("conv_transpose", 16, {16, 8, 3, 3}, 1), absl::OkStatus());
}

TEST(Support, WideBordersOfFewChannelsAreRefused) {
  ExpectRefused(Check("conv", 4, {8, 4, 11}, 1), "a convolution of 4 input channels and a border of 5");
  ExpectRefused(Check("conv", 1, {64, 1, 9, 9}, 1), "a convolution of 1 input channels and a border of 4");
  ExpectRefused(Check("conv", 3, {8, 3, 3, 3}, 1, 4), "a convolution of 3 input channels and a border of 4");
  ExpectRefused(Check("conv", 32, {64, 8, 9, 9}, 4), "a convolution of 8 input channels and a border of 4");
}

TEST(Support, GroupedConvolutionsThatItHasNoneForAreRefused) {
  ExpectRefused(Check("conv", 64, {128, 1, 7, 7}, 64, 1, 2),
                "a convolution in groups of 1 input and 2 output channels");
  ExpectRefused(Check("conv", 16, {16, 4, 3, 3}, 4), "a convolution in groups of 4 input and 4 output channels");
  ExpectRefused(Check("conv", 32, {12, 8, 3, 3}, 4), "a convolution in groups of 8 input and 3 output channels");
  ExpectRefused(Check("conv", 32, {32, 1, 3}, 32), "a depthwise convolution of other than images");
  ExpectRefused(Check("conv", 32, {32, 1, 7, 7}, 32, 2), "a depthwise convolution dilated by 2");
  ExpectRefused(Check("conv_transpose", 16, {16, 8, 3, 3}, 2), "a transposed convolution in groups");
}

}  // namespace
}  // namespace inlay::onednn
