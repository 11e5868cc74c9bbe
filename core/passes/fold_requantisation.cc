// Takes the scale that a result is quantised with into those of the sums of integers that it is made of:
//
//   %1 = mul(cast(%0: i32[..]), @s)                 %1 = mul(cast(%0), div(@s, 0.1))
//   %2 = add(%1, @b)                     becomes    %2 = add(%1, div(@b, 0.1))
//   %3 = div(relu(%2), 0.1)                         %3 = relu(%2)
//
// So of sums of several such products, and of clip. Quantised models are full of it: real numbers between one layer's
// integers and the next's. What is computed of weights alone here is lifted out of main afterwards. A value may so
// differ in its last bit, as it does where a runtime multiplies by the quotient of the scales, as QLinearConv is
// defined.
#include "core/base/status_macros.h"
#include "core/ir/literal.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Operand;

class Folder : public ConstantsRewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (VisitConstant(*binding)) return absl::nullopt;
    if (!binding->IsCall("div") || binding->var->type.tensor().dtype != ir::DType::kF32) return absl::nullopt;
    const absl::optional<double> divisor = ir::SplatDouble(binding->args[1]);
    if (!divisor.has_value() || !(*divisor > kLeast && *divisor < 1 / kLeast)) return absl::nullopt;
    const Operand& value = binding->args[0];
    if (value.type() != binding->var->type || !CanTake(value)) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(Operand out, Divided(value, binding->args[1], *divisor));
    return {out};
  }

 private:
  // Scales beyond have no quotients to trust.
  static constexpr double kLeast = 1e-9;

  bool IsOfIntegers(const Operand& operand) const {
    const Binding* cast = DefCall(operand, "cast");
    return cast != nullptr && ir::IsInteger(cast->args[0].tensor_type().dtype);
  }

  // Which argument of a product is the scale; -1: it is not one of integers and a scale.
  int ScaleOf(const Binding& product) const {
    for (int i = 0; i < 2; ++i) {
      if (IsConstant(product.args[i]) && IsOfIntegers(product.args[1 - i])) return i;
    }
    return -1;
  }

  bool CanTake(const Operand& value) const {
    if (IsConstant(value)) return true;
    const Binding* made = Def(value);
    if (made == nullptr || made->kind != Binding::Kind::kCall || !HasOneUse(value)) return false;
    if (made->IsCall("mul")) return ScaleOf(*made) >= 0;
    if (made->IsCall("add")) {
      return !(IsConstant(made->args[0]) && IsConstant(made->args[1])) && CanTake(made->args[0]) &&
             CanTake(made->args[1]);
    }
    return (made->IsCall("relu") || made->IsCall("clip")) && !IsConstant(made->args[0]) && CanTake(made->args[0]);
  }

  absl::StatusOr<Operand> Divided(const Operand& value, const Operand& by, double divisor) {
    if (IsConstant(value)) return CallConstant("div", {value, by});
    const Binding made = *Def(value);
    std::vector<Operand> args = made.args;
    ir::Attrs attrs = made.attrs;
    if (made.IsCall("mul")) {
      const int scale = ScaleOf(made);
      INLAY_ASSIGN_OR_RETURN(args[scale], CallConstant("div", {args[scale], by}));
    } else {
      for (Operand& arg : args) {
        INLAY_ASSIGN_OR_RETURN(arg, Divided(arg, by, divisor));
      }
      for (const char* bound : {"min", "max"}) {
        if (attrs.Has(bound)) attrs.Set(bound, attrs.Float(bound) / divisor);
      }
    }
    return Call(made.callee, std::move(args), std::move(attrs));
  }
};

class FoldRequantisationPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "fold_requantisation"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Folder().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> FoldRequantisation() { return std::make_unique<FoldRequantisationPass>(); }

}  // namespace inlay::passes
