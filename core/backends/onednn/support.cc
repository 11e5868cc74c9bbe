#include "core/backends/onednn/support.h"

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/backends/common/partition_function.h"
#include "core/ir/literal.h"

namespace inlay::onednn {
namespace {

using ir::Binding;
using ir::TensorType;

constexpr int kMaxRank = 8;

absl::Status Refuse(absl::string_view reason) { return absl::UnimplementedError(reason); }

const TensorType& Arg(const Binding& call, int i) { return call.args[i].tensor_type(); }
const TensorType& Out(const Binding& call) { return call.var->type.tensor(); }

absl::Status CheckEltwise(const Binding& call) {
  PostOp post_op;
  if (!AsEltwise(call, &post_op)) return Refuse("attributes that its eltwise primitive can't express");
  return absl::OkStatus();
}

// The primitive wants its first argument to have the result's shape. A number less a tensor is no primitive's business:
// it is linear in the tensor.
absl::Status CheckBinary(const Binding& call) {
  if (call.callee == "sub" && ir::SplatDouble(call.args[0]).has_value() && Arg(call, 1).dims == Out(call).dims) {
    return absl::OkStatus();
  }
  if (Arg(call, 0).dims == Out(call).dims) return absl::OkStatus();
  const bool commutes = call.callee != "sub" && call.callee != "div";
  if (commutes && Arg(call, 1).dims == Out(call).dims) return absl::OkStatus();
  return Refuse("broadcasting of both arguments");
}

constexpr char kOnlyReference[] = ": oneDNN has no kernel for it but a reference one";

// Groups of whole vectors in and out, or at most half a vector of input channels: the generated kernel counts on a
// row's left border being no wider than its tile of 3 pixels (AVX2; not asked of AVX-512).
absl::Status CheckBorders(const Binding& call) {
  constexpr int64_t kWidest = 3;
  const Dims& pads = call.attrs.Ints("pads");
  const int64_t left = pads[pads.size() / 2 - 1];
  if (left <= kWidest) return absl::OkStatus();
  return Refuse(absl::StrCat("a convolution of ", Arg(call, 1).dims[1].value(), " input channels and a border of ",
                             left, kOnlyReference));
}

// The generated kernels of oneDNN 3.2 (asked for some 500,000 shapes, AVX2 and AVX-512) take groups of 9 input channels
// and more, or whole vectors of 8; and depthwise images whose dilated windows are small. Anything else grouped goes to
// its reference kernel, or to a matrix product a group and image: 10 to 80 times as long as native code.
absl::Status CheckConv(const Binding& call) {
  const int64_t groups = call.attrs.IntOr("groups", 1);
  const Dims weights = Arg(call, 1).Shape();
  const Dims dilations = call.attrs.IntsOr("dilations", {}), strides = call.attrs.IntsOr("strides", {});
  const int64_t in = weights[1], out = weights[0] / groups;
  constexpr int64_t kVector = 8;
  if (groups == 1) return in > kVector / 2 ? absl::OkStatus() : CheckBorders(call);
  if (in > 1 || out > 1) {
    if (in > kVector) return absl::OkStatus();
    if (in == kVector && out % kVector == 0) return CheckBorders(call);
    return Refuse(
        absl::StrCat("a convolution in groups of ", in, " input and ", out, " output channels", kOnlyReference));
  }
  if (weights.size() != 4) return Refuse(absl::StrCat("a depthwise convolution of other than images", kOnlyReference));
  constexpr int64_t kLongestDilated = 9, kLongestStride = 2;
  for (size_t i = 0; i < dilations.size(); ++i) {
    if (dilations[i] == 1) continue;
    if ((weights[2 + i] - 1) * dilations[i] + 1 <= kLongestDilated && strides[i] <= kLongestStride) continue;
    return Refuse(absl::StrCat("a depthwise convolution dilated by ", dilations[i], kOnlyReference));
  }
  return absl::OkStatus();
}

absl::Status CheckConvTranspose(const Binding& call) {
  if (call.attrs.IntOr("groups", 1) > 1) {
    return Refuse(absl::StrCat("a transposed convolution in groups", kOnlyReference));
  }
  const auto& pads = call.attrs.Ints("pads");
  const auto extra = call.attrs.IntsOr("output_padding", std::vector<int64_t>(pads.size() / 2, 0));
  for (size_t i = 0; i < extra.size(); ++i) {
    if (extra[i] > pads[i + extra.size()]) return Refuse("output_padding larger than the end pads");
  }
  return absl::OkStatus();
}

// ONNX counts padding that was asked for but not what ceil_mode adds; oneDNN knows all or nothing.
absl::Status CheckAvgPool(const Binding& call) {
  if (call.attrs.Bool("ceil_mode") && call.attrs.Bool("count_include_pad")) {
    return Refuse("ceil_mode together with count_include_pad");
  }
  for (int64_t dilation : call.attrs.Ints("dilations")) {
    if (dilation != 1) return Refuse("a dilated average");
  }
  return absl::OkStatus();
}

// Along other axes oneDNN 3.2 has its reference kernel only.
absl::Status CheckSoftmax(const Binding& call) {
  if (call.attrs.Int("axis") != Arg(call, 0).rank() - 1) return Refuse("a softmax along other than the last axis");
  return absl::OkStatus();
}

// The same.
absl::Status CheckMaxPool(const Binding& call) {
  for (int64_t dilation : call.attrs.Ints("dilations")) {
    if (dilation != 1) return Refuse("a dilated pooling");
  }
  return absl::OkStatus();
}

absl::Status CheckReduceMean(const Binding& call) {
  const TensorType& x = Arg(call, 0);
  const auto& axes = call.attrs.Ints("axes");
  if (x.rank() < 3 || x.rank() > 5) return Refuse("a mean of other than images");
  if (static_cast<int>(axes.size()) != x.rank() - 2) return Refuse("a mean over other than all spatial axes");
  for (int i = 0; i < static_cast<int>(axes.size()); ++i) {
    if (axes[i] != i + 2) return Refuse("a mean over other than all spatial axes");
  }
  return absl::OkStatus();
}

absl::Status CheckLayerNorm(const Binding& call) {
  const TensorType& x = Arg(call, 0);
  int64_t elements = 1;
  for (int i = static_cast<int>(call.attrs.Int("axis")); i < x.rank(); ++i) elements *= x.dims[i].value();
  for (int i = 1; i <= 2; ++i) {
    if (Arg(call, i).NumElements() != elements) return Refuse("a scale or bias that is broadcast");
  }
  return absl::OkStatus();
}

absl::Status CheckBatchNorm(const Binding& call) {
  return Arg(call, 0).rank() > 5 ? Refuse("rank above 5") : absl::OkStatus();
}

absl::Status CheckReshape(const Binding& call) {
  return call.args[0].is_var() ? absl::OkStatus() : Refuse("a reshape of a constant");
}

using Check = std::function<absl::Status(const Binding&)>;

const std::map<std::string, Check, std::less<>>& Checks() {
  static const auto* const kChecks = [] {
    auto* checks = new std::map<std::string, Check, std::less<>>;
    const Check any = [](const Binding&) { return absl::OkStatus(); };
    for (const char* op : {"matmul", "concat"}) checks->emplace(op, any);
    checks->emplace("conv", CheckConv);
    for (const char* op : {"relu", "leaky_relu", "elu", "gelu", "silu", "softplus", "hard_sigmoid", "clip", "sigmoid",
                           "tanh", "exp", "log", "sqrt", "abs", "neg"}) {
      checks->emplace(op, CheckEltwise);
    }
    for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum"}) checks->emplace(op, CheckBinary);
    checks->emplace("conv_transpose", CheckConvTranspose);
    checks->emplace("avg_pool", CheckAvgPool);
    checks->emplace("reduce_mean", CheckReduceMean);
    checks->emplace("layer_norm", CheckLayerNorm);
    checks->emplace("batch_norm", CheckBatchNorm);
    checks->emplace("reshape", CheckReshape);
    checks->emplace("softmax", CheckSoftmax);
    checks->emplace("log_softmax", CheckSoftmax);
    checks->emplace("max_pool", CheckMaxPool);
    return checks;
  }();
  return *kChecks;
}

bool AsClip(const Binding& call, PostOp* post_op) {
  if (call.attrs.Has("min") && call.attrs.Has("max")) {
    *post_op = {"clip", static_cast<float>(call.attrs.Float("min")), static_cast<float>(call.attrs.Float("max")), {}};
    return std::isfinite(post_op->alpha) && std::isfinite(post_op->beta) && post_op->alpha <= post_op->beta;
  }
  // One bound alone: an infinite argument would be cut to the largest finite number by a clip, but not by relu.
  *post_op = {"relu", 0, 0, {}};
  return call.attrs.Has("min") && !call.attrs.Has("max") && call.attrs.Float("min") == 0;
}

}  // namespace

absl::Status CheckCall(const Binding& call) {
  if (call.kind != Binding::Kind::kCall) return Refuse("only calls of operators are supported");
  auto found = Checks().find(call.callee);
  if (found == Checks().end()) return Refuse(absl::StrCat("no primitive for operator '", call.callee, "'"));
  if (!call.var->type.is_tensor()) return Refuse("several results");
  for (const ir::Operand& arg : call.args) {
    if (absl::Status status = backends::CheckF32Tensor(arg.tensor_type(), kMaxRank); !status.ok()) return status;
  }
  if (absl::Status status = backends::CheckF32Tensor(Out(call), kMaxRank); !status.ok()) return status;
  return found->second(call);
}

bool AsEltwise(const Binding& call, PostOp* post_op) {
  static const auto* const kPlain = new std::map<std::string, PostOp, std::less<>>{
      {"relu", {"relu", 0, 0, {}}},        {"silu", {"swish", 1, 0, {}}}, {"softplus", {"soft_relu", 1, 0, {}}},
      {"sigmoid", {"logistic", 0, 0, {}}}, {"tanh", {"tanh", 0, 0, {}}},  {"exp", {"exp", 0, 0, {}}},
      {"log", {"log", 0, 0, {}}},          {"sqrt", {"sqrt", 0, 0, {}}},  {"abs", {"abs", 0, 0, {}}},
      {"neg", {"linear", -1, 0, {}}}};
  auto found = kPlain->find(call.callee);
  if (found != kPlain->end()) {
    *post_op = found->second;
    return true;
  }
  auto attr = [&](const char* name) { return static_cast<float>(call.attrs.Float(name)); };
  if (call.callee == "leaky_relu") {
    *post_op = {"relu", attr("alpha"), 0, {}};
  } else if (call.callee == "elu") {
    *post_op = {"elu", attr("alpha"), 0, {}};
  } else if (call.callee == "hard_sigmoid") {
    *post_op = {"hardsigmoid", attr("alpha"), attr("beta"), {}};
  } else if (call.callee == "gelu") {
    *post_op = {call.attrs.String("approximate") == "tanh" ? "gelu_tanh" : "gelu_erf", 0, 0, {}};
  } else {
    return call.callee == "clip" && AsClip(call, post_op);
  }
  return true;
}

std::string BinaryName(absl::string_view op) {
  if (op == "maximum") return "max";
  if (op == "minimum") return "min";
  return op == "add" || op == "sub" || op == "mul" || op == "div" ? std::string(op) : "";
}

}  // namespace inlay::onednn
