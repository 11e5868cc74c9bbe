// Moves numbers as the bytes that they were quantised to, and picks the largest of them as these: what dequantises them
// goes behind operators that compute nothing.
//
//   %1 = mul(cast(%0: u8[1, 64, 112, 112]), 0.1)     %1 = max_pool(%0)
//   %2 = max_pool(%1)                        becomes %2 = mul(cast(%1), 0.1)
//
// And to quantise again with the same scale and zero point gives the same bytes: round(q * s / s) is q. Quantisers put
// both around every operator.
#include <algorithm>
#include <set>

#include "core/base/status_macros.h"
#include "core/ir/literal.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::DType;
using ir::Operand;

bool IsByte(const Operand& operand) {
  const DType dtype = operand.tensor_type().dtype;
  return operand.is_var() && (dtype == DType::kI8 || dtype == DType::kU8);
}

// (bytes - zero) * scale, of one scale and zero point for all.
struct Dequantised {
  Operand bytes;
  double scale = 1, zero = 0;
  bool LikeThat(const Dequantised& other) const {
    return scale == other.scale && zero == other.zero && bytes.tensor_type().dtype == other.bytes.tensor_type().dtype;
  }
};

// Scales beyond lose bits of q * s.
constexpr double kLeast = 1e-30;

class Mover : public Rewriter {
 public:
  Mover() : Rewriter(/*counts_uses=*/true) {}

 protected:
  Replacement Visit(Binding* binding) override {
    if (binding->kind != Binding::Kind::kCall || !binding->var->type.is_tensor()) return absl::nullopt;
    if (binding->callee == "cast") return VisitCast(*binding);
    static const auto* moving =
        new std::set<std::string, std::less<>>{"max_pool", "reshape", "transpose", "slice", "concat"};
    if (moving->count(binding->callee) == 0 || binding->var->type.tensor().dtype != DType::kF32) return absl::nullopt;
    return VisitMoving(*binding);
  }

 private:
  static bool Is(const Operand& operand, DType dtype) { return operand.tensor_type().dtype == dtype; }

  // mul(cast(sub(cast(bytes), zero)), scale) in f32 of i32, which hold all of it exactly. The subtraction may be
  // absent.
  absl::optional<Dequantised> DequantisedBy(const Operand& operand) const {
    const Binding* product = DefCall(operand, "mul");
    if (product == nullptr || !Is(operand, DType::kF32)) return absl::nullopt;
    const absl::optional<double> scale = ir::SplatDouble(product->args[1]);
    const Binding* cast = DefCall(product->args[0], "cast");
    if (!scale.has_value() || !(*scale > kLeast && *scale < 1 / kLeast) || cast == nullptr ||
        cast->var->type != operand.type()) {
      return absl::nullopt;
    }
    Dequantised result{cast->args[0], *scale};
    if (!Is(result.bytes, DType::kI32)) return absl::nullopt;
    if (const Binding* difference = DefCall(result.bytes, "sub")) {
      const absl::optional<double> zero = ir::SplatDouble(difference->args[1]);
      const bool is_byte = zero.has_value() && *zero >= -128 && *zero <= 255;
      if (!is_byte || difference->var->type != difference->args[0].type()) return absl::nullopt;
      result.zero = *zero;
      result.bytes = difference->args[0];
    }
    const Binding* widened = DefCall(result.bytes, "cast");
    if (widened == nullptr || !IsByte(widened->args[0])) return absl::nullopt;
    result.bytes = widened->args[0];
    return result;
  }

  Replacement VisitMoving(const Binding& binding) {
    absl::optional<Dequantised> first;
    std::vector<Operand> args;
    for (const Operand& arg : binding.args) {
      const absl::optional<Dequantised> one = HasOneUse(arg) ? DequantisedBy(arg) : absl::nullopt;
      if (!one.has_value() || (first.has_value() && !one->LikeThat(*first))) return absl::nullopt;
      if (!first.has_value()) first = one;
      args.push_back(one->bytes);
    }
    if (!first.has_value()) return absl::nullopt;
    INLAY_ASSIGN_OR_RETURN(const Operand moved, Call(binding.callee, std::move(args), binding.attrs));
    INLAY_ASSIGN_OR_RETURN(Operand value, Call("cast", {moved}, {{"dtype", DType::kI32}}));
    if (first->zero != 0) {
      INLAY_ASSIGN_OR_RETURN(value, Call("sub", {value, ir::MakeScalar(DType::kI32, first->zero)}));
    }
    INLAY_ASSIGN_OR_RETURN(value, Call("cast", {value}, {{"dtype", DType::kF32}}));
    INLAY_ASSIGN_OR_RETURN(value, Call("mul", {value, ir::MakeScalar(DType::kF32, first->scale)}));
    return {value};
  }

  // cast(clip(add(round(div(x, scale)), zero))) of f32, which may leave out the zero point.
  Replacement VisitCast(const Binding& cast) const {
    const DType to = cast.var->type.tensor().dtype;
    const Binding* clip = DefCall(cast.args[0], "clip");
    if (clip == nullptr || (to != DType::kI8 && to != DType::kU8)) return absl::nullopt;
    const double least = to == DType::kI8 ? -128 : 0;
    const bool clips = (clip->attrs.Has("min") && clip->attrs.Float("min") > least) ||
                       (clip->attrs.Has("max") && clip->attrs.Float("max") < least + 255);
    if (clips) return absl::nullopt;
    Operand value = clip->args[0];
    double added = 0;
    if (const Binding* add = DefCall(value, "add")) {
      const absl::optional<double> zero = ir::SplatDouble(add->args[1]);
      if (!zero.has_value()) return absl::nullopt;
      added = *zero;
      value = add->args[0];
    }
    const Binding* round = DefCall(value, "round");
    const Binding* quotient = round == nullptr ? nullptr : DefCall(round->args[0], "div");
    if (quotient == nullptr) return absl::nullopt;
    const absl::optional<Dequantised> known = DequantisedBy(quotient->args[0]);
    const absl::optional<double> scale = ir::SplatDouble(quotient->args[1]);
    if (!known.has_value() || known->bytes.type() != cast.var->type || scale != known->scale || added != known->zero) {
      return absl::nullopt;
    }
    return {known->bytes};
  }
};

class MoveQuantisedPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "move_quantised"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Mover().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> MoveQuantised() { return std::make_unique<MoveQuantisedPass>(); }

}  // namespace inlay::passes
