// Elementwise operators of one and several arguments.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "core/backends/native/eval.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/math.h"
#include "core/ir/literal.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

using Unary = std::function<Value(Ops&, const Node&, Value)>;
using Binary = std::function<Value(Ops&, const Node&, Value, Value)>;

Lowering Pointwise(int cost, std::function<Value(Eval&, const Node&, const Indices&)> element) {
  Lowering lowering;
  lowering.pointwise = true;
  lowering.cost = cost;
  lowering.element = [element](Eval& e, const Node& node, int, const Indices& at) { return element(e, node, at); };
  return lowering;
}

Lowering OfOne(int cost, Unary f) {
  return Pointwise(cost, [f](Eval& e, const Node& n, const Indices& at) {
    return f(e.o, n, e.At(n.in(0), e.BroadcastTo(n.in(0), at)));
  });
}

Lowering OfTwo(int cost, Binary f) {
  return Pointwise(cost, [f](Eval& e, const Node& n, const Indices& at) {
    Value x = e.At(n.in(0), e.BroadcastTo(n.in(0), at));
    Value y = e.At(n.in(1), e.BroadcastTo(n.in(1), at));
    return f(e.o, n, x, y);
  });
}

DType In(const Node& n) { return n.in(0).dtype; }
bool FloatIn(const Node& n) { return ir::IsFloat(In(n)); }
Value Zero(Ops& o, Value like) { return o.Const(like.getType(), 0); }
Value One(Ops& o, Value like) { return o.Const(like.getType(), 1); }

Value Neg(Ops& o, const Node& n, Value x) { return FloatIn(n) ? o.NegF(x) : o.SubI(Zero(o, x), x); }

Value Abs(Ops& o, const Node& n, Value x) {
  if (FloatIn(n)) return o.AbsF(x);
  if (!ir::IsSigned(In(n))) return x;
  return o.Select(o.CompareI(Compare::kLt, x, Zero(o, x), true), o.SubI(Zero(o, x), x), x);
}

Value Sign(Ops& o, const Node& n, Value x) {
  Value zero = Zero(o, x);
  Value result = o.Select(o.CompareN(Compare::kGt, In(n), x, zero), One(o, x), zero);
  result = o.Select(o.CompareN(Compare::kLt, In(n), x, zero), o.Const(x.getType(), -1), result);
  return FloatIn(n) ? o.Select(o.IsNan(x), x, result) : result;
}

// A divisor that is known and whose reciprocal is normal, as is that of what it leaves of ordinary dividends.
std::optional<float> KnownDivisor(const Ops& o, const Node& n) {
  const Tensor& y = n.in(1);
  if (!o.cpu().fma || n.out().dtype != DType::kF32 || y.literal == nullptr || y.Elements() != Extent(1)) return {};
  const auto divisor = static_cast<float>(ir::ElementAsDouble(y.dtype, y.literal->data, 0));
  const float magnitude = std::abs(divisor);
  if (!(magnitude > 0x1p-64f && magnitude < 0x1p64f)) return {};
  return divisor;
}

// Two fused multiply-adds make x times the reciprocal the correctly rounded quotient (Brisebarre, Muller and Raina,
// "Accelerating correctly rounded floating-point division when the divisor is known in advance", 2004), unless x is
// less than 1e-19 or so: a tenth of the time of a division of 512 bits.
Value Divide(Ops& o, const Node& n, Value x, Value y) {
  const std::optional<float> divisor = KnownDivisor(o, n);
  if (!divisor) return o.DivN(In(n), x, y);
  const Value reciprocal = o.ConstF(x.getType(), static_cast<float>(1.0 / *divisor));
  const Value quotient = o.MulF(x, reciprocal);
  const Value rest = o.Fma(o.NegF(quotient), y, x);
  const Value rounded = o.Fma(rest, reciprocal, quotient);
  // Zeros keep their sign, infinities do not become NaN.
  const Value bits = o.Bitcast(o.AbsF(quotient), o.b.getI32Type());
  const Value less_one = o.SubI(bits, o.ConstI(bits.getType(), 1));
  const Value ordinary = o.CompareI(Compare::kLt, less_one, o.ConstI(bits.getType(), 0x7f7fffff), false);
  return o.Select(ordinary, rounded, quotient);
}

// 0 > NaN is false, so NaN passes; one maxps.
Value Relu(Ops& o, const Node& n, Value x) {
  return o.Select(o.CompareN(Compare::kGt, In(n), Zero(o, x), x), Zero(o, x), x);
}

Value GeluOf(Ops& o, const Node& n, Value x) {
  return n.attrs->StringOr("approximate", "none") == "tanh" ? GeluTanh(o, x) : Gelu(o, x);
}

Value LeakyRelu(Ops& o, const Node& n, Value x) {
  Value scaled = o.MulF(x, o.ConstF(x.getType(), n.attrs->FloatOr("alpha", 0.01)));
  return o.Select(o.CompareF(Compare::kLt, x, Zero(o, x)), scaled, x);
}

// exp(x) - 1 loses digits near 0: there the series, up to the term that f32 still sees.
Value ExpMinusOne(Ops& o, Value x) {
  if (!mlir::cast<mlir::FloatType>(mlir::getElementTypeOrSelf(x.getType())).isF32()) return o.Libm("expm1", {x});
  Value series = o.Fma(x, o.ConstF(x.getType(), 1.0 / 120), o.ConstF(x.getType(), 1.0 / 24));
  series = o.Fma(series, x, o.ConstF(x.getType(), 1.0 / 6));
  series = o.Fma(series, x, o.ConstF(x.getType(), 0.5));
  series = o.Fma(o.MulF(x, x), series, x);
  Value small = o.CompareF(Compare::kLt, o.AbsF(x), o.ConstF(x.getType(), 0.125));
  return o.Select(small, series, o.SubF(Exp(o, x), One(o, x)));
}

Value Elu(Ops& o, const Node& n, Value x) {
  Value negative = o.MulF(o.ConstF(x.getType(), n.attrs->FloatOr("alpha", 1.0)), ExpMinusOne(o, x));
  return o.Select(o.CompareF(Compare::kLt, x, Zero(o, x)), negative, x);
}

Value HardSigmoid(Ops& o, const Node& n, Value x) {
  Value y = o.Fma(x, o.ConstF(x.getType(), n.attrs->FloatOr("alpha", 0.2)),
                  o.ConstF(x.getType(), n.attrs->FloatOr("beta", 0.5)));
  Value zero = Zero(o, x), one = One(o, x);
  y = o.Select(o.CompareF(Compare::kGt, zero, y), zero, y);
  return o.Select(o.CompareF(Compare::kLt, one, y), one, y);
}

// A bound as a constant of the integer type, saturated.
Value IntBound(Ops& o, DType dtype, mlir::Type type, double bound, bool lower) {
  double low = ir::IsSigned(dtype) ? -std::ldexp(1.0, 8 * ir::ByteSize(dtype) - 1) : 0;
  double high = std::ldexp(1.0, 8 * static_cast<int>(ir::ByteSize(dtype)) - (ir::IsSigned(dtype) ? 1 : 0));
  bound = lower ? std::ceil(bound) : std::floor(bound);
  if (bound <= low) return o.LowestN(dtype, type);
  if (bound >= high) return o.HighestN(dtype, type);
  return o.ConstI(type, static_cast<int64_t>(bound));
}

Value Clip(Ops& o, const Node& n, Value x) {
  auto bound = [&](const char* name, bool lower) {
    double v = n.attrs->Float(name);
    return FloatIn(n) ? o.ConstF(x.getType(), v) : IntBound(o, In(n), x.getType(), v, lower);
  };
  Value y = x;
  if (n.attrs->Has("min")) {
    Value low = bound("min", true);
    y = o.Select(o.CompareN(Compare::kGt, In(n), low, y), low, y);
  }
  if (n.attrs->Has("max")) {
    Value high = bound("max", false);
    y = o.Select(o.CompareN(Compare::kLt, In(n), high, y), high, y);
  }
  return y;
}

Value IsInf(Ops& o, const Node& n, Value x) {
  double infinity = std::numeric_limits<double>::infinity();
  Value result = o.ConstI(Ops::WithElement(x.getType(), o.b.getI1Type()), 0);
  if (n.attrs->BoolOr("positive", true)) {
    result = o.Or(result, o.CompareF(Compare::kEq, x, o.ConstF(x.getType(), infinity)));
  }
  if (n.attrs->BoolOr("negative", true)) {
    result = o.Or(result, o.CompareF(Compare::kEq, x, o.ConstF(x.getType(), -infinity)));
  }
  return result;
}

Value Mod(Ops& o, const Node& n, Value x, Value y) {
  if (FloatIn(n)) return o.RemF(x, y);
  bool is_signed = ir::IsSigned(In(n));
  Value r = o.RemI(x, y, is_signed);
  if (n.attrs->BoolOr("fmod", false) || !is_signed) return r;
  // Python's: a non-zero remainder takes the divisor's sign.
  Value zero = Zero(o, x);
  Value differs = o.CompareI(Compare::kLt, o.Xor(r, y), zero, true);
  Value nonzero = o.And(o.CompareI(Compare::kNe, r, zero, true), o.CompareI(Compare::kNe, y, zero, true));
  return o.Select(o.And(differs, nonzero), o.AddI(r, y), r);
}

// One literal element that y is, if it is.
bool ScalarLiteral(const Tensor& t, double* value) {
  if (t.literal == nullptr || t.NumElements() != 1 || t.dtype != DType::kF32) return false;
  float f;
  memcpy(&f, t.literal->data.data(), 4);
  *value = f;
  return true;
}

Value Power(Ops& o, const Node& n, Value x, Value y) {
  DType dx = n.in(0).dtype, dy = n.in(1).dtype;
  double exponent;
  if (ir::IsFloat(dx) && ScalarLiteral(n.in(1), &exponent)) {
    if (exponent == 1) return x;
    if (exponent == 2) return o.MulF(x, x);
    if (exponent == 3) return o.MulF(o.MulF(x, x), x);
    if (exponent == -1) return o.DivF(One(o, x), x);
  }
  if (ir::IsFloat(dx)) {
    if (!ir::IsFloat(dy) || (dy == DType::kF64) != (dx == DType::kF64)) {
      // In f64, where every exponent type fits.
      Value wide = o.Libm("pow", {o.Cast(dx, DType::kF64, x), o.Cast(dy, DType::kF64, y)});
      return dx == DType::kF64 ? wide : o.Cast(DType::kF64, DType::kF32, wide);
    }
    return Pow(o, x, y);
  }
  if (ir::IsFloat(dy)) {
    return o.Cast(DType::kF64, dx, o.Libm("pow", {o.Cast(dx, DType::kF64, x), o.Cast(dy, DType::kF64, y)}));
  }
  return PowInt(o, x, y, ir::IsSigned(dx), ir::IsSigned(dy));
}

Value ShiftBy(Ops& o, const Node& n, Value x, Value y, bool left) {
  bool is_signed = ir::IsSigned(In(n));
  Value width = o.ConstI(x.getType(), 8 * ir::ByteSize(In(n)));
  Value fits = o.CompareI(Compare::kLt, y, width, false);  // unsigned: negative amounts are large
  Value by = o.Select(fits, y, Zero(o, x));
  Value beyond = Zero(o, x);
  if (!left && is_signed) beyond = o.ShiftRight(x, o.ConstI(x.getType(), 8 * ir::ByteSize(In(n)) - 1), true);
  return o.Select(fits, left ? o.ShiftLeft(x, by) : o.ShiftRight(x, by, is_signed), beyond);
}

Lowering Comparison(Compare predicate) {
  return OfTwo(1, [predicate](Ops& o, const Node& n, Value x, Value y) { return o.CompareN(predicate, In(n), x, y); });
}

Lowering Where() {
  return Pointwise(1, [](Eval& e, const Node& n, const Indices& at) {
    Value c = e.At(n.in(0), e.BroadcastTo(n.in(0), at));
    Value x = e.At(n.in(1), e.BroadcastTo(n.in(1), at));
    return e.o.Select(c, x, e.At(n.in(2), e.BroadcastTo(n.in(2), at)));
  });
}

}  // namespace

void RegisterElementwise(LoweringTable* table) {
  LoweringTable& t = *table;
  t["neg"] = OfOne(1, Neg);
  t["abs"] = OfOne(1, Abs);
  t["sign"] = OfOne(3, Sign);
  t["exp"] = OfOne(12, [](Ops& o, const Node&, Value x) { return Exp(o, x); });
  t["log"] = OfOne(15, [](Ops& o, const Node&, Value x) { return Log(o, x); });
  t["sqrt"] = OfOne(6, [](Ops& o, const Node&, Value x) { return o.Sqrt(x); });
  t["rsqrt"] = OfOne(10, [](Ops& o, const Node&, Value x) { return o.DivF(One(o, x), o.Sqrt(x)); });
  t["reciprocal"] = OfOne(6, [](Ops& o, const Node&, Value x) { return o.DivF(One(o, x), x); });
  t["sin"] = OfOne(25, [](Ops& o, const Node&, Value x) { return Sin(o, x); });
  t["cos"] = OfOne(25, [](Ops& o, const Node&, Value x) { return Cos(o, x); });
  for (const char* name : {"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"}) {
    t[name] = OfOne(200, [name](Ops& o, const Node&, Value x) { return o.Libm(name, {x}); });
  }
  t["tanh"] = OfOne(25, [](Ops& o, const Node&, Value x) { return Tanh(o, x); });
  t["erf"] = OfOne(20, [](Ops& o, const Node&, Value x) { return Erf(o, x); });
  t["sigmoid"] = OfOne(20, [](Ops& o, const Node&, Value x) { return Sigmoid(o, x); });
  t["floor"] = OfOne(1, [](Ops& o, const Node&, Value x) { return o.Floor(x); });
  t["ceil"] = OfOne(1, [](Ops& o, const Node&, Value x) { return o.Ceil(x); });
  t["round"] = OfOne(1, [](Ops& o, const Node&, Value x) { return o.RoundEven(x); });
  t["relu"] = OfOne(1, Relu);
  t["gelu"] = OfOne(20, GeluOf);
  t["silu"] = OfOne(20, [](Ops& o, const Node&, Value x) { return Silu(o, x); });
  t["softplus"] = OfOne(35, [](Ops& o, const Node&, Value x) { return Softplus(o, x); });
  t["leaky_relu"] = OfOne(2, LeakyRelu);
  t["elu"] = OfOne(15, Elu);
  t["hard_sigmoid"] = OfOne(3, HardSigmoid);
  t["clip"] = OfOne(2, Clip);
  t["logical_not"] = OfOne(1, [](Ops& o, const Node&, Value x) { return o.Not(x); });
  t["bitwise_not"] = OfOne(1, [](Ops& o, const Node&, Value x) { return o.Not(x); });
  t["isnan"] = OfOne(1, [](Ops& o, const Node&, Value x) { return o.IsNan(x); });
  t["isinf"] = OfOne(2, IsInf);

  t["add"] = OfTwo(1, [](Ops& o, const Node& n, Value x, Value y) { return o.AddN(In(n), x, y); });
  t["sub"] = OfTwo(1, [](Ops& o, const Node& n, Value x, Value y) { return o.SubN(In(n), x, y); });
  t["mul"] = OfTwo(1, [](Ops& o, const Node& n, Value x, Value y) { return o.MulN(In(n), x, y); });
  t["div"] = OfTwo(5, Divide);
  t["minimum"] = OfTwo(2, [](Ops& o, const Node& n, Value x, Value y) { return o.MinN(In(n), x, y); });
  t["maximum"] = OfTwo(2, [](Ops& o, const Node& n, Value x, Value y) { return o.MaxN(In(n), x, y); });
  t["mod"] = OfTwo(30, Mod);
  t["pow"] = OfTwo(200, Power);
  t["equal"] = Comparison(Compare::kEq);
  t["not_equal"] = Comparison(Compare::kNe);
  t["less"] = Comparison(Compare::kLt);
  t["less_equal"] = Comparison(Compare::kLe);
  t["greater"] = Comparison(Compare::kGt);
  t["greater_equal"] = Comparison(Compare::kGe);
  for (const char* name : {"logical_and", "bitwise_and"}) {
    t[name] = OfTwo(1, [](Ops& o, const Node&, Value x, Value y) { return o.And(x, y); });
  }
  for (const char* name : {"logical_or", "bitwise_or"}) {
    t[name] = OfTwo(1, [](Ops& o, const Node&, Value x, Value y) { return o.Or(x, y); });
  }
  for (const char* name : {"logical_xor", "bitwise_xor"}) {
    t[name] = OfTwo(1, [](Ops& o, const Node&, Value x, Value y) { return o.Xor(x, y); });
  }
  t["shift_left"] = OfTwo(3, [](Ops& o, const Node& n, Value x, Value y) { return ShiftBy(o, n, x, y, true); });
  t["shift_right"] = OfTwo(3, [](Ops& o, const Node& n, Value x, Value y) { return ShiftBy(o, n, x, y, false); });
  t["where"] = Where();
}

}  // namespace inlay::native
