#include "core/backends/native/depthwise_tokens.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/backends/native/channels_last.h"
#include "core/backends/native/depthwise_pattern.h"

namespace inlay::native {
namespace {

using ir::Any;
using ir::Binding;
using ir::IsConstant;
using ir::Op;
using ir::Or;
using ir::PatternPtr;

// A vector of channels; fewer are better off as planes.
constexpr int64_t kMinChannels = 8;
constexpr int kMaxPointwise = 4;  // operators behind the convolution
// Code for each tap is emitted several times.
constexpr int64_t kMaxTaps = 49;

bool Permutes(const Binding& transpose, std::vector<int64_t> (*perm)(int rank)) {
  const int rank = transpose.var->type.tensor().rank();
  return rank >= 3 && transpose.attrs.Ints("perm") == perm(rank);
}
bool MovesChannelsFirst(const Binding& transpose) { return Permutes(transpose, ToFirst); }
bool MovesChannelsLast(const Binding& transpose) { return Permutes(transpose, ToLast); }

// Images and channels stay what they are: only pixels are merged or split.
bool KeepsChannels(const Binding& reshape) {
  const ir::TensorType &from = reshape.args[0].tensor_type(), &to = reshape.var->type.tensor();
  return from.rank() >= 3 && to.rank() >= 3 && from.dims[0] == to.dims[0] && from.dims[1] == to.dims[1];
}

bool IsOnes(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t value) { return value == 1; });
}

}  // namespace

const ir::PatternPtr& DepthwiseTokens() {
  static const auto* pattern = [] {
    PatternPtr first = If(Op("transpose", {Any()}, "to_first"), MovesChannelsFirst);
    PatternPtr image = Or({If(Op("reshape", {first}), KeepsChannels), first});
    PatternPtr conv = Op("conv", {image, IsConstant()}, "conv");
    PatternPtr made = Chain(conv, kMaxPointwise, Activation);
    PatternPtr planes = Or({If(Op("reshape", {made}), KeepsChannels), made});
    return new PatternPtr(If(Op("transpose", {planes}), MovesChannelsLast));
  }();
  return *pattern;
}

absl::Status CheckDepthwiseTokens(const ir::PatternMatch& match) {
  const Binding& conv = *match.Find("conv");
  for (const Binding* binding : match.bindings) {
    const ir::TensorType& type = binding->var->type.tensor();
    if (!type.is_static() || type.dtype != ir::DType::kF32 || type.NumElements() == 0) {
      return absl::UnimplementedError("a depthwise convolution of tokens of anything but f32 and known size");
    }
  }
  const ir::TensorType &image = conv.args[0].tensor_type(), &weights = conv.args[1].tensor_type();
  const int64_t channels = image.rank() == 4 ? image.Shape()[1] : 0;
  if (channels < kMinChannels || weights.Shape()[0] != channels || conv.attrs.IntOr("groups", 1) != channels ||
      weights.NumElements() > kMaxTaps * channels || !IsOnes(conv.attrs.IntsOr("dilations", {}))) {
    return absl::UnimplementedError("a convolution between transposes that is not plainly depthwise");
  }
  return absl::OkStatus();
}

}  // namespace inlay::native
