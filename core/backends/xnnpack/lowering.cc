#include "core/backends/xnnpack/lowering.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backends/common/partition_function.h"
#include "core/backends/xnnpack/description_json.h"
#include "core/backends/xnnpack/support.h"
#include "core/backends/xnnpack/values.h"
#include "core/backends/xnnpack/workspace.h"
#include "core/base/status_macros.h"
#include "core/ir/pattern.h"

namespace inlay::xnnpack {
namespace {

using ir::Binding;
using ir::Operand;
using ir::VarPtr;

class Lowering {
 public:
  explicit Lowering(const ir::Function& function)
      : function_(function), def_use_(function.body), values_(&lowered_.description, &lowered_.literals) {}

  absl::StatusOr<Lowered> Run() {
    INLAY_RETURN_IF_ERROR(backends::CheckPartitionFunction(function_));
    const auto constants = function_.attrs.Ints(backend::kConstantParams);
    auto layout_of = [&](const char* attr, int index) {
      const auto last = function_.attrs.IntsOr(attr, {});
      return std::count(last.begin(), last.end(), index) > 0 ? Layout::kChannelsLast : Layout::kRowMajor;
    };
    description_.num_inputs = static_cast<int>(function_.params.size());
    description_.num_outputs = static_cast<int>(function_.body.results.size());
    for (int i = 0; i < description_.num_inputs; ++i) {
      values_.AddParam(function_.params[i], std::count(constants.begin(), constants.end(), i) > 0,
                       layout_of(backend::kChannelsLastParams, i));
    }
    for (const Binding& binding : function_.body.bindings) {
      absl::Status status = CheckCall(binding);
      if (status.ok()) status = LowerCall(binding);
      if (!status.ok()) return absl::Status(status.code(), absl::StrCat(ir::Describe(binding), ": ", status.message()));
    }
    for (int i = 0; i < description_.num_outputs; ++i) {
      values_.AddOutput(function_.body.results[i], layout_of(backend::kChannelsLastResults, i), i);
    }
    INLAY_RETURN_IF_ERROR(PlanWorkspace(&description_));
    return std::move(lowered_);
  }

 private:
  absl::Status LowerCall(const Binding& call) {
    Clamp clamp;
    if (call.callee == "reshape") {
      values_.Bind(call.var, values_.Get(call.args[0], Layout::kRowMajor), Layout::kRowMajor);
    } else if (IsGate(call)) {
      gates_.insert(call.var.get());
    } else if (AsClamp(call, &clamp)) {
      LowerClamp(call, clamp);
    } else if (call.callee == "mul" && IsGated(call)) {
      LowerUnary(call, "hardswish", GatedOperand(call));
    } else if (call.callee == "silu") {
      LowerSilu(call);
    } else if (call.callee == "hard_sigmoid") {
      LowerHardSigmoid(call);
    } else if (!UnaryName(call.callee).empty()) {
      LowerUnary(call, UnaryName(call.callee), call.args[0]);
    } else if (!BinaryName(call.callee).empty()) {
      if (!FuseBias(call)) LowerBinary(call);
    } else {
      static const auto* const kLower = new std::map<std::string, absl::Status (Lowering::*)(const Binding&)>{
          {"conv", &Lowering::LowerConv},       {"conv_transpose", &Lowering::LowerConv},
          {"matmul", &Lowering::LowerMatmul},   {"max_pool", &Lowering::LowerPool},
          {"avg_pool", &Lowering::LowerPool},   {"reduce_mean", &Lowering::LowerReduceMean},
          {"softmax", &Lowering::LowerSoftmax}, {"concat", &Lowering::LowerConcat}};
      return (this->*kLower->at(call.callee))(call);  // CheckCall knows no other
    }
    return absl::OkStatus();
  }

  // --- Fusion

  // hard_sigmoid(x) of x*hard_sigmoid(x), as XNNPACK's hardswish has it; nobody else uses it.
  bool IsGate(const Binding& call) const {
    // 1/6 need not be the nearest float.
    if (call.callee != "hard_sigmoid" || std::abs(call.attrs.Float("alpha") - 1.0 / 6) > 1e-6 ||
        call.attrs.Float("beta") != 0.5) {
      return false;
    }
    if (def_use_.NumUses(call.var) != 1 || def_use_.IsResult(call.var)) return false;
    const Binding* user = def_use_.Users(call.var)[0];
    const Operand gate(call.var);
    return user->IsCall("mul") && ((user->args[0] == call.args[0] && user->args[1] == gate) ||
                                   (user->args[1] == call.args[0] && user->args[0] == gate));
  }
  bool IsGated(const Binding& call) const {
    return gates_.count(call.args[0].var.get()) + gates_.count(call.args[1].var.get()) > 0;
  }
  const Operand& GatedOperand(const Binding& call) const {
    return call.args[gates_.count(call.args[0].var.get()) > 0 ? 1 : 0];
  }

  // The step that makes `operand`, which the call at hand alone uses, and which has no clamp yet.
  Step* FusableMaker(const Operand& operand) {
    if (!operand.is_var() || def_use_.NumUses(operand.var) != 1 || def_use_.IsResult(operand.var)) return nullptr;
    auto maker = maker_.find(operand.var.get());
    if (maker == maker_.end()) return nullptr;
    Step& step = description_.steps[maker->second.step];
    return step.clamp.has_min || step.clamp.has_max ? nullptr : &step;
  }

  // The call at hand is part of the step that makes `operand`.
  void Fused(const Binding& call, const Operand& operand) {
    const Maker maker = maker_.at(operand.var.get());
    values_.Bind(call.var, description_.steps[maker.step].out, maker.layout);
    maker_[call.var.get()] = maker;
  }

  void LowerClamp(const Binding& call, const Clamp& clamp) {
    if (Step* maker = FusableMaker(call.args[0])) {
      maker->clamp = clamp;
      return Fused(call, call.args[0]);
    }
    LowerUnary(call, "clamp", call.args[0], clamp);
  }

  // A constant vector, added to the channels of a contraction that has none yet.
  bool FuseBias(const Binding& call) {
    if (call.callee != "add") return false;
    for (int side : {0, 1}) {
      const Operand &x = call.args[side], &other = call.args[1 - side];
      Step* maker = FusableMaker(x);
      if (maker == nullptr || maker->args.size() != 2 || x.tensor_type().dims != call.var->type.tensor().dims) continue;
      const bool matmul = maker->op == "fully_connected";
      if (!matmul && maker->op != "conv" && maker->op != "deconv") continue;
      const Dims out = x.tensor_type().Shape(), dims = AlignRank(other.tensor_type().Shape(), out.size());
      const size_t channel = matmul ? out.size() - 1 : 1;
      if (NumElements(dims) != out[channel] || dims[channel] != out[channel]) continue;
      if (maker->out_channels != out[channel]) continue;
      if (other.is_var() && !IsConstantParam(other)) continue;
      maker->args.push_back(values_.Get(other, Layout::kRowMajor));
      Fused(call, x);
      return true;
    }
    return false;
  }

  bool IsConstantParam(const Operand& operand) {
    for (size_t i = 0; i < function_.params.size(); ++i) {
      if (function_.params[i] == operand.var) return description_.values[i].constant;
    }
    return false;
  }

  // --- Elementwise

  Layout LayoutOf(const Operand& x) const {
    const int rank = x.tensor_type().rank();
    const bool last = (rank == 3 || rank == 4) && x.is_var() && values_.Has(x, Layout::kChannelsLast);
    return last && !values_.Has(x, Layout::kRowMajor) ? Layout::kChannelsLast : Layout::kRowMajor;
  }

  void LowerUnary(const Binding& call, const std::string& algorithm, const Operand& x, const Clamp& clamp = {}) {
    const Layout layout = LayoutOf(x);
    Step step;
    step.op = "unary";
    step.algorithm = algorithm;
    step.clamp = clamp;
    if (call.attrs.Has("alpha") && call.callee != "hard_sigmoid") {
      step.alpha = static_cast<float>(call.attrs.Float("alpha"));
    }
    step.args = {values_.Readable(values_.Get(x, layout), x.tensor_type().NumElements())};
    values_.AddStep(std::move(step), call.var, layout);
  }

  static Step BinaryStep(const std::string& algorithm, int a, Dims a_dims, int b, Dims b_dims) {
    Step step;
    step.op = "binary";
    step.algorithm = algorithm;
    step.args = {a, b};
    step.dims = {std::move(a_dims), std::move(b_dims)};
    return step;
  }

  void LowerSilu(const Binding& call) {
    const Operand& x = call.args[0];
    const Layout layout = LayoutOf(x);
    const Dims flat = {x.tensor_type().NumElements()};
    Step gate;
    gate.op = "unary";
    gate.algorithm = "sigmoid";
    gate.args = {values_.Readable(values_.Get(x, layout), flat[0])};
    const int source = gate.args[0], gated = values_.AddStep(std::move(gate), flat[0]);
    AddBinary(call, BinaryStep("multiply", source, flat, gated, flat), layout);
  }

  // clamp(alpha x + beta, 0, 1)
  void LowerHardSigmoid(const Binding& call) {
    const Operand& x = call.args[0];
    const Layout layout = LayoutOf(x);
    const Dims flat = {x.tensor_type().NumElements()}, one = {1};
    const int source = values_.Readable(values_.Get(x, layout), flat[0]);
    const int alpha = values_.AddScalar(static_cast<float>(call.attrs.Float("alpha")));
    const int beta = values_.AddScalar(static_cast<float>(call.attrs.Float("beta")));
    const int scaled = values_.AddStep(BinaryStep("multiply", source, flat, alpha, one), flat[0]);
    Step sum = BinaryStep("add", scaled, flat, beta, one);
    sum.clamp = {true, true, 0, 1};
    values_.AddStep(std::move(sum), call.var, layout);
  }

  void LowerBinary(const Binding& call) {
    const Dims out = call.var->type.tensor().Shape();
    Layout layout = Layout::kRowMajor;
    for (const Operand& arg : call.args) {
      if (arg.tensor_type().Shape() == out && LayoutOf(arg) == Layout::kChannelsLast) layout = Layout::kChannelsLast;
    }
    std::vector<int> ids;
    std::vector<Dims> dims;
    for (const Operand& arg : call.args) {
      const Dims aligned = AlignRank(arg.tensor_type().Shape(), out.size());
      dims.push_back(InOrder(aligned, layout));
      ids.push_back(values_.Readable(values_.Get(arg, layout, aligned), dims.back().empty() ? 1 : dims.back().back()));
    }
    AddBinary(call, BinaryStep(BinaryName(call.callee), ids[0], dims[0], ids[1], dims[1]), layout);
  }

  void AddBinary(const Binding& call, Step step, Layout layout) {
    const bool clamps = step.algorithm != "maximum" && step.algorithm != "minimum";
    AddMaker(call, std::move(step), layout, clamps);
  }

  void AddMaker(const Binding& call, Step step, Layout layout, bool clamps = true) {
    values_.AddStep(std::move(step), call.var, layout);
    if (clamps) maker_[call.var.get()] = {static_cast<int>(description_.steps.size()) - 1, layout};
  }

  // --- Contractions, pools

  absl::Status CheckWeights(const Step& step) const {
    for (size_t i = 1; i < step.args.size(); ++i) {
      if (!values_.IsConstant(step.args[i])) {
        return absl::UnimplementedError("weights that change from call to call: XNNPACK packs them once");
      }
    }
    return absl::OkStatus();
  }

  absl::Status LowerConv(const Binding& call) {
    Step step;
    FillWindows(call, &step);
    const bool forward = call.callee == "conv";
    step.op = forward ? "conv" : "deconv";
    step.args = {values_.Get(call.args[0], Layout::kChannelsLast)};
    // Depthwise kernels read by whole vectors, those of matrix products do not; one channel to one is depthwise too.
    const bool one_channel = step.channels == 1 && step.out_channels == 1;
    if (step.groups > 1 || one_channel) step.args[0] = values_.Readable(step.args[0], step.channels);
    for (size_t i = 1; i < call.args.size(); ++i) step.args.push_back(values_.Get(call.args[i], Layout::kRowMajor));
    INLAY_RETURN_IF_ERROR(CheckWeights(step));
    const double taps = static_cast<double>(step.kernel[0] * step.kernel[1]) * step.channels / step.groups;
    const double pixels =
        static_cast<double>(step.batch) * (forward ? step.out_height * step.out_width : step.height * step.width);
    lowered_.flops += 2 * taps * pixels * step.out_channels;
    AddMaker(call, std::move(step), Layout::kChannelsLast);
    return absl::OkStatus();
  }

  absl::Status LowerMatmul(const Binding& call) {
    const Dims a = call.args[0].tensor_type().Shape(), b = call.args[1].tensor_type().Shape();
    const bool transposed = call.attrs.Bool("transpose_b");
    Step step;
    step.op = "fully_connected";
    step.args = {values_.Get(call.args[0], Layout::kRowMajor), values_.Get(call.args[1], Layout::kRowMajor)};
    INLAY_RETURN_IF_ERROR(CheckWeights(step));
    step.channels = a.back();
    step.rows = NumElements(a) / a.back();
    step.out_channels = b.size() == 1 ? 1 : transposed ? b[b.size() - 2] : b.back();
    step.transposed_weights = b.size() > 1 && !transposed;
    lowered_.flops += 2.0 * step.rows * step.channels * step.out_channels;
    AddMaker(call, std::move(step), Layout::kRowMajor);
    return absl::OkStatus();
  }

  int GetPixels(const Binding& call, int64_t channels) {
    return values_.Readable(values_.Get(call.args[0], Layout::kChannelsLast), channels);
  }

  absl::Status LowerPool(const Binding& call) {
    Step step;
    FillWindows(call, &step);
    step.op = call.callee;
    step.args = {GetPixels(call, step.channels)};
    AddMaker(call, std::move(step), Layout::kChannelsLast);
    return absl::OkStatus();
  }

  absl::Status LowerReduceMean(const Binding& call) {
    const Dims x = call.args[0].tensor_type().Shape();
    Step step;
    step.op = "global_avg_pool";
    step.batch = x[0];
    step.channels = step.out_channels = x[1];
    step.height = x.size() == 4 ? x[2] : 1;
    step.width = x.back();
    step.args = {GetPixels(call, step.channels)};
    AddMaker(call, std::move(step), Layout::kRowMajor);  // one pixel an image: both layouts
    return absl::OkStatus();
  }

  absl::Status LowerSoftmax(const Binding& call) {
    const Operand& x = call.args[0];
    const Dims dims = x.tensor_type().Shape();
    const size_t axis = call.attrs.Int("axis");
    const Layout layout = axis + 1 == dims.size() ? Layout::kRowMajor : Layout::kChannelsLast;
    Step step;
    step.op = "softmax";
    step.channels = dims[axis];
    step.rows = NumElements(dims) / step.channels;
    step.args = {values_.Readable(values_.Get(x, layout), step.channels)};
    values_.AddStep(std::move(step), call.var, layout);
    return absl::OkStatus();
  }

  absl::Status LowerConcat(const Binding& call) {
    const size_t axis = call.attrs.Int("axis");
    bool last = false;
    for (const Operand& arg : call.args) last |= axis == 1 && LayoutOf(arg) == Layout::kChannelsLast;
    const Layout layout = last ? Layout::kChannelsLast : Layout::kRowMajor;
    Step step;
    step.op = "concat";
    for (const Operand& arg : call.args) {
      const Dims dims = arg.tensor_type().Shape();
      int64_t part = dims[axis];
      if (!last) part = NumElements(Dims(dims.begin() + axis, dims.end()));
      step.rows = NumElements(dims) / part;
      step.parts.push_back(part);
      step.args.push_back(values_.Get(arg, layout));
    }
    values_.AddStep(std::move(step), call.var, layout);
    return absl::OkStatus();
  }

  const ir::Function& function_;
  ir::DefUse def_use_;
  Lowered lowered_;
  Description& description_ = lowered_.description;
  ValueTable values_;
  std::set<const ir::Var*> gates_;
  struct Maker {
    int step;
    Layout layout;
  };
  std::unordered_map<const ir::Var*, Maker> maker_;  // of what a clamp or bias can be fused to
};

}  // namespace

absl::StatusOr<Lowered> Lower(const ir::Function& partition) { return Lowering(partition).Run(); }

std::string Serialize(const Lowered& lowered) {
  std::string bytes = nlohmann::json(lowered.description).dump();
  bytes.push_back('\0');
  bytes.resize((bytes.size() + kLiteralAlignment - 1) / kLiteralAlignment * kLiteralAlignment);
  return bytes + lowered.literals;
}

}  // namespace inlay::xnnpack
