// Algebra that holds for every value of the dtype: NaN, infinities and signed zeros included, rounding not changed.
// (x * 0 is not 0, x + 0.0 is not x for x = -0.0, a division by 3 is not a multiplication by a third.)
//
//   add(@bias, %x)                                  add(%x, @bias)            constants second
//   add(%x, expand(%y)), same result                add(%x, %y)               tile, full, literals of one value
//   mul(%x, 1)  div(%x, 1)  pow(%x, 1)  sub(%x, 0)  %x
//   add(%x, -0.0)  add(%x, 0) of integers           %x
//   add(add(%x, 2), 3) of integers                  add(%x, 5)                also mul
//   div(%x, 8.0)                                    mul(%x, 0.125)            powers of two only
//   pow(%x, 2)                                      mul(%x, %x)
//   pow(%x, 3)                                      mul(mul(%x, %x), %x)
//   pow(%x, -1)                                     reciprocal(%x)
//   reciprocal(sqrt(%x))  div(1, sqrt(%x))          rsqrt(%x)
//   neg(neg(%x))                                    %x                        also the two nots
//   abs(abs(%x))  relu(relu(%x))                    abs(%x)  relu(%x)
//   maximum(%x, 0)                                  relu(%x)
//   where(true, %x, %y)                             %x
//   gather(%x, i64[2]{3, 4}, axis=1)                slice(%x) of that range   reshaped
#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/status_macros.h"
#include "core/ir/literal.h"
#include "core/ir/op_registry.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"
#include "core/passes/scalar_eval.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::DType;
using ir::Operand;

bool IsCommutative(absl::string_view op) {
  static const auto* ops = new std::set<absl::string_view>{"add",         "mul",         "minimum",     "maximum",
                                                           "equal",       "not_equal",   "logical_and", "logical_or",
                                                           "logical_xor", "bitwise_and", "bitwise_or",  "bitwise_xor"};
  return ops->count(op) > 0;
}

bool IsConstant(const Operand& operand) { return operand.constant != nullptr; }

bool IsPositiveZero(double v) { return v == 0 && !std::signbit(v); }

// Whether multiplying by 1/c in `dtype` gives exactly what dividing by c gives: a power of two with a normal
// reciprocal.
bool HasExactReciprocal(DType dtype, double c) {
  int exponent;
  if (!std::isfinite(c) || std::fabs(std::frexp(c, &exponent)) != 0.5) return false;
  // Far inside every float type's normal range but f16's, which ends at 2^-14.
  return std::abs(exponent) < (dtype == DType::kF16 ? 13 : 100);
}

class Simplifier : public Rewriter {
 protected:
  Replacement Visit(Binding* binding) override {
    if (binding->kind != Binding::Kind::kCall || !binding->var->type.is_tensor()) return absl::nullopt;
    const bool broadcasts = ir::PatternOf(*binding) == ir::OpPattern::kBroadcast;
    if (broadcasts && binding->args.size() >= 2 && binding->callee != "batch_norm") {
      INLAY_RETURN_IF_ERROR(DropBroadcasts(binding));
    }
    if (IsCommutative(binding->callee) && IsConstant(binding->args[0]) && !IsConstant(binding->args[1])) {
      std::swap(binding->args[0], binding->args[1]);
    }
    if (binding->args.size() == 1) return VisitUnary(*binding);
    if (binding->callee == "where") return VisitWhere(*binding);
    if (binding->callee == "gather") return VisitGather(*binding);
    if (binding->args.size() == 2 && broadcasts) return VisitBinary(binding);
    return absl::nullopt;
  }

 private:
  // What an argument was before it was broadcast; nullopt where it was not.
  absl::optional<Operand> Unbroadcast(const Operand& operand) {
    if (const absl::optional<double> splat = ir::SplatDouble(operand); splat && operand.tensor_type().rank() > 0) {
      const ir::Constant& literal = *operand.constant;
      return Operand(ir::MakeLiteral(ir::TensorType{literal.type.dtype, {}},
                                     literal.data.substr(0, ir::ByteSize(literal.type.dtype))));
    }
    const Binding* def = Def(operand);
    if (def == nullptr || def->kind != Binding::Kind::kCall) return absl::nullopt;
    if (def->callee == "expand") return def->args[0];
    if (def->callee == "full") {
      std::string data;
      const DType dtype = operand.tensor_type().dtype;
      if (ir::IsFloat(dtype)) {
        ir::AppendDouble(dtype, def->attrs.Float("value"), &data);
      } else {
        ir::AppendInt(dtype, def->attrs.Int("value"), &data);
      }
      return Operand(ir::MakeLiteral(ir::TensorType{dtype, {}}, data));
    }
    if (def->callee == "tile") {
      const ir::TensorType& x = def->args[0].tensor_type();
      for (int i = 0; i < x.rank(); ++i) {
        if (x.dims[i] != ir::Dim(1) && def->attrs.Ints("repeats")[i] != 1) return absl::nullopt;
      }
      return def->args[0];
    }
    return absl::nullopt;
  }

  absl::Status DropBroadcasts(Binding* binding) {
    for (Operand& arg : binding->args) {
      const absl::optional<Operand> smaller = Unbroadcast(arg);
      if (!smaller.has_value()) continue;
      const Operand larger = arg;
      arg = *smaller;
      ir::Attrs attrs = binding->attrs;
      absl::StatusOr<ir::Type> type = ir::OpRegistry::Global().Infer(binding->callee, binding->args, &attrs);
      if (!type.ok() || *type != binding->var->type) arg = larger;
    }
    return absl::OkStatus();
  }

  Replacement VisitUnary(const Binding& binding) {
    const std::string& op = binding.callee;
    const Operand& x = binding.args[0];
    const Binding* inner = Def(x);
    if (inner == nullptr || inner->kind != Binding::Kind::kCall) return absl::nullopt;
    if (inner->callee == op) {
      if (op == "neg" || op == "logical_not" || op == "bitwise_not") return {inner->args[0]};
      if (op == "abs" || op == "relu" || op == "floor" || op == "ceil" || op == "round" || op == "sign") return {x};
    }
    if (op == "reciprocal" && inner->callee == "sqrt") return Emit("rsqrt", {inner->args[0]});
    return absl::nullopt;
  }

  Replacement VisitWhere(const Binding& binding) {
    const absl::optional<double> condition = ir::SplatDouble(binding.args[0]);
    if (!condition.has_value()) return absl::nullopt;
    const Operand& taken = binding.args[*condition != 0 ? 1 : 2];
    if (taken.type() == binding.var->type) return {taken};
    if (!binding.var->type.tensor().is_static()) return absl::nullopt;
    return Emit("expand", {taken}, {{"shape", binding.var->type.tensor().Shape()}});
  }

  // Indices that are literals and follow each other are a range.
  Replacement VisitGather(const Binding& binding) {
    const ir::TensorType& x = binding.args[0].tensor_type();
    const int64_t axis = binding.attrs.Int("axis");
    if (!binding.args[1].is_literal() || !x.is_static()) return absl::nullopt;
    const std::vector<int64_t> indices = ir::IntElements(*binding.args[1].constant);
    if (indices.empty()) return absl::nullopt;
    const int64_t extent = x.dims[axis].value();
    int64_t begin = indices[0] < 0 ? indices[0] + extent : indices[0];
    begin = std::max<int64_t>(0, std::min(begin, extent - 1));
    for (size_t i = 1; i < indices.size(); ++i) {
      // One that is negative or out of range among several is left to gather.
      if (indices[i] != begin + static_cast<int64_t>(i) || indices[i] >= extent) return absl::nullopt;
    }
    std::vector<int64_t> begins(x.rank(), 0), ends = x.Shape();
    begins[axis] = begin;
    ends[axis] = begin + static_cast<int64_t>(indices.size());
    INLAY_ASSIGN_OR_RETURN(Operand out, Call("slice", {binding.args[0]}, {{"begins", begins}, {"ends", ends}}));
    if (out.type() == binding.var->type) return {out};
    return Emit("reshape", {out}, {{"shape", binding.var->type.tensor().Shape()}});
  }

  Replacement VisitBinary(Binding* binding) {
    const std::string& op = binding->callee;
    const Operand &x = binding->args[0], &y = binding->args[1];
    const DType dtype = x.tensor_type().dtype;
    if (op == "div" && ir::IsFloat(dtype) && ir::SplatDouble(x) == 1.0) {
      const Binding* root = DefCall(y, "sqrt");
      if (root != nullptr && y.type() == binding->var->type) return Emit("rsqrt", {root->args[0]});
    }
    const absl::optional<double> c = ir::SplatDouble(y);
    // From here on: x op literal, where the literal does not broadcast x.
    if (!c.has_value() || x.type() != (ir::Type(ir::TensorType{dtype, binding->var->type.tensor().dims}))) {
      return absl::nullopt;
    }
    if (op == "maximum" && *c == 0 && (!ir::IsFloat(dtype) || IsPositiveZero(*c))) return Emit("relu", {x});
    if (binding->var->type != x.type()) return absl::nullopt;  // comparisons
    if ((op == "mul" || op == "div" || op == "pow") && *c == 1) return {x};
    if (op == "pow") return VisitPow(x, *c);
    if (!ir::IsFloat(dtype)) {
      if ((op == "add" || op == "sub") && *c == 0) return {x};
      return MergeInts(*binding);
    }
    if (op == "sub" && IsPositiveZero(*c)) return {x};
    if (op == "add" && *c == 0 && std::signbit(*c)) return {x};
    if (op == "div" && HasExactReciprocal(dtype, *c)) return Emit("mul", {x, ir::MakeScalar(dtype, 1 / *c)});
    return absl::nullopt;
  }

  Replacement VisitPow(const Operand& x, double exponent) {
    if (exponent == 2) return Emit("mul", {x, x});
    if (exponent == 3) {
      INLAY_ASSIGN_OR_RETURN(Operand square, Call("mul", {x, x}));
      return Emit("mul", {square, x});
    }
    if (exponent == -1 && ir::IsFloat(x.tensor_type().dtype)) return Emit("reciprocal", {x});
    return absl::nullopt;
  }

  // (x + 2) + 3 = x + 5: integers wrap, so this holds always.
  Replacement MergeInts(const Binding& binding) {
    if (binding.callee != "add" && binding.callee != "mul") return absl::nullopt;
    const Binding* inner = DefCall(binding.args[0], binding.callee);
    if (inner == nullptr || !ir::SplatDouble(inner->args[1]).has_value()) return absl::nullopt;
    if (inner->args[0].type() != binding.var->type) return absl::nullopt;
    const DType dtype = binding.var->type.tensor().dtype;
    const absl::optional<Scalar> merged = EvalBinary(binding.callee, Load(dtype, inner->args[1].constant->data, 0),
                                                     Load(dtype, binding.args[1].constant->data, 0));
    std::string data;
    Append(*merged, &data);
    return Emit(binding.callee, {inner->args[0], ir::MakeLiteral(ir::TensorType{dtype, {}}, data)});
  }

  Replacement Emit(absl::string_view op, std::vector<Operand> args, ir::Attrs attrs = {}) {
    INLAY_ASSIGN_OR_RETURN(Operand out, Call(op, std::move(args), std::move(attrs)));
    return {out};
  }
};

class SimplifyPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "simplify"; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    return Simplifier().Run(std::move(function));
  }
};

}  // namespace

std::unique_ptr<Pass> Simplify() { return std::make_unique<SimplifyPass>(); }

}  // namespace inlay::passes
