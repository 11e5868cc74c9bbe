#include "core/backends/native/depthwise_pattern.h"

#include <optional>
#include <vector>

#include "core/backends/native/conv_shape.h"
#include "core/backends/native/cpu_features.h"
#include "core/backends/native/depthwise_block_plan.h"

namespace inlay::native {
namespace {

using ir::Any;
using ir::Binding;
using ir::IsConstant;
using ir::Op;
using ir::OpOf;
using ir::Or;
using ir::PatternPtr;

constexpr int kMaxPointwise = 4;  // operators between the two

PatternPtr OneMore(const PatternPtr& x) {
  return Or({Activation(x), OpOf({"add", "mul", "sub", "div", "maximum", "minimum"}, {x, IsConstant()}),
             OpOf({"add", "mul", "maximum", "minimum"}, {IsConstant(), x})});
}

bool IsImageOfFloats(const ir::TensorType& type) {
  return type.rank() == 4 && type.is_static() && type.dtype == ir::DType::kF32 && type.NumElements() > 0;
}

ConvShape ShapeOf(const Binding& conv) {
  std::vector<int64_t> out = conv.var->type.tensor().Shape();
  out.erase(out.begin());
  return ConvShapeOf(conv.attrs, conv.args[0].tensor_type().Shape(), conv.args[1].tensor_type().Shape(), out, false);
}

}  // namespace

ir::PatternPtr Activation(const ir::PatternPtr& x) {
  return OpOf({"relu", "clip", "silu", "sigmoid", "hard_sigmoid", "tanh", "gelu", "elu", "leaky_relu", "softplus"},
              {x});
}

const ir::PatternPtr& DepthwiseBlock() {
  static const auto* pattern = [] {
    // Both with constant weights, which are packed at load.
    PatternPtr expand = Op("conv", {Any(), IsConstant()}, "expand");
    // Gates, as hard_swish is: mul(x, hard_sigmoid(x)).
    PatternPtr gate = Chain(expand, kMaxPointwise, OneMore);
    PatternPtr expanded = Or({Op("mul", {expand, gate}), Op("mul", {gate, expand}), gate});
    return new PatternPtr(Op("conv", {expanded, IsConstant()}, "depthwise"));
  }();
  return *pattern;
}

absl::Status CheckDepthwiseBlock(const ir::PatternMatch& match, const target::Target& target) {
  const Binding &expand = *match.Find("expand"), &depthwise = *match.Find("depthwise");
  const ir::TensorType& x = expand.args[0].tensor_type();
  bool images = IsImageOfFloats(x) && IsImageOfFloats(depthwise.var->type.tensor());
  for (const Binding* binding : match.bindings) {
    images &= binding == &depthwise || binding->var->type == expand.var->type;
  }
  if (!images) return absl::UnimplementedError("a depthwise block of anything but images of f32 and known size");
  if (!PlanDepthwiseBlock(FeaturesOf(target).core, ShapeOf(expand), ShapeOf(depthwise))) {
    return absl::UnimplementedError(
        "no pointwise convolution before a depthwise one, or the image between them is so small that nothing is "
        "gained");
  }
  return absl::OkStatus();
}

}  // namespace inlay::native
