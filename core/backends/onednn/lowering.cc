#include "core/backends/onednn/lowering.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backends/common/partition_function.h"
#include "core/backends/onednn/description_json.h"
#include "core/backends/onednn/support.h"
#include "core/backends/onednn/views.h"
#include "core/backends/onednn/workspace.h"
#include "core/base/status_macros.h"
#include "core/ir/literal.h"
#include "core/ir/pattern.h"

namespace inlay::onednn {
namespace {

using ir::Binding;
using ir::Operand;
using ir::VarPtr;

int64_t NumElements(const Dims& dims) {
  int64_t elements = 1;
  for (int64_t dim : dims) elements *= dim;
  return elements;
}

class Lowering {
 public:
  explicit Lowering(const ir::Function& function) : function_(function), def_use_(function.body) {}

  absl::StatusOr<Lowered> Run() {
    INLAY_RETURN_IF_ERROR(backends::CheckPartitionFunction(function_));
    INLAY_RETURN_IF_ERROR(AddParams());
    for (const Binding& binding : function_.body.bindings) {
      absl::Status status = CheckCall(binding);
      if (!status.ok()) return absl::Status(status.code(), absl::StrCat(ir::Describe(binding), ": ", status.message()));
      LowerCall(binding);
    }
    INLAY_RETURN_IF_ERROR(AddResults());
    description_.workspace_bytes = EstimateWorkspace(description_);
    return std::move(lowered_);
  }

 private:
  absl::Status AddParams() {
    for (const VarPtr& param : function_.params) value_of_[param.get()] = AddValue(param->type.tensor());
    description_.num_inputs = static_cast<int>(function_.params.size());
    for (int64_t i : function_.attrs.Ints(backend::kConstantParams)) description_.values[i].constant = true;
    for (int64_t i : function_.attrs.IntsOr(backend::kChannelsLastParams, {})) {
      if (i < 0 || i >= description_.num_inputs || !IsImage(description_.values[i].dims) ||
          description_.values[i].constant) {
        return absl::InvalidArgumentError(absl::StrCat("channels_last_params names ", i, ", which is no image"));
      }
      description_.channels_last_inputs.push_back(static_cast<int>(i));
    }
    return absl::OkStatus();
  }

  absl::Status AddResults() {
    for (const Operand& result : function_.body.results) {
      const int value = value_of_.at(result.var.get());
      if (value < description_.num_inputs) {
        return absl::InvalidArgumentError("a result that is a parameter of the partition");
      }
      description_.outputs.push_back(value);
    }
    for (int64_t i : function_.attrs.IntsOr(backend::kChannelsLastResults, {})) {
      const bool exists = i >= 0 && i < static_cast<int64_t>(description_.outputs.size());
      const Dims dims = exists ? description_.values[description_.outputs[i]].dims : Dims();
      if (!IsImage(dims) || function_.body.results[i].tensor_type().Shape() != dims) {
        return absl::InvalidArgumentError(absl::StrCat("channels_last_results names ", i, ", which is no image"));
      }
      description_.channels_last_outputs.push_back(static_cast<int>(i));
    }
    return absl::OkStatus();
  }

  void LowerCall(const Binding& call) {
    if (call.callee == "reshape") {
      value_of_[call.var.get()] = value_of_.at(call.args[0].var.get());
      return;
    }
    if (IsGate(call)) {
      gates_.emplace(call.var.get(), call.callee);
      return;
    }
    PostOp post_op;
    if (LowerGated(call)) return;
    if (AsEltwise(call, &post_op)) return LowerEltwise(call, post_op, 1);
    if (!BinaryName(call.callee).empty()) return LowerBinary(call);
    static const auto* const kLower = new std::map<std::string, void (Lowering::*)(const Binding&), std::less<>>{
        {"conv", &Lowering::LowerConv},
        {"conv_transpose", &Lowering::LowerConvTranspose},
        {"matmul", &Lowering::LowerMatmul},
        {"max_pool", &Lowering::LowerPool},
        {"avg_pool", &Lowering::LowerPool},
        {"reduce_mean", &Lowering::LowerReduceMean},
        {"softmax", &Lowering::LowerSoftmax},
        {"log_softmax", &Lowering::LowerSoftmax},
        {"layer_norm", &Lowering::LowerLayerNorm},
        {"batch_norm", &Lowering::LowerBatchNorm},
        {"concat", &Lowering::LowerConcat}};
    (this->*kLower->at(call.callee))(call);  // CheckCall knows no other
  }

  // --- Values and steps

  int AddValue(const ir::TensorType& type) {
    description_.values.push_back({type.Shape()});
    return static_cast<int>(description_.values.size()) - 1;
  }

  int ValueOf(const Operand& operand) {
    if (operand.is_var()) return value_of_.at(operand.var.get());
    auto [found, is_new] = literals_.emplace(operand.constant.get(), 0);
    if (!is_new) return found->second;
    std::string& bytes = lowered_.literals;
    bytes.resize((bytes.size() + kLiteralAlignment - 1) / kLiteralAlignment * kLiteralAlignment);
    found->second = AddValue(operand.constant->type);
    description_.values[found->second].constant = true;
    description_.values[found->second].literal_offset = static_cast<int64_t>(bytes.size());
    bytes += operand.constant->data;
    return found->second;
  }

  View ViewOf(const Operand& operand) { return {ValueOf(operand), operand.tensor_type().Shape(), {}}; }

  Step NewStep(std::string op, const Binding& call) {
    Step step;
    step.op = std::move(op);
    for (const Operand& arg : call.args) step.args.push_back(ViewOf(arg));
    step.out.dims = call.var->type.tensor().Shape();
    return step;
  }

  void AddStep(const Binding& call, Step step) {
    step.out.value = AddValue(call.var->type.tensor());
    value_of_[call.var.get()] = step.out.value;
    maker_[step.out.value] = {static_cast<int>(description_.steps.size()), call.var.get()};
    description_.steps.push_back(std::move(step));
  }

  // --- Fusion

  // x*sigmoid(x) and x*hard_sigmoid(x) whose gate nobody else uses.
  bool IsGate(const Binding& call) const {
    if (call.callee == "hard_sigmoid") {
      // oneDNN's hardswish is alpha and beta of its own; 1/6 need not be the nearest float.
      if (std::abs(call.attrs.Float("alpha") - 1.0 / 6) > 1e-6 || call.attrs.Float("beta") != 0.5) return false;
    } else if (call.callee != "sigmoid") {
      return false;
    }
    if (def_use_.NumUses(call.var) != 1 || def_use_.IsResult(call.var) || !call.args[0].is_var()) return false;
    const Binding* user = def_use_.Users(call.var)[0];
    const Operand gate(call.var);
    return user->IsCall("mul") && ((user->args[0] == call.args[0] && user->args[1] == gate) ||
                                   (user->args[1] == call.args[0] && user->args[0] == gate));
  }

  bool LowerGated(const Binding& call) {
    if (call.callee != "mul") return false;
    for (const Operand& arg : call.args) {
      auto gate = arg.is_var() ? gates_.find(arg.var.get()) : gates_.end();
      if (gate == gates_.end()) continue;
      Binding of_x = call;
      of_x.args = {arg == call.args[0] ? call.args[1] : call.args[0]};
      const bool hard = gate->second == "hard_sigmoid";
      LowerEltwise(of_x, hard ? PostOp{"hardswish", 1.f / 6, 0.5f, {}} : PostOp{"swish", 1, 0, {}}, 2);
      return true;
    }
    return false;
  }

  // The step that makes `operand` and may take a post-op on it: `operand` is used `uses` times, all by the call at
  // hand.
  Step* FusableMaker(const Operand& operand, int uses) {
    if (!operand.is_var()) return nullptr;
    auto maker = maker_.find(value_of_.at(operand.var.get()));
    if (maker == maker_.end() || maker->second.var != operand.var.get()) return nullptr;  // reshaped since
    Step& step = description_.steps[maker->second.step];
    const bool takes = step.op == "conv" || step.op == "deconv" || step.op == "matmul" || step.op == "binary";
    if (!takes || step.post_ops.size() >= 16) return nullptr;
    if (def_use_.NumUses(operand.var) != uses || def_use_.IsResult(operand.var)) return nullptr;
    return &step;
  }

  void LowerEltwise(const Binding& call, const PostOp& post_op, int uses) {
    if (Step* maker = FusableMaker(call.args[0], uses)) {
      maker->post_ops.push_back(post_op);
      Rename(call.var, maker->out.value);
      return;
    }
    Step step = NewStep("eltwise", call);
    step.algorithm = post_op.op;
    step.alpha = post_op.alpha;
    step.beta = post_op.beta;
    AddStep(call, std::move(step));
  }

  void LowerBinary(const Binding& call) {
    // Into the later of the two makers, so that the other argument is there in time.
    int order[2] = {0, 1};
    if (MakerIndex(call.args[1]) > MakerIndex(call.args[0])) std::swap(order[0], order[1]);
    for (int side : order) {
      if (FuseBinary(call, side)) return;
    }
    auto left = ir::SplatDouble(call.args[0]);
    if (call.callee == "sub" && left.has_value() && call.args[0].tensor_type() != call.var->type.tensor()) {
      Binding of_x = call;
      of_x.args = {call.args[1]};
      return LowerEltwise(of_x, {"linear", -1, static_cast<float>(*left), {}}, 1);
    }
    Step step = NewStep("binary", call);
    step.algorithm = BinaryName(call.callee);
    if (step.args[0].dims != step.out.dims) std::swap(step.args[0], step.args[1]);
    step.args[1].dims = AlignRank(step.args[1].dims, step.out.dims.size());
    AddStep(call, std::move(step));
  }

  // A call went into the step that makes `value`: that step makes the call's Var now.
  void Rename(const VarPtr& var, int value) {
    value_of_[var.get()] = value;
    maker_.at(value).var = var.get();
  }

  int MakerIndex(const Operand& operand) const {
    if (!operand.is_var()) return -1;
    auto maker = maker_.find(value_of_.at(operand.var.get()));
    return maker == maker_.end() ? -1 : maker->second.step;
  }

  bool FuseBinary(const Binding& call, int side) {
    const Operand &x = call.args[side], &other = call.args[1 - side];
    Step* maker = FusableMaker(x, 1);
    if (maker == nullptr || MakerIndex(other) >= MakerIndex(x)) return false;
    if (x.tensor_type().dims != call.var->type.tensor().dims) return false;
    std::string name = BinaryName(call.callee);
    if (side == 1 && name == "div") return false;
    const size_t post_ops_before = maker->post_ops.size();
    if (side == 1 && name == "sub") {  // other - x = -x + other
      if (auto number = ir::SplatDouble(other); number.has_value()) {
        maker->post_ops.push_back({"linear", -1, static_cast<float>(*number), {}});
        Rename(call.var, maker->out.value);
        return true;
      }
      maker->post_ops.push_back({"linear", -1, 0, {}});
      name = "add";
    }
    if (!FuseScalar(name, other, maker) && !FuseBias(name, other, maker) && !FuseTensor(name, other, maker)) {
      maker->post_ops.resize(post_ops_before);
      return false;
    }
    Rename(call.var, maker->out.value);
    return true;
  }

  static bool FuseScalar(const std::string& name, const Operand& other, Step* maker) {
    auto splat = ir::SplatDouble(other);
    if (!splat.has_value()) return false;
    const float value = static_cast<float>(*splat);
    if (name == "mul") maker->post_ops.push_back({"linear", value, 0, {}});
    if (name == "add") maker->post_ops.push_back({"linear", 1, value, {}});
    if (name == "sub") maker->post_ops.push_back({"linear", 1, -value, {}});
    return name == "mul" || name == "add" || name == "sub";
  }

  bool FuseBias(const std::string& name, const Operand& other, Step* maker) {
    if (name != "add" || maker->args.size() != 2 || !maker->post_ops.empty() || maker->op == "binary") return false;
    const Dims& out = maker->out.dims;
    const size_t channel = maker->op == "matmul" ? out.size() - 1 : 1;
    const Dims& own = description_.values[maker->out.value].dims;
    absl::optional<Dims> dims = RegroupBroadcast(own, out, AlignRank(other.tensor_type().Shape(), own.size()));
    if (!dims.has_value() || (*dims)[channel] != out[channel] || NumElements(*dims) != out[channel]) return false;
    maker->args.push_back({ValueOf(other), maker->op == "matmul" ? *dims : Dims{out[channel]}, {}});
    return true;
  }

  bool FuseTensor(const std::string& name, const Operand& other, Step* maker) {
    const Dims& own = description_.values[maker->out.value].dims;
    absl::optional<Dims> dims =
        RegroupBroadcast(own, maker->out.dims, AlignRank(other.tensor_type().Shape(), own.size()));
    if (!dims.has_value() || !IsFastBroadcast(*dims, maker->out.dims, maker->op == "matmul")) return false;
    maker->post_ops.push_back({name, 0, 0, {ValueOf(other), *dims, {}}});
    return true;
  }

  // --- Operators

  void SetWindows(const Binding& call, Step* step) {
    step->strides = call.attrs.Ints("strides");
    for (int64_t dilation : call.attrs.Ints("dilations")) step->dilations.push_back(dilation - 1);
    const Dims& pads = call.attrs.Ints("pads");
    const size_t spatial = pads.size() / 2;
    step->pads_begin.assign(pads.begin(), pads.begin() + spatial);
    step->pads_end.assign(pads.begin() + spatial, pads.end());
  }

  void LowerConv(const Binding& call) {
    Step step = NewStep("conv", call);
    SetWindows(call, &step);
    Dims& weights = step.args[1].dims;
    lowered_.flops += 2.0 * NumElements(step.out.dims) * NumElements(weights) / weights[0];
    const int64_t groups = call.attrs.Int("groups");
    if (groups > 1) {  // [M,C/g,k] as [g,M/g,C/g,k]: the same bytes
      weights[0] /= groups;
      weights.insert(weights.begin(), groups);
    }
    AddStep(call, std::move(step));
  }

  // w is [C,M/g,k] where oneDNN's weights are [M,C,k] ([g,M/g,C/g,k]): two axes seen the other way round.
  void LowerConvTranspose(const Binding& call) {
    Step step = NewStep("deconv", call);
    SetWindows(call, &step);
    const Dims extra = call.attrs.IntsOr("output_padding", Dims(step.pads_end.size(), 0));
    for (size_t i = 0; i < extra.size(); ++i) step.pads_end[i] -= extra[i];
    const int64_t groups = call.attrs.Int("groups");
    View& weights = step.args[1];
    lowered_.flops += 2.0 * NumElements(step.args[0].dims) * NumElements(weights.dims) / weights.dims[0];
    Dims strides = RowMajorStrides(weights.dims);
    const int64_t c = weights.dims[0], m = weights.dims[1];
    weights.dims[0] = m;
    weights.dims[1] = c / groups;
    weights.strides = strides;
    std::swap(weights.strides[0], weights.strides[1]);
    if (groups > 1) {
      weights.dims.insert(weights.dims.begin(), groups);
      weights.strides.insert(weights.strides.begin(), c / groups * strides[0]);
    }
    AddStep(call, std::move(step));
  }

  void LowerMatmul(const Binding& call) {
    Step step = NewStep("matmul", call);
    const MatmulViews views = ViewsOfMatmul(step.args[0].dims, step.args[1].dims, call.attrs.Bool("transpose_a"),
                                            call.attrs.Bool("transpose_b"));
    step.args[0].dims = views.a;
    step.args[0].strides = views.a_strides;
    step.args[1].dims = views.b;
    step.args[1].strides = views.b_strides;
    step.out.dims = views.out;
    lowered_.flops += 2.0 * NumElements(views.out) * views.a.back();
    AddStep(call, std::move(step));
  }

  void LowerPool(const Binding& call) {
    const bool include = call.callee == "avg_pool" && call.attrs.Bool("count_include_pad");
    Step step = NewStep(call.callee == "max_pool" ? "max_pool"
                        : include                 ? "avg_pool_include"
                                                  : "avg_pool_exclude",
                        call);
    SetWindows(call, &step);
    step.kernel = call.attrs.Ints("kernel");
    for (size_t i = 0; i < step.kernel.size(); ++i) {  // ceil_mode: the padding that its last window needs
      const int64_t extent = (step.kernel[i] - 1) * (step.dilations[i] + 1) + 1;
      const int64_t reach = (step.out.dims[i + 2] - 1) * step.strides[i] + extent;
      step.pads_end[i] = std::max(step.pads_end[i], reach - step.args[0].dims[i + 2] - step.pads_begin[i]);
    }
    AddStep(call, std::move(step));
  }

  // The mean over an image is an average with a window of its size, which keeps blocked layouts.
  void LowerReduceMean(const Binding& call) {
    Step step = NewStep("avg_pool_exclude", call);
    const Dims& x = step.args[0].dims;
    step.kernel.assign(x.begin() + 2, x.end());
    step.strides.assign(step.kernel.size(), 1);
    step.dilations.assign(step.kernel.size(), 0);
    step.pads_begin = step.pads_end = step.dilations;
    step.out.dims = {x[0], x[1]};
    step.out.dims.resize(x.size(), 1);
    AddStep(call, std::move(step));
  }

  void LowerSoftmax(const Binding& call) {
    Step step = NewStep(call.callee, call);
    step.axis = call.attrs.Int("axis");
    AddStep(call, std::move(step));
  }

  void LowerLayerNorm(const Binding& call) {
    Step step = NewStep("layer_norm", call);
    const int64_t columns = NumElements(step.args[1].dims);
    step.args[0].dims = step.out.dims = {NumElements(step.out.dims) / columns, columns};
    step.args[1].dims = step.args[2].dims = {columns};
    step.epsilon = static_cast<float>(call.attrs.Float("epsilon"));
    AddStep(call, std::move(step));
  }

  void LowerBatchNorm(const Binding& call) {
    Step step = NewStep("batch_norm", call);
    step.epsilon = static_cast<float>(call.attrs.Float("epsilon"));
    AddStep(call, std::move(step));
  }

  void LowerConcat(const Binding& call) {
    Step step = NewStep("concat", call);
    step.axis = call.attrs.Int("axis");
    AddStep(call, std::move(step));
  }

  const ir::Function& function_;
  ir::DefUse def_use_;
  Lowered lowered_;
  Description& description_ = lowered_.description;
  std::unordered_map<const ir::Var*, int> value_of_;
  std::unordered_map<const ir::Var*, std::string> gates_;
  std::map<const ir::Constant*, int> literals_;  // looked up only: order by address does not show
  struct Maker {
    int step;
    const ir::Var* var;  // what the step makes, its post-ops included
  };
  std::unordered_map<int, Maker> maker_;  // by value
};

}  // namespace

absl::StatusOr<Lowered> Lower(const ir::Function& partition) { return Lowering(partition).Run(); }

std::string Serialize(const Lowered& lowered) {
  std::string bytes = nlohmann::json(lowered.description).dump();
  bytes.push_back('\0');
  bytes.resize((bytes.size() + kLiteralAlignment - 1) / kLiteralAlignment * kLiteralAlignment);
  return bytes + lowered.literals;
}

}  // namespace inlay::onednn
