// Elementwise operators, with one argument and with several (broadcast).
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/backends/csource/kernel_emitter.h"
#include "core/backends/csource/op.h"
#include "core/ir/literal.h"

namespace inlay::csource {
namespace {

using ir::DType;
using Args = std::vector<Expr>;
// The value from the arguments' values. `dtype`: what the first argument is computed in.
using Function = std::function<Expr(const Node&, DType dtype, const Args&)>;

constexpr int kSimple = 1, kDivision = 4, kMathematics = 20;

std::string Named(const std::string& function, DType dtype) {
  return absl::StrCat("inlay_", function, "_", std::string(ir::Name(dtype)));
}

void Add(OpTable* ops, const std::string& name, int cost, Function function) {
  Op op;
  op.cost = cost;
  op.pointwise = true;
  op.element = [function = std::move(function)](KernelEmitter& e, const Node& node, int, const Index& at) {
    Args args;
    for (const Tensor* in : node.inputs) args.push_back(e.BroadcastValue(*in, at));
    return Wrapped(node.out().dtype, function(node, ComputeDType(node.in(0).dtype), args));
  };
  (*ops)[name] = std::move(op);
}

// inlay_<function>_<dtype>(args...)
Function OfPrelude(const std::string& function) {
  return [function](const Node&, DType dtype, const Args& args) { return Call(Named(function, dtype), args); };
}

Function OfMath(const std::string& function) {
  return [function](const Node&, DType dtype, const Args& args) { return CallMath(function, dtype, args); };
}

template <typename F>
Function OfExpr(F f) {
  return [f](const Node&, DType, const Args& args) { return f(args[0], args[1]); };
}

bool IsF(DType dtype) { return ir::IsFloat(dtype); }
Expr Maximum(DType dtype, const Expr& a, const Expr& b) { return Call(Named("maximum", dtype), {a, b}); }
Expr Minimum(DType dtype, const Expr& a, const Expr& b) { return Call(Named("minimum", dtype), {a, b}); }

// A bound that the type does not have bounds nothing; a fraction bounds where the next integer does.
Expr Clip(const Node& node, DType dtype, const Args& args) {
  Expr x = args[0];
  for (const bool is_min : {true, false}) {
    const char* name = is_min ? "min" : "max";
    if (!node.attrs().Has(name)) continue;
    const double bound = node.attrs().Float(name);
    Expr limit;
    if (IsF(dtype)) {
      // Rounded to the tensor's own type, as the bound of an f16 clip is one.
      limit = Number(dtype, ir::RoundTo(node.in(0).dtype, bound));
    } else {
      const double whole = is_min ? std::ceil(bound) : std::floor(bound);
      const int bits = static_cast<int>(8 * ir::ByteSize(dtype)) - (ir::IsSigned(dtype) ? 1 : 0);
      const double high = std::ldexp(1.0, bits), low = ir::IsSigned(dtype) ? -high : 0;
      const bool beyond_high = !(whole < high), beyond_low = whole < low;
      if (is_min ? beyond_low : beyond_high) continue;
      const double clamped = beyond_high ? high : beyond_low ? low : whole;
      limit = beyond_high ? Integer(dtype, bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1)
                          : Integer(dtype, static_cast<int64_t>(clamped));
    }
    x = is_min ? Maximum(dtype, x, limit) : Minimum(dtype, x, limit);
  }
  return x;
}

Expr Cast(const Node& node, DType, const Args& args) {
  const DType from = node.in(0).dtype, to = node.out().dtype;
  const Expr& x = args[0];
  const DType computed = ComputeDType(from), wanted = ComputeDType(to);
  if (to == DType::kBool) return CastTo("uint8_t", x != Number(computed, 0));
  if (IsF(computed) && !IsF(wanted)) {
    return Call(absl::StrCat("inlay_", std::string(ir::Name(computed)), "_to_", std::string(ir::Name(wanted))), {x});
  }
  // Rounded here, whether or not the value ever reaches memory; from a double in one step.
  if (to == DType::kF16 || to == DType::kBF16) {
    if (from == to) return x;
    const std::string name(ir::Name(to));
    const bool wide = computed == DType::kF64;
    const Expr argument = wide ? x : CastTo("float", x);
    return Call("inlay_load_" + name, {Call("inlay_store_" + name + (wide ? "_f64" : ""), {argument})});
  }
  return computed == wanted ? x : CastTo(ComputeType(to), x);
}

Expr IsInf(const Node& node, DType dtype, const Args& args) {
  Expr result = CastTo("uint8_t", Expr(0));
  const Expr inf = Number(dtype, INFINITY), minus = Number(dtype, -INFINITY);
  const bool positive = node.attrs().BoolOr("positive", true), negative = node.attrs().BoolOr("negative", true);
  if (positive && negative) return CastTo("uint8_t", args[0] == inf || args[0] == minus);
  if (positive) return CastTo("uint8_t", args[0] == inf);
  if (negative) return CastTo("uint8_t", args[0] == minus);
  return result;
}

void AddUnary(OpTable* ops) {
  Add(ops, "neg", kSimple, [](const Node&, DType dtype, const Args& a) {
    return IsF(dtype) ? Negate(a[0]) : Difference(dtype, Integer(dtype, 0), a[0]);
  });
  Add(ops, "abs", kSimple, [](const Node&, DType dtype, const Args& a) {
    if (IsF(dtype)) return CallMath("fabs", dtype, a);
    return ir::IsSigned(dtype) ? Select(a[0] < Integer(dtype, 0), Difference(dtype, Integer(dtype, 0), a[0]), a[0])
                               : a[0];
  });
  Add(ops, "sign", kSimple, OfPrelude("sign"));
  Add(ops, "relu", kSimple,
      [](const Node&, DType dtype, const Args& a) { return Maximum(dtype, a[0], Number(dtype, 0)); });
  for (const char* name : {"exp", "tanh", "erf", "sigmoid", "silu", "softplus"})
    Add(ops, name, kMathematics, OfPrelude(name));
  Add(ops, "rsqrt", kMathematics, OfPrelude("rsqrt"));
  for (const char* name :
       {"log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"}) {
    Add(ops, name, 2 * kMathematics, OfMath(name));
  }
  Add(ops, "sqrt", kDivision, OfMath("sqrt"));
  Add(ops, "floor", kSimple, OfMath("floor"));
  Add(ops, "ceil", kSimple, OfMath("ceil"));
  Add(ops, "round", kSimple, OfMath("rint"));  // to even: the mode that processes run in
  Add(ops, "reciprocal", kDivision, [](const Node&, DType dtype, const Args& a) { return Number(dtype, 1) / a[0]; });
  Add(ops, "gelu", kMathematics, [](const Node& node, DType dtype, const Args& a) {
    const bool tanh = node.attrs().StringOr("approximate", "none") == "tanh";
    return Call(Named(tanh ? "gelu_tanh" : "gelu", dtype), a);
  });
  Add(ops, "leaky_relu", kSimple, [](const Node& node, DType dtype, const Args& a) {
    return Select(a[0] < Number(dtype, 0), Number(dtype, node.attrs().FloatOr("alpha", 0.01)) * a[0], a[0]);
  });
  Add(ops, "elu", 2 * kMathematics, [](const Node& node, DType dtype, const Args& a) {
    const Expr expm1 = Call(dtype == DType::kF32 ? "expm1f" : "expm1", a);
    return Select(a[0] < Number(dtype, 0), Number(dtype, node.attrs().FloatOr("alpha", 1)) * expm1, a[0]);
  });
  Add(ops, "hard_sigmoid", kSimple, [](const Node& node, DType dtype, const Args& a) {
    const Expr line =
        Number(dtype, node.attrs().FloatOr("alpha", 0.2)) * a[0] + Number(dtype, node.attrs().FloatOr("beta", 0.5));
    return Minimum(dtype, Maximum(dtype, line, Number(dtype, 0)), Number(dtype, 1));
  });
  Add(ops, "clip", kSimple, Clip);
  Add(ops, "logical_not", kSimple, [](const Node&, DType, const Args& a) { return CastTo("uint8_t", !a[0]); });
  Add(ops, "bitwise_not", kSimple, [](const Node&, DType, const Args& a) { return Complement(a[0]); });
  Add(ops, "isnan", kSimple, [](const Node&, DType, const Args& a) { return CastTo("uint8_t", a[0] != a[0]); });
  Add(ops, "isinf", kSimple, IsInf);
  Add(ops, "cast", kSimple, Cast);
  Add(ops, "identity", kSimple, [](const Node&, DType, const Args& a) { return a[0]; });
}

Expr Pow(const Node& node, DType dtype, const Args& a) {
  const bool single = dtype == DType::kF32;
  const Expr exponent = ComputeDType(node.in(1).dtype) == dtype ? a[1] : CastTo(ComputeType(dtype), a[1]);
  return Call(single ? "powf" : "pow", {a[0], exponent});
}

absl::Status CheckPow(const ir::Binding& call) {
  if (IsF(call.args[0].tensor_type().dtype)) return absl::OkStatus();
  return absl::UnimplementedError("a power of integers");
}

void AddBinary(OpTable* ops) {
  Add(ops, "add", kSimple, [](const Node&, DType dtype, const Args& a) { return Sum(dtype, a[0], a[1]); });
  Add(ops, "sub", kSimple, [](const Node&, DType dtype, const Args& a) { return Difference(dtype, a[0], a[1]); });
  Add(ops, "mul", kSimple, [](const Node&, DType dtype, const Args& a) { return csource::Product(dtype, a[0], a[1]); });
  Add(ops, "div", kDivision,
      [](const Node&, DType dtype, const Args& a) { return IsF(dtype) ? a[0] / a[1] : Call(Named("div", dtype), a); });
  Add(ops, "mod", kMathematics, [](const Node& node, DType dtype, const Args& a) {
    if (IsF(dtype)) return Call(dtype == DType::kF32 ? "fmodf" : "fmod", a);
    return Call(Named(node.attrs().BoolOr("fmod", false) ? "fmod" : "mod", dtype), a);
  });
  Add(ops, "minimum", kSimple, OfPrelude("minimum"));
  Add(ops, "maximum", kSimple, OfPrelude("maximum"));
  Add(ops, "pow", 2 * kMathematics, Pow);
  (*ops)["pow"].check = CheckPow;
  auto truth = [](Expr e) { return CastTo("uint8_t", e); };
  Add(ops, "equal", kSimple, OfExpr([=](const Expr& a, const Expr& b) { return truth(a == b); }));
  Add(ops, "not_equal", kSimple, OfExpr([=](const Expr& a, const Expr& b) { return truth(a != b); }));
  Add(ops, "less", kSimple, OfExpr([=](const Expr& a, const Expr& b) { return truth(a < b); }));
  Add(ops, "less_equal", kSimple, OfExpr([=](const Expr& a, const Expr& b) { return truth(b >= a); }));
  Add(ops, "greater", kSimple, OfExpr([=](const Expr& a, const Expr& b) { return truth(a > b); }));
  Add(ops, "greater_equal", kSimple, OfExpr([=](const Expr& a, const Expr& b) { return truth(a >= b); }));
  auto bits = [&](const char* name, char op) {
    Add(ops, name, kSimple, OfExpr([op](const Expr& a, const Expr& b) { return Bits(op, a, b); }));
  };
  bits("logical_and", '&'), bits("logical_or", '|'), bits("logical_xor", '^');  // of 0 and 1
  bits("bitwise_and", '&'), bits("bitwise_or", '|'), bits("bitwise_xor", '^');
  Add(ops, "shift_left", kSimple, OfPrelude("shift_left"));
  Add(ops, "shift_right", kSimple, OfPrelude("shift_right"));
  Add(ops, "where", kSimple, [](const Node&, DType, const Args& a) { return Select(a[0], a[1], a[2]); });
}

// (x - mean) / sqrt(var + epsilon) * scale + bias, all but x by the channel.
Expr BatchNorm(KernelEmitter& e, const Node& node, int, const Index& at) {
  const DType dtype = ComputeDType(node.in(0).dtype);
  auto channel = [&](int arg) { return e.Value(node.in(arg), {at[1]}); };
  const Expr epsilon = Number(dtype, node.attrs().FloatOr("epsilon", 1e-5));
  const Expr root = Call(dtype == DType::kF32 ? "sqrtf" : "sqrt", {channel(4) + epsilon});
  return (e.Value(node.in(0), at) - channel(3)) / root * channel(1) + channel(2);
}

}  // namespace

void AddElementwise(OpTable* ops) {
  AddUnary(ops);
  AddBinary(ops);
  Op batch_norm;
  batch_norm.cost = 3 * kDivision;
  batch_norm.element = BatchNorm;
  (*ops)["batch_norm"] = std::move(batch_norm);
}

}  // namespace inlay::csource
