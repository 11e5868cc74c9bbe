// Takes multiplications and additions by constants (of any value: weights) into the weights of the convolution or
// matmul before them. What is computed of weights alone here is lifted out of main afterwards.
//
//   %1 = conv(%0, @w)                               %w2 = mul(@w, reshape(@s, [M, 1, 1, 1]))
//   %2 = mul(%1, @s: [M, 1, 1])          becomes    %3 = conv(%0, %w2, reshape(@t, [M]))
//   %3 = add(%2, @t: [M, 1, 1])
//
//   mul(matmul(%0, @w: [K, N]), @s: [N])            matmul(%0, mul(@w, @s))
//   mul(add(matmul(%0, @w), @b), @s)                add(matmul(%0, mul(@w, @s)), mul(@b, @s))
//   add(add(%0, @b), @t)                            add(%0, add(@b, @t))
//
// Only where the convolution's (matmul's) value has no other use. A matmul keeps its bias as an addition.
#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;
using ir::TensorType;
using Ints = std::vector<int64_t>;

class Folder : public ConstantsRewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (VisitConstant(*binding)) return absl::nullopt;
    const bool mul = binding->IsCall("mul"), add = binding->IsCall("add");
    if ((!mul && !add) || !binding->var->type.is_tensor() || !ir::IsFloat(binding->var->type.tensor().dtype)) {
      return absl::nullopt;
    }
    for (int i = 0; i < 2; ++i) {
      const Operand value = binding->args[i], factor = binding->args[1 - i];
      if (!value.is_var() || IsConstant(value) || !IsConstant(factor) || !HasOneUse(value)) continue;
      // Broadcasting must not make the result larger than the value.
      if (value.type() != binding->var->type) continue;
      const Binding* producer = Def(value);
      if (producer == nullptr) continue;
      INLAY_ASSIGN_OR_RETURN(absl::optional<Operand> folded, Fold(mul, *producer, factor));
      if (folded.has_value()) return {*folded};
    }
    return absl::nullopt;
  }

 private:
  Replacement Fold(bool mul, const Binding& producer, const Operand& factor) {
    if (producer.IsCall("conv") || producer.IsCall("conv_transpose"))
      return mul ? ScaleConv(producer, factor) : BiasConv(producer, factor);
    if (producer.IsCall("matmul") && mul) return ScaleMatmul(producer, factor);
    if (producer.IsCall("add")) return mul ? ScaleSum(producer, factor) : MergeTerms(producer, factor);
    return absl::nullopt;
  }

  Replacement ScaleConv(const Binding& conv, const Operand& factor) {
    if (!IsConstant(conv.args[1]) || (conv.args.size() == 3 && !IsConstant(conv.args[2]))) return absl::nullopt;
    const TensorType& type = conv.var->type.tensor();
    INLAY_ASSIGN_OR_RETURN(absl::optional<Operand> scale, PerChannel(factor, type, {type.dims[1].value()}));
    if (!scale.has_value()) return absl::nullopt;
    Ints shape(conv.args[1].tensor_type().rank(), 1);
    // [M, C/groups, k...], or transposed [C, M/groups, k...], where groups would mix up the channels.
    if (conv.callee == "conv") {
      shape[0] = conv.args[1].tensor_type().dims[0].value();
    } else if (conv.attrs.Int("groups") == 1) {
      shape[1] = conv.args[1].tensor_type().dims[1].value();
    } else {
      return absl::nullopt;
    }
    INLAY_ASSIGN_OR_RETURN(Operand wide, CallConstant("reshape", {*scale}, {{"shape", shape}}));
    std::vector<Operand> args = conv.args;
    INLAY_ASSIGN_OR_RETURN(args[1], CallConstant("mul", {args[1], wide}));
    if (args.size() == 3) {
      INLAY_ASSIGN_OR_RETURN(args[2], CallConstant("mul", {args[2], *scale}));
    }
    INLAY_ASSIGN_OR_RETURN(Operand out, Call(conv.callee, std::move(args), conv.attrs));
    return {out};
  }

  Replacement BiasConv(const Binding& conv, const Operand& term) {
    if (conv.args.size() == 3 && !IsConstant(conv.args[2])) return absl::nullopt;
    const TensorType& type = conv.var->type.tensor();
    INLAY_ASSIGN_OR_RETURN(absl::optional<Operand> bias, PerChannel(term, type, {type.dims[1].value()}));
    if (!bias.has_value()) return absl::nullopt;
    std::vector<Operand> args = conv.args;
    if (args.size() == 3) {
      INLAY_ASSIGN_OR_RETURN(args[2], CallConstant("add", {args[2], *bias}));
    } else {
      args.push_back(*bias);
    }
    INLAY_ASSIGN_OR_RETURN(Operand out, Call(conv.callee, std::move(args), conv.attrs));
    return {out};
  }

  // The factor must vary along the columns only, and the weight be a matrix.
  Replacement ScaleMatmul(const Binding& matmul, const Operand& factor) {
    const Operand& w = matmul.args[1];
    if (!IsConstant(w) || w.tensor_type().rank() != 2 || matmul.args[0].tensor_type().rank() < 2) return absl::nullopt;
    const std::vector<ir::Dim>& dims = factor.tensor_type().dims;
    for (int i = 0; i + 1 < static_cast<int>(dims.size()); ++i) {
      if (dims[i] != ir::Dim(1)) return absl::nullopt;
    }
    Operand scale = factor;
    if (!dims.empty()) {
      const int64_t n = dims.back().value();
      const Ints shape = matmul.attrs.Bool("transpose_b") ? Ints{n, 1} : Ints{n};
      if (factor.tensor_type().Shape() != shape) {
        INLAY_ASSIGN_OR_RETURN(scale, CallConstant("reshape", {factor}, {{"shape", shape}}));
      }
    }
    std::vector<Operand> args = matmul.args;
    INLAY_ASSIGN_OR_RETURN(args[1], CallConstant("mul", {w, scale}));
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("matmul", std::move(args), matmul.attrs));
    return {out};
  }

  // (matmul + b) * s = matmul * s + b * s, where the first product folds.
  Replacement ScaleSum(const Binding& sum, const Operand& factor) {
    for (int i = 0; i < 2; ++i) {
      const Operand &value = sum.args[i], &term = sum.args[1 - i];
      const Binding* matmul = DefCall(value, "matmul");
      if (matmul == nullptr || !IsConstant(term) || !HasOneUse(value) || value.type() != sum.var->type) continue;
      INLAY_ASSIGN_OR_RETURN(absl::optional<Operand> scaled, ScaleMatmul(*matmul, factor));
      if (!scaled.has_value()) continue;
      INLAY_ASSIGN_OR_RETURN(Operand bias, CallConstant("mul", {term, factor}));
      INLAY_ASSIGN_OR_RETURN(Operand out, Call("add", {*scaled, bias}));
      return {out};
    }
    return absl::nullopt;
  }

  // (y + b) + t = y + (b + t)
  Replacement MergeTerms(const Binding& sum, const Operand& term) {
    for (int i = 0; i < 2; ++i) {
      const Operand &value = sum.args[i], &bias = sum.args[1 - i];
      if (IsConstant(value) || !IsConstant(bias) || value.type() != sum.var->type) continue;
      INLAY_ASSIGN_OR_RETURN(Operand merged, CallConstant("add", {bias, term}));
      INLAY_ASSIGN_OR_RETURN(Operand out, Call("add", {value, merged}));
      return {out};
    }
    return absl::nullopt;
  }
};

class FoldScaleBiasPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "fold_scale_bias"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Folder().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> FoldScaleBias() { return std::make_unique<FoldScaleBiasPass>(); }

}  // namespace inlay::passes
