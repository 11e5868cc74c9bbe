// Moves a reshape that only merges leading axes behind the operator that reads it, until it meets the one that splits
// them again, and both go (canonicalise). Exporters write linear layers so (GPT-2's Conv1D, ONNX's Gemm), and the two
// reshapes keep the bias, the activation and the residual from being fused into the matmul.
//
//   %1 = reshape(%0: f32[1, 64, 768], shape=[64, 768])
//   %2 = matmul(%1, @w)                                    %1 = matmul(%0, @w)
//   %3 = add(%2, @b)                            becomes    %2 = add(%1, @b)
//   %4 = reshape(%3, shape=[1, 64, 3072])                  %3 = gelu(%2)
//   %5 = gelu(%4)
//
// An operator of one argument goes in front of any reshapes and transposes, for the same reason.
//
//   %1 = transpose(%0, perm=[0, 2, 1])
//   %2 = reshape(%1, shape=[1, 256, 14, 14])    becomes    %1 = relu(%0)
//   %3 = relu(%2)                                          %2 = transpose(%1, ..)  %3 = reshape(%2, ..)
#include "core/base/status_macros.h"
#include "core/ir/op_registry.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;
using ir::TensorType;

class Sinker : public Rewriter {
 public:
  Sinker() : Rewriter(/*counts_uses=*/true) {}

 protected:
  Replacement Visit(Binding* binding) override {
    if (binding->kind != Binding::Kind::kCall || binding->args.empty() || !binding->var->type.is_tensor() ||
        !binding->var->type.tensor().is_static()) {
      return absl::nullopt;
    }
    const std::string& op = binding->callee;
    if (op == "matmul") return VisitMatmul(*binding);
    if (op == "softmax" || op == "log_softmax" || op == "layer_norm") return VisitLastAxis(*binding);
    const ir::OpPattern pattern = ir::PatternOf(*binding);
    if (pattern == ir::OpPattern::kElementwise && binding->args.size() == 1) return VisitUnary(*binding);
    if (pattern == ir::OpPattern::kElementwise) return VisitElementwise(*binding);
    if (pattern == ir::OpPattern::kBroadcast && op != "batch_norm" && op != "expand") return VisitElementwise(*binding);
    return absl::nullopt;
  }

 private:
  // What a value was before its leading axes were merged; nullopt where they were not.
  absl::optional<Operand> Unmerged(const Operand& operand) const {
    const Binding* reshape = DefCall(operand, "reshape");
    if (reshape == nullptr) return absl::nullopt;
    const TensorType &from = reshape->args[0].tensor_type(), &to = operand.tensor_type();
    if (!from.is_static() || to.rank() < 1 || from.rank() <= to.rank() || from.dims.back() != to.dims.back()) {
      return absl::nullopt;
    }
    return reshape->args[0];
  }

  Replacement Finish(const Binding& binding, std::vector<Operand> args, ir::Attrs attrs) {
    INLAY_ASSIGN_OR_RETURN(Operand out, Call(binding.callee, std::move(args), std::move(attrs)));
    INLAY_ASSIGN_OR_RETURN(out, Call("reshape", {out}, {{"shape", binding.var->type.tensor().Shape()}}));
    return {out};
  }

  Replacement VisitMatmul(const Binding& binding) {
    const absl::optional<Operand> x = Unmerged(binding.args[0]);
    if (!x.has_value() || binding.args[0].tensor_type().rank() < 2 || binding.args[1].tensor_type().rank() != 2 ||
        binding.attrs.Bool("transpose_a")) {
      return absl::nullopt;
    }
    return Finish(binding, {*x, binding.args[1]}, binding.attrs);
  }

  Replacement VisitLastAxis(const Binding& binding) {
    const absl::optional<Operand> x = Unmerged(binding.args[0]);
    if (!x.has_value() || binding.attrs.Int("axis") != binding.args[0].tensor_type().rank() - 1) return absl::nullopt;
    std::vector<Operand> args = binding.args;
    args[0] = *x;
    ir::Attrs attrs = binding.attrs;
    attrs.Set("axis", int64_t{x->tensor_type().rank() - 1});
    return Finish(binding, std::move(args), std::move(attrs));
  }

  Replacement VisitUnary(const Binding& binding) {
    std::vector<const Binding*> views;  // the last one first
    Operand x = binding.args[0];
    while (NumUses(x) <= 1) {  // none: between views that the walk put behind another operator
      const Binding* view = DefCall(x, "transpose");
      if (view == nullptr) view = DefCall(x, "reshape");
      if (view == nullptr) break;
      views.push_back(view);
      x = view->args[0];
    }
    if (views.empty()) return VisitElementwise(binding);
    INLAY_ASSIGN_OR_RETURN(Operand out, Call(binding.callee, {x}, binding.attrs));
    for (auto view = views.rbegin(); view != views.rend(); ++view) {
      INLAY_ASSIGN_OR_RETURN(out, Call((*view)->callee, {out}, (*view)->attrs));
    }
    return {out};
  }

  // Every argument was merged in the same way, or lies along the last axis alone.
  Replacement VisitElementwise(const Binding& binding) {
    std::vector<Operand> args = binding.args;
    absl::optional<std::vector<ir::Dim>> dims;
    for (Operand& arg : args) {
      const absl::optional<Operand> before = Unmerged(arg);
      if (before.has_value() && arg.tensor_type().dims == binding.var->type.tensor().dims) {
        if (dims.has_value() && *dims != before->tensor_type().dims) return absl::nullopt;
        dims = before->tensor_type().dims;
        arg = *before;
      } else if (arg.tensor_type().rank() > 1) {
        return absl::nullopt;
      }
    }
    if (!dims.has_value()) return absl::nullopt;
    return Finish(binding, std::move(args), binding.attrs);
  }
};

class SinkReshapesPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "sink_reshapes"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Sinker().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> SinkReshapes() { return std::make_unique<SinkReshapesPass>(); }

}  // namespace inlay::passes
