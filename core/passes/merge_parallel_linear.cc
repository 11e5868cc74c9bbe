// Linear layers of the same value whose results are added (or subtracted) are one layer, of the sum of their weights.
// Networks are trained with such branches (RepVGG, MobileOne, FastViT, LoRA) and exported with them.
//
//   %1 = conv(%0, @w: [M, C, 3, 3], @b, pads=[1, 1, 1, 1])      %5 = pad(@v, pads=[0, 0, 1, 1, 0, 0, 1, 1])
//   %2 = conv(%0, @v: [M, C, 1, 1])                             %6 = add(@w, %5), and of @s its diagonal
//   %3 = add(%1, %2)                                 becomes    %7 = conv(%0, %6, @b, pads=[1, 1, 1, 1])
//   %4 = add(%3, mul(%0, @s: [C, 1, 1]))
//
//   add(add(matmul(%0, @w), @b), matmul(matmul(%0, @l), @r))    add(matmul(%0, add(@w, matmul(@l, @r))), @b)
//
// A convolution takes up another whose taps all lie on its own, of as many groups or of one channel each; a depthwise
// one also the value itself. (A dense one would lose digits there: a residual is larger than what a layer adds to it,
// and must not be rounded to bf16, nor go through Winograd's transforms.) Of f32 and f64 alone: in less, a small weight
// vanishes beside a large one. Weights that are integers times a scale stay such. Constants that are left beside the
// layer are fold_scale_bias's.
#include <algorithm>

#include "core/base/status_macros.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Dim;
using ir::DType;
using ir::Operand;
using ir::TensorType;
using Ints = std::vector<int64_t>;

constexpr size_t kMostTerms = 32;  // of one sum; what is deeper is a term of its own

bool IsStatic(const TensorType& type) {
  return std::all_of(type.dims.begin(), type.dims.end(), [](const Dim& dim) { return dim.is_static(); });
}

class Merger : public ConstantsRewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (VisitConstant(*binding) || !IsSum(binding)) return absl::nullopt;
    const TensorType& type = binding->var->type.tensor();
    if (type.dtype != DType::kF32 && type.dtype != DType::kF64) return absl::nullopt;
    std::vector<Term> terms = TermsOf(*binding);
    bool merged = false;
    for (size_t i = 0; i < terms.size(); ++i) {
      for (size_t j = 0; j < terms.size() && terms[i].layer != nullptr; ++j) {
        if (i == j) continue;
        INLAY_ASSIGN_OR_RETURN(absl::optional<Operand> both, Merge(terms[i], terms[j]));
        if (!both.has_value()) continue;
        terms[i] = Term{*both, false, Def(*both)};
        terms.erase(terms.begin() + j);
        if (j < i) --i;
        j = -1;  // what did not fit before may do now
        merged = true;
      }
    }
    if (!merged) return absl::nullopt;
    return Sum(std::move(terms));
  }

 private:
  struct Term {
    Operand value;
    bool negated = false;
    const Binding* layer = nullptr;  // a convolution or matmul with constant weights, of no other use
  };

  static bool IsSum(const Binding* binding) {
    return binding != nullptr && (binding->IsCall("add") || binding->IsCall("sub")) && binding->var->type.is_tensor();
  }

  // Of values that this walk has added there are no counts; a sum that it makes is read once.
  bool IsReadOnce(const Operand& value) const { return NumUses(value) <= 1; }

  // What is added or subtracted, in order.
  std::vector<Term> TermsOf(const Binding& sum) const {
    const TensorType& type = sum.var->type.tensor();
    std::vector<Term> terms = {{sum.args[0]}, {sum.args[1], sum.IsCall("sub")}};
    for (size_t i = 0; i < terms.size();) {
      const Operand value = terms[i].value;
      const Binding* def = Def(value);
      const bool inner = def != nullptr && !IsConstant(value) && IsReadOnce(value) && value.tensor_type() == type;
      if (inner && IsSum(def) && terms.size() < kMostTerms) {
        const bool negated = terms[i].negated;
        terms[i].value = def->args[0];
        terms.insert(terms.begin() + i + 1, {def->args[1], negated != def->IsCall("sub")});
        continue;
      }
      if (inner && (IsConvOfWeights(*def) || IsMatmulOfWeights(*def))) terms[i].layer = def;
      ++i;
    }
    return terms;
  }

  bool AreWeights(const Operand& operand) const {
    return IsConstant(operand) && IsStatic(operand.tensor_type()) && !AreIntegers(operand, /*depth=*/8);
  }

  // Whether quantised weights are among what it is computed from.
  bool AreIntegers(const Operand& operand, int depth) const {
    if (ir::IsInteger(operand.tensor_type().dtype)) return true;
    const Binding* def = Def(operand);
    if (def == nullptr || depth == 0) return false;
    return std::any_of(def->args.begin(), def->args.end(),
                       [&](const Operand& arg) { return AreIntegers(arg, depth - 1); });
  }

  bool IsConvOfWeights(const Binding& call) const {
    return call.IsCall("conv") && AreWeights(call.args[1]) && (call.args.size() < 3 || IsConstant(call.args[2])) &&
           call.args[0].tensor_type().dims[1].is_static();
  }

  bool IsMatmulOfWeights(const Binding& call) const {
    return call.IsCall("matmul") && AreWeights(call.args[1]) && call.args[1].tensor_type().rank() == 2 &&
           call.args[0].tensor_type().rank() >= 2 && !IsConstant(call.args[0]) && !call.attrs.Bool("transpose_a");
  }

  Replacement Merge(const Term& base, const Term& other) {
    return base.layer->IsCall("conv") ? MergeIntoConv(base, other) : MergeIntoMatmul(base, other);
  }

  // A term as a convolution.
  struct Conv {
    Operand weights;
    absl::optional<Operand> bias;
    Ints strides, dilations, begins;
    int64_t groups;

    int64_t Kernel(size_t axis) const { return weights.tensor_type().dims[axis + 2].value(); }
  };

  static Conv AsConv(const Binding& call) {
    const ir::Attrs& attrs = call.attrs;
    Conv conv{call.args[1],       absl::nullopt,      attrs.Ints("strides"), attrs.Ints("dilations"),
              attrs.Ints("pads"), attrs.Int("groups")};
    conv.begins.resize(conv.strides.size());
    if (call.args.size() == 3) conv.bias = call.args[2];
    return conv;
  }

  // The same of a term that reads what `base` does: a convolution, or that value as it is or times a factor for each
  // channel, unless it is broadcast to the sum.
  absl::StatusOr<absl::optional<Conv>> TermAsConv(const Term& term, const Binding& base) {
    const Operand& x = base.args[0];
    if (term.layer != nullptr) {
      if (!term.layer->IsCall("conv") || !(term.layer->args[0] == x)) return absl::nullopt;
      return {AsConv(*term.layer)};
    }
    const TensorType& type = x.tensor_type();
    if (type != base.var->type.tensor()) return absl::nullopt;
    const int64_t channels = type.dims[1].value();
    Ints each(type.rank(), 1);
    each[0] = channels;
    const Ints ones(type.rank() - 2, 1), zeros(type.rank() - 2, 0);
    if (term.value == x && base.attrs.Int("groups") == channels) {
      const Operand literal(ir::MakeScalar(type.dtype, 1.0));
      INLAY_ASSIGN_OR_RETURN(Operand one, CallConstant("expand", {literal}, {{"shape", each}}));
      return {Conv{one, absl::nullopt, ones, ones, zeros, channels}};
    }
    const Binding* mul = DefCall(term.value, "mul");
    if (mul == nullptr || !IsReadOnce(term.value) || term.value.tensor_type() != type) return absl::nullopt;
    for (int i = 0; i < 2; ++i) {
      if (!(mul->args[i] == x) || !AreWeights(mul->args[1 - i])) continue;
      INLAY_ASSIGN_OR_RETURN(absl::optional<Operand> factor, PerChannel(mul->args[1 - i], type, each));
      if (!factor.has_value()) return absl::nullopt;
      return {Conv{*factor, absl::nullopt, ones, ones, zeros, channels}};
    }
    return absl::nullopt;
  }

  Replacement MergeIntoConv(const Term& base, const Term& other) {
    const Operand& x = base.layer->args[0];
    const int64_t channels = x.tensor_type().dims[1].value();
    Conv into = AsConv(*base.layer);
    INLAY_ASSIGN_OR_RETURN(absl::optional<Conv> conv, TermAsConv(other, *base.layer));
    if (!conv.has_value() || conv->strides != into.strides) return absl::nullopt;
    const TensorType type = into.weights.tensor_type();
    const bool each_channel = conv->groups == channels && type.dims[0] == Dim(channels);
    if (conv->groups != into.groups && !each_channel) return absl::nullopt;
    Ints pads(2 * type.rank(), 0);
    for (size_t axis = 0; axis < into.strides.size(); ++axis) {
      const int64_t dilation = into.dilations[axis], taps = conv->Kernel(axis);
      const int64_t distance = into.begins[axis] - conv->begins[axis];
      if (distance < 0 || distance % dilation != 0) return absl::nullopt;
      if (taps > 1 && conv->dilations[axis] != dilation) return absl::nullopt;
      const int64_t behind = into.Kernel(axis) - taps - distance / dilation;
      if (behind < 0) return absl::nullopt;
      pads[axis + 2] = distance / dilation;
      pads[type.rank() + axis + 2] = behind;
    }
    INLAY_ASSIGN_OR_RETURN(Operand weights, Spread(*conv, into.groups, channels));
    if (pads != Ints(pads.size(), 0)) {
      INLAY_ASSIGN_OR_RETURN(weights, CallConstant("pad", {weights}, {{"pads", pads}}));
    }
    INLAY_ASSIGN_OR_RETURN(weights, AddConstants(into.weights, base.negated, weights, other.negated));
    std::vector<Operand> args = {x, weights};
    if (into.bias.has_value() && conv->bias.has_value()) {
      INLAY_ASSIGN_OR_RETURN(Operand bias, AddConstants(*into.bias, base.negated, *conv->bias, other.negated));
      args.push_back(bias);
    } else if (into.bias.has_value() || conv->bias.has_value()) {
      const Term& term = into.bias.has_value() ? base : other;
      Operand bias = into.bias.has_value() ? *into.bias : *conv->bias;
      if (term.negated) {
        INLAY_ASSIGN_OR_RETURN(bias, CallConstant("neg", {bias}));
      }
      args.push_back(bias);
    }
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("conv", std::move(args), base.layer->attrs));
    return {out};
  }

  // Weights [C, 1, k...] of one channel each as those of `groups` groups, [C, C/groups, k...]: rows of a diagonal, of
  // which each begins one element later than the one before, as it does if it is one element too long.
  absl::StatusOr<Operand> Spread(const Conv& conv, int64_t groups, int64_t channels) {
    if (conv.groups == groups) return conv.weights;
    Ints shape = conv.weights.tensor_type().Shape();
    const int64_t n = channels / groups;
    int64_t taps = 1;
    for (size_t i = 2; i < shape.size(); ++i) taps *= shape[i];
    INLAY_ASSIGN_OR_RETURN(Operand w, CallConstant("reshape", {conv.weights}, {{"shape", Ints{groups, n, 1, taps}}}));
    INLAY_ASSIGN_OR_RETURN(w, CallConstant("pad", {w}, {{"pads", Ints{0, 0, 0, 0, 0, 0, n, 0}}}));
    INLAY_ASSIGN_OR_RETURN(w, CallConstant("reshape", {w}, {{"shape", Ints{groups, n * (n + 1), taps}}}));
    INLAY_ASSIGN_OR_RETURN(
        w, CallConstant("slice", {w},
                        {{"begins", Ints{0, 0, 0}}, {"ends", Ints{groups, n * n, taps}}, {"steps", Ints{1, 1, 1}}}));
    shape[1] = n;
    return CallConstant("reshape", {w}, {{"shape", shape}});
  }

  Replacement MergeIntoMatmul(const Term& base, const Term& other) {
    if (other.layer == nullptr || !other.layer->IsCall("matmul")) return absl::nullopt;
    const Operand& x = base.layer->args[0];
    const bool transposed = base.layer->attrs.Bool("transpose_b");
    bool other_transposed = other.layer->attrs.Bool("transpose_b");
    Operand weights = other.layer->args[1];
    if (!(other.layer->args[0] == x)) {
      // Of two matrices, narrow where they meet.
      const Binding* first = DefCall(other.layer->args[0], "matmul");
      if (first == nullptr || !IsMatmulOfWeights(*first) || !(first->args[0] == x) ||
          !IsReadOnce(other.layer->args[0])) {
        return absl::nullopt;
      }
      INLAY_ASSIGN_OR_RETURN(weights, CallConstant("matmul", {first->args[1], weights},
                                                   {{"transpose_a", first->attrs.Bool("transpose_b")},
                                                    {"transpose_b", other_transposed}}));
      other_transposed = false;
    }
    if (transposed != other_transposed) {
      INLAY_ASSIGN_OR_RETURN(weights, CallConstant("transpose", {weights}, {{"perm", Ints{1, 0}}}));
    }
    INLAY_ASSIGN_OR_RETURN(weights, AddConstants(base.layer->args[1], base.negated, weights, other.negated));
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("matmul", {x, weights}, base.layer->attrs));
    return {out};
  }

  absl::StatusOr<Operand> AddConstants(const Operand& a, bool a_negated, const Operand& b, bool b_negated) {
    if (!a_negated) return CallConstant(b_negated ? "sub" : "add", {a, b});
    if (!b_negated) return CallConstant("sub", {b, a});
    INLAY_ASSIGN_OR_RETURN(Operand sum, CallConstant("add", {a, b}));
    return CallConstant("neg", {sum});
  }

  // Layers first, of which at least one is not negated and of the sum's type, then constants, for fold_scale_bias.
  Replacement Sum(std::vector<Term> terms) {
    auto order = [&](const Term& term) {
      return term.layer != nullptr ? term.negated : IsConstant(term.value) ? 2 : 3;
    };
    std::stable_sort(terms.begin(), terms.end(), [&](const Term& a, const Term& b) { return order(a) < order(b); });
    Operand sum = terms[0].value;
    for (size_t i = 1; i < terms.size(); ++i) {
      if (terms[i].negated && IsConstant(terms[i].value)) {
        INLAY_ASSIGN_OR_RETURN(terms[i].value, CallConstant("neg", {terms[i].value}));
        terms[i].negated = false;
      }
      INLAY_ASSIGN_OR_RETURN(sum, Call(terms[i].negated ? "sub" : "add", {sum, terms[i].value}));
    }
    return {sum};
  }
};

class MergeParallelLinearPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "merge_parallel_linear"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Merger().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> MergeParallelLinear() { return std::make_unique<MergeParallelLinearPass>(); }

}  // namespace inlay::passes
