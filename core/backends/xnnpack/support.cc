#include "core/backends/xnnpack/support.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backends/common/partition_function.h"

namespace inlay::xnnpack {
namespace {

using ir::Binding;
using ir::TensorType;

constexpr int kMaxRank = 6;       // XNN_MAX_TENSOR_DIMS
constexpr int64_t kMaxTaps = 25;  // of its depthwise kernels
constexpr int64_t kNoTaps = 1;    // it calls pools of one pixel meaningless

absl::Status Refuse(absl::string_view reason) { return absl::UnimplementedError(reason); }

const TensorType& Arg(const Binding& call, int i) { return call.args[i].tensor_type(); }

absl::Status CheckConv(const Binding& call) {
  Step step;
  if (!FillWindows(call, &step)) return Refuse("a convolution over other than one or two spatial axes");
  // Its depthwise kernels end there; beyond, each channel would be a matrix product of its own.
  if (step.groups == step.channels && step.groups > 1 && step.kernel[0] * step.kernel[1] > kMaxTaps) {
    return Refuse(absl::StrCat("a depthwise convolution of more than ", kMaxTaps, " taps"));
  }
  return absl::OkStatus();
}

absl::Status CheckConvTranspose(const Binding& call) {
  Step step;
  if (!FillWindows(call, &step)) return Refuse("a convolution over other than one or two spatial axes");
  for (int i : {0, 1}) {
    if (step.adjustment[i] >= step.strides[i]) return Refuse("output_padding as large as the stride");
  }
  return absl::OkStatus();
}

absl::Status CheckMatmul(const Binding& call) {
  if (call.attrs.Bool("transpose_a")) return Refuse("a transposed first argument");
  const TensorType& b = Arg(call, 1);
  for (int i = 0; i + 2 < b.rank(); ++i) {
    if (b.dims[i].value() != 1) return Refuse("a batch of second arguments");
  }
  return absl::OkStatus();
}

// Each window must hold a pixel: padding is done by repeating border pixels (max) or by counting (average).
absl::Status CheckPool(const Binding& call) {
  Step step;
  if (!FillWindows(call, &step)) return Refuse("a pooling over other than one or two spatial axes");
  if (step.kernel[0] * step.kernel[1] <= kNoTaps) return Refuse("a pooling of one pixel");
  const bool padded = std::any_of(step.pads.begin(), step.pads.end(), [](int64_t pad) { return pad > 0; });
  const bool dilated = step.dilations != Dims{1, 1};
  if (padded && dilated) return Refuse("a pooling both padded and dilated");
  if (dilated && call.callee == "avg_pool") return Refuse("a dilated average");
  if (padded && call.callee == "avg_pool" && call.attrs.Bool("count_include_pad")) {
    return Refuse("an average that counts its padding");
  }
  if (step.pads[0] >= step.kernel[0] || step.pads[2] >= step.kernel[0] || step.pads[1] >= step.kernel[1] ||
      step.pads[3] >= step.kernel[1]) {
    return Refuse("padding as large as the window");
  }
  return absl::OkStatus();
}

absl::Status CheckReduceMean(const Binding& call) {
  const TensorType& x = Arg(call, 0);
  Dims axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  if (x.rank() < 3 || x.rank() > 4 || call.attrs.Ints("axes") != axes) {
    return Refuse("a mean over other than the pixels of images");
  }
  return absl::OkStatus();
}

absl::Status CheckSoftmax(const Binding& call) {
  const int64_t axis = call.attrs.Int("axis");
  const int rank = Arg(call, 0).rank();
  if (axis != rank - 1 && !(axis == 1 && rank <= 4))
    return Refuse("a softmax along other than the last axis or the channels");
  return absl::OkStatus();
}

absl::Status CheckClamp(const Binding& call) {
  Clamp clamp;
  return AsClamp(call, &clamp) ? absl::OkStatus() : Refuse("a clip of no extent");
}

absl::Status CheckAlpha(const Binding& call) {
  const float alpha = static_cast<float>(call.attrs.Float("alpha"));
  if (!std::isnormal(alpha) || alpha < 0) return Refuse("an alpha that is not positive and normal");
  return absl::OkStatus();
}

absl::Status CheckReshape(const Binding& call) {
  return call.args[0].is_var() ? absl::OkStatus() : Refuse("a reshape of a constant");
}

using Check = std::function<absl::Status(const Binding&)>;

const std::map<std::string, Check, std::less<>>& Checks() {
  static const auto* const kChecks = [] {
    auto* checks = new std::map<std::string, Check, std::less<>>;
    const Check any = [](const Binding&) { return absl::OkStatus(); };
    for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "sigmoid", "silu", "abs", "neg", "sqrt",
                           "floor", "ceil", "round", "hard_sigmoid", "concat"}) {
      checks->emplace(op, any);
    }
    for (const char* op : {"relu", "clip"}) checks->emplace(op, CheckClamp);
    for (const char* op : {"leaky_relu", "elu"}) checks->emplace(op, CheckAlpha);
    for (const char* op : {"max_pool", "avg_pool"}) checks->emplace(op, CheckPool);
    checks->emplace("conv", CheckConv);
    checks->emplace("conv_transpose", CheckConvTranspose);
    checks->emplace("matmul", CheckMatmul);
    checks->emplace("reduce_mean", CheckReduceMean);
    checks->emplace("softmax", CheckSoftmax);
    checks->emplace("reshape", CheckReshape);
    return checks;
  }();
  return *kChecks;
}

}  // namespace

absl::Status CheckCall(const Binding& call) {
  if (call.kind != Binding::Kind::kCall) return Refuse("only calls of operators are supported");
  auto found = Checks().find(call.callee);
  if (found == Checks().end()) return Refuse(absl::StrCat("XNNPACK has no operator for '", call.callee, "'"));
  if (!call.var->type.is_tensor()) return Refuse("several results");
  for (const ir::Operand& arg : call.args) {
    if (absl::Status s = backends::CheckF32Tensor(arg.tensor_type(), kMaxRank); !s.ok()) return s;
  }
  if (absl::Status s = backends::CheckF32Tensor(call.var->type.tensor(), kMaxRank); !s.ok()) return s;
  return found->second(call);
}

bool AsClamp(const Binding& call, Clamp* clamp) {
  *clamp = {};
  if (call.callee == "relu") {
    clamp->has_min = true;
    return true;
  }
  if (call.callee != "clip") return false;
  clamp->has_min = call.attrs.Has("min");
  clamp->has_max = call.attrs.Has("max");
  if (clamp->has_min) clamp->min = static_cast<float>(call.attrs.Float("min"));
  if (clamp->has_max) clamp->max = static_cast<float>(call.attrs.Float("max"));
  const bool finite = std::isfinite(clamp->min) && std::isfinite(clamp->max);
  return finite && !(clamp->has_min && clamp->has_max && clamp->min >= clamp->max);
}

std::string BinaryName(absl::string_view op) {
  static const auto* const kNames = new std::map<std::string, std::string, std::less<>>{
      {"add", "add"},    {"sub", "subtract"},    {"mul", "multiply"},
      {"div", "divide"}, {"maximum", "maximum"}, {"minimum", "minimum"}};
  auto found = kNames->find(op);
  return found == kNames->end() ? "" : found->second;
}

std::string UnaryName(absl::string_view op) {
  static const auto* const kNames = new std::map<std::string, std::string, std::less<>>{{"sigmoid", "sigmoid"},
                                                                                        {"abs", "abs"},
                                                                                        {"neg", "negate"},
                                                                                        {"sqrt", "square_root"},
                                                                                        {"floor", "floor"},
                                                                                        {"ceil", "ceiling"},
                                                                                        {"round", "bankers_rounding"},
                                                                                        {"leaky_relu", "leaky_relu"},
                                                                                        {"elu", "elu"}};
  auto found = kNames->find(op);
  return found == kNames->end() ? "" : found->second;
}

bool FillWindows(const Binding& call, Step* step) {
  const Dims x = call.args[0].tensor_type().Shape(), y = call.var->type.tensor().Shape();
  if (x.size() != 3 && x.size() != 4) return false;
  // One spatial axis is an image of one row.
  auto two = [](Dims dims, int64_t fill) {
    if (dims.size() == 1) dims.insert(dims.begin(), fill);
    return dims;
  };
  const bool conv = call.callee == "conv" || call.callee == "conv_transpose";
  step->batch = x[0];
  step->channels = x[1];
  step->height = x.size() == 4 ? x[2] : 1;
  step->width = x.back();
  step->out_channels = y[1];
  step->out_height = y.size() == 4 ? y[2] : 1;
  step->out_width = y.back();
  step->groups = conv ? call.attrs.Int("groups") : 1;
  const Dims weights = conv ? call.args[1].tensor_type().Shape() : Dims();
  step->kernel = two(conv ? Dims(weights.begin() + 2, weights.end()) : call.attrs.Ints("kernel"), 1);
  step->strides = two(call.attrs.Ints("strides"), 1);
  step->dilations = two(call.attrs.Ints("dilations"), 1);
  step->adjustment = two(call.attrs.IntsOr("output_padding", Dims(x.size() - 2, 0)), 0);
  const Dims& pads = call.attrs.Ints("pads");
  const Dims begins = two(Dims(pads.begin(), pads.begin() + pads.size() / 2), 0);
  Dims ends = two(Dims(pads.begin() + pads.size() / 2, pads.end()), 0);
  if (!conv) {  // ceil_mode: the padding that its last window needs
    const Dims in = {step->height, step->width}, out = {step->out_height, step->out_width};
    for (int i : {0, 1}) {
      const int64_t extent = (step->kernel[i] - 1) * step->dilations[i] + 1;
      ends[i] = std::max(ends[i], (out[i] - 1) * step->strides[i] + extent - in[i] - begins[i]);
    }
  }
  step->pads = {begins[0], ends[1], ends[0], begins[1]};
  return true;
}

}  // namespace inlay::xnnpack
