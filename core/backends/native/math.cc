#include "core/backends/native/math.h"

#include <initializer_list>
#include <limits>

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

namespace {

bool IsF32(Value x) { return mlir::getElementTypeOrSelf(x.getType()).isF32(); }

// Highest power first.
Value Polynomial(Ops& o, Value x, std::initializer_list<double> coefficients) {
  Value y;
  for (double c : coefficients) {
    Value constant = o.ConstF(x.getType(), c);
    y = y ? o.Fma(y, x, constant) : constant;
  }
  return y;
}

// The expansions' constants are those of Cephes (expf, logf, tanhf); exp with FMA is a minimax fit of its own.
constexpr uint32_t kMagicBits = 0x4b400000;  // of 1.5 * 2^23
constexpr int kBias = 127;                   // of f32's exponents

// x = n ln 2 + r; gives r. Adding 1.5 * 2^23 rounds n to an integer and leaves n + `bias` in the low bits of `shifted`:
// no conversion that NaN would make undefined.
Value Reduced(Ops& o, Value x, int bias, Value* shifted) {
  Type type = x.getType();
  Value magic = o.ConstF(type, 12582912.0 + bias);
  *shifted = o.Fma(x, o.ConstF(type, 1.44269504088896341), magic);
  Value n = o.SubF(*shifted, magic);
  Value r = o.Fma(n, o.ConstF(type, -0.693359375), x);
  return o.Fma(n, o.ConstF(type, 2.12194440e-4), r);
}

// 2^n of what Reduced left with kBias, n from -127 to 127.
Value PowerOfTwo(Ops& o, Value shifted) {
  Value bits = o.Bitcast(shifted, o.b.getI32Type());
  return o.Bitcast(o.ShiftLeft(bits, o.ConstI(bits.getType(), 23)), o.b.getF32Type());
}

// e^r.
Value ExpReduced(Ops& o, Value x, int bias, Value* shifted) {
  Type type = x.getType();
  Value r = Reduced(o, x, bias, shifted);
  if (o.cpu().fma) {
    return Polynomial(o, r,
                      {1.3820661697536707e-3, 8.368674665689468e-3, 4.166826605796814e-2, 0.1666652113199234,
                       0.4999999403953552, 1.0, 1.0});
  }
  // Without FMA, 1 + r is rounded once only where r and the rest are added first; the fit has a term more to spare.
  Value p = Polynomial(
      o, r, {1.9875691500E-4, 1.3981999507E-3, 8.3334519073E-3, 4.1665795894E-2, 1.6666665459E-1, 5.0000001201E-1});
  return o.AddF(o.Fma(o.MulF(r, r), p, r), o.ConstF(type, 1.0));
}

Value AtMost(Ops& o, Value x, double bound) {  // NaN passes
  Value limit = o.ConstF(x.getType(), bound);
  return o.Select(o.CompareF(Compare::kGt, x, limit), limit, x);
}
Value AtLeast(Ops& o, Value x, double bound) {
  Value limit = o.ConstF(x.getType(), bound);
  return o.Select(o.CompareF(Compare::kLt, x, limit), limit, x);
}

Value ExpF32(Ops& o, Value x) {
  // Beyond these the result is infinity or zero anyway.
  x = AtLeast(o, AtMost(o, x, 89), -104);
  Value shifted;
  Value p = ExpReduced(o, x, 0, &shifted);
  // 2^n in two factors, so that results near overflow and subnormal ones come out right.
  Type i32 = o.b.getI32Type();
  Value bits = o.Bitcast(shifted, i32);
  bits = o.SubI(bits, o.ConstI(bits.getType(), kMagicBits));
  Value half = o.ShiftRight(bits, o.ConstI(bits.getType(), 1), true);
  Value rest = o.SubI(bits, half);
  auto power = [&](Value exponent) {
    Value biased = o.AddI(exponent, o.ConstI(exponent.getType(), kBias));
    return o.Bitcast(o.ShiftLeft(biased, o.ConstI(exponent.getType(), 23)), o.b.getF32Type());
  };
  return o.MulF(o.MulF(p, power(half)), power(rest));
}

// Of x from -88, where n is -127, whose biased exponent is 0: the factor is 0.0; to 89, where it is infinity.
// Subnormal results are 0, those above 2^127.5 infinity.
Value ExpInOneFactor(Ops& o, Value x) {
  Value shifted;
  Value p = ExpReduced(o, x, kBias, &shifted);
  return o.MulF(p, PowerOfTwo(o, shifted));
}

Value ExpOfNonPositiveF32(Ops& o, Value x) { return ExpInOneFactor(o, AtLeast(o, x, -88)); }

// 1 + exp(-x): what sigmoids divide by.
Value SigmoidDivisor(Ops& o, Value x) {
  Value minus = o.NegF(x);
  Value e = IsF32(x) ? ExpInOneFactor(o, AtLeast(o, AtMost(o, minus, 89), -88)) : o.Libm("exp", {minus});
  return o.AddF(o.ConstF(x.getType(), 1.0), e);
}

Value LogF32(Ops& o, Value x) {
  Type type = x.getType();
  Value tiny = o.CompareF(Compare::kLt, x, o.ConstF(type, 1.17549435e-38));
  Value scaled = o.Select(tiny, o.MulF(x, o.ConstF(type, 8388608.0)), x);
  Value bits = o.Bitcast(scaled, o.b.getI32Type());
  Type ints = bits.getType();
  // Exponent and mantissa such that the mantissa lies in [sqrt(1/2), sqrt(2)).
  Value offset = o.SubI(bits, o.ConstI(ints, 0x3f3504f3));
  Value exponent = o.ShiftRight(offset, o.ConstI(ints, 23), true);
  Value mantissa = o.Bitcast(o.SubI(bits, o.ShiftLeft(exponent, o.ConstI(ints, 23))), o.b.getF32Type());
  Value e = o.IntToFloat(exponent, o.b.getF32Type(), true);
  e = o.Select(tiny, o.SubF(e, o.ConstF(type, 23.0)), e);
  Value f = o.SubF(mantissa, o.ConstF(type, 1.0));
  Value z = o.MulF(f, f);
  Value p = Polynomial(o, f,
                       {7.0376836292E-2, -1.1514610310E-1, 1.1676998740E-1, -1.2420140846E-1, 1.4249322787E-1,
                        -1.6668057665E-1, 2.0000714765E-1, -2.4999993993E-1, 3.3333331174E-1});
  Value y = o.MulF(o.MulF(f, z), p);
  y = o.Fma(e, o.ConstF(type, -2.12194440e-4), y);
  y = o.Fma(z, o.ConstF(type, -0.5), y);
  Value result = o.Fma(e, o.ConstF(type, 0.693359375), o.AddF(f, y));
  Value infinity = o.ConstF(type, std::numeric_limits<double>::infinity());
  Value zero = o.ConstF(type, 0.0);
  result = o.Select(o.CompareF(Compare::kEq, x, infinity), infinity, result);
  result = o.Select(o.CompareF(Compare::kEq, x, zero), o.NegF(infinity), result);
  // Negative or NaN.
  Value good = o.CompareF(Compare::kGe, x, zero);
  return o.Select(good, result, o.ConstF(type, std::numeric_limits<double>::quiet_NaN()));
}

// x = n pi/2 + r; the sine of what is `quarters` further. The first step is exact (a multiple of 2^-23 below 1 for
// |x| >= 1), the second rounds once: r is good relative to itself, also where x is near a multiple of pi. Only with
// fused multiply-adds, and for n of some thousands; beyond, and for NaN, libm.
Value SineF32(Ops& o, Value x, int64_t quarters) {
  const char* libm = quarters == 0 ? "sin" : "cos";
  if (!o.cpu().fma) return o.Libm(libm, {x});
  constexpr double kReach = 65536, kTiny = 1.0 / 4096;
  Type type = x.getType();
  Value size = o.AbsF(x);
  Value near = o.CompareF(Compare::kLt, size, o.ConstF(type, kReach));
  near = o.ReduceLanes(near, [&](Value a, Value b) { return o.And(a, b); });
  auto reduced = [&] {
    Value magic = o.ConstF(type, 12582912.0);
    Value shifted = o.Fma(x, o.ConstF(type, 0.63661977236758134), magic);
    Value n = o.SubF(shifted, magic);
    Value r = o.Fma(n, o.ConstF(type, -1.57079637050628662109375), x);
    r = o.Fma(n, o.ConstF(type, 4.37113900018624283e-8), r);
    r = o.Fma(n, o.ConstF(type, 1.71512451e-15), r);
    Value z = o.MulF(r, r);
    Value sine = Polynomial(o, z, {-1.9515295891E-4, 8.3321608736E-3, -1.6666654611E-1});
    sine = o.Fma(o.MulF(r, z), sine, r);
    Value cosine = Polynomial(o, z, {2.443315711809948E-005, -1.388731625493765E-003, 4.166664568298827E-002});
    cosine = o.AddF(o.Fma(o.MulF(z, z), cosine, o.MulF(z, o.ConstF(type, -0.5))), o.ConstF(type, 1));
    // The low bits of `shifted` are those of n.
    Value quarter = o.Bitcast(shifted, o.b.getI32Type());
    Type ints = quarter.getType();
    if (quarters != 0) quarter = o.AddI(quarter, o.ConstI(ints, quarters));
    Value is_odd = o.CompareI(Compare::kNe, o.And(quarter, o.ConstI(ints, 1)), o.ConstI(ints, 0), false);
    Value sign = o.ShiftLeft(o.And(quarter, o.ConstI(ints, 2)), o.ConstI(ints, 30));
    Value bits = o.Bitcast(o.Select(is_odd, cosine, sine), o.b.getI32Type());
    Value result = o.Bitcast(o.Xor(bits, sign), o.b.getF32Type());
    // Of what is tiny the sine is x: -0.0 and subnormals stay what they are.
    return quarters == 0 ? o.Select(o.CompareF(Compare::kLt, size, o.ConstF(type, kTiny)), x, result) : result;
  };
  return o.IfElse(
      near, {type}, [&] { return std::vector<Value>{reduced()}; },
      [&] { return std::vector<Value>{o.Libm(libm, {x})}; })[0];
}

Value TanhF32(Ops& o, Value x) {
  Type type = x.getType();
  Value magnitude = o.AbsF(x);
  Value twice = AtMost(o, o.AddF(magnitude, magnitude), 20);  // 1 from 9.02 on
  Value shifted, r = Reduced(o, twice, kBias, &shifted);
  Value p =
      Polynomial(o, r, {0.0013946561375632882, 0.00836664903908968, 0.04166628047823906, 0.16666541993618011, 0.5});
  Value q = o.Fma(o.MulF(r, r), p, r);
  Value power = PowerOfTwo(o, shifted);
  Value e = o.Fma(power, q, o.SubF(power, o.ConstF(type, 1.0)));
  return o.CopySign(o.DivF(e, o.AddF(e, o.ConstF(type, 2.0))), x);
}

// Two polynomials: x + x S(x^2) to 1.5, and in x - 2.67 up to where f32 rounds to 1. A rational function as others
// have it is as fast, and 5 ulp off by its roundings; 1 - exp(..) is right to 1 ulp and twice as slow.
Value ErfF32(Ops& o, Value x) {
  Type type = x.getType();
  Value limit = o.ConstF(type, 3.832506856900711);
  Value magnitude = o.AbsF(x);
  Value z = o.MulF(x, x);
  Value small =
      o.Fma(Polynomial(o, z,
                       {-5.665292974299518e-06, 9.205011883750558e-05, -0.0008046156726777554, 0.00517283147200942,
                        -0.026837171986699104, 0.11282969266176224, -0.3761254847049713, 0.12837915122509003}),
            x, x);
  Value v = o.SubF(magnitude, o.ConstF(type, 2.666249990463257));
  Value large = Polynomial(o, v,
                           {4.353776603238657e-05, -0.00014278435264714062, 2.5382534659001976e-05,
                            0.0006983370985835791, -0.0020805937238037586, 0.0036805463023483753, -0.004589653108268976,
                            0.0040667406283319, -0.0024616504088044167, 0.0009227381669916213, 0.9998372197151184});
  // Exactly ±1 beyond: 1 + erf(x) must vanish there, whatever it is multiplied by.
  large = o.Select(o.CompareF(Compare::kGe, magnitude, limit), o.ConstF(type, 1.0), large);
  return o.Select(o.CompareF(Compare::kGt, magnitude, o.ConstF(type, 1.5)), o.CopySign(large, x), small);
}

}  // namespace

Value Exp(Ops& o, Value x) { return IsF32(x) ? ExpF32(o, x) : o.Libm("exp", {x}); }
Value ExpOfNonPositive(Ops& o, Value x) { return IsF32(x) ? ExpOfNonPositiveF32(o, x) : Exp(o, x); }
Value LargerOf(Ops& o, Value x, Value best) { return o.Select(o.CompareF(Compare::kGt, x, best), x, best); }
Value Log(Ops& o, Value x) { return IsF32(x) ? LogF32(o, x) : o.Libm("log", {x}); }
Value Tanh(Ops& o, Value x) { return IsF32(x) ? TanhF32(o, x) : o.Libm("tanh", {x}); }
Value Erf(Ops& o, Value x) { return IsF32(x) ? ErfF32(o, x) : o.Libm("erf", {x}); }

Value Sin(Ops& o, Value x) { return IsF32(x) ? SineF32(o, x, 0) : o.Libm("sin", {x}); }
Value Cos(Ops& o, Value x) { return IsF32(x) ? SineF32(o, x, 1) : o.Libm("cos", {x}); }

Value Log1pOfPositive(Ops& o, Value x) {
  if (!IsF32(x)) return o.Libm("log1p", {x});
  // log(w) * x / (w - 1) with w = 1 + x rounded: the rounding cancels.
  Value one = o.ConstF(x.getType(), 1.0);
  Value w = o.AddF(one, x);
  Value rounded = o.SubF(w, one);
  Value zero = o.CompareF(Compare::kEq, rounded, o.ConstF(x.getType(), 0.0));
  Value ratio = o.DivF(x, o.Select(zero, one, rounded));
  return o.Select(zero, x, o.MulF(Log(o, w), ratio));
}

Value Sigmoid(Ops& o, Value x) { return o.DivF(o.ConstF(x.getType(), 1.0), SigmoidDivisor(o, x)); }
Value Silu(Ops& o, Value x) { return o.DivF(x, SigmoidDivisor(o, x)); }

// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3): one exponential, no cancellation.
Value GeluTanh(Ops& o, Value x) {
  Type type = x.getType();
  constexpr double kFactor = 1.5957691216057308;
  Value slope = o.Fma(o.MulF(x, x), o.ConstF(type, kFactor * 0.044715), o.ConstF(type, kFactor));
  return o.DivF(x, SigmoidDivisor(o, o.MulF(x, slope)));
}

Value Softplus(Ops& o, Value x) {
  Value zero = o.ConstF(x.getType(), 0.0);
  Value positive = o.Select(o.CompareF(Compare::kGt, zero, x), zero, x);  // NaN passes
  return o.AddF(positive, Log1pOfPositive(o, Exp(o, o.NegF(o.AbsF(x)))));
}

Value Pow(Ops& o, Value x, Value y) { return o.Libm("pow", {x, y}); }

Value PowInt(Ops& o, Value x, Value y, bool x_signed, bool y_signed) {
  Type type = x.getType();
  int bits = static_cast<int>(mlir::getElementTypeOrSelf(y.getType()).getIntOrFloatBitWidth());
  Value one = o.ConstI(type, 1), zero = o.ConstI(type, 0);
  Value zero_y = o.ConstI(y.getType(), 0);
  Value result = one, base = x, odd;
  for (int i = 0; i < bits; ++i) {
    Value bit = o.And(y, o.ConstI(y.getType(), static_cast<int64_t>(uint64_t{1} << i)));
    Value set = o.CompareI(Compare::kNe, bit, zero_y, false);
    if (i == 0) odd = set;
    result = o.Select(set, o.MulI(result, base), result);
    if (i + 1 < bits) base = o.MulI(base, base);
  }
  if (!y_signed) return result;
  Value is_one = o.CompareI(Compare::kEq, x, one, false);
  Value inverse = o.Select(is_one, one, zero);
  if (x_signed) {
    Value minus_one = o.ConstI(type, -1);
    Value is_minus_one = o.CompareI(Compare::kEq, x, minus_one, false);
    inverse = o.Select(is_minus_one, o.Select(odd, minus_one, one), inverse);
  }
  return o.Select(o.CompareI(Compare::kLt, y, zero_y, true), inverse, result);
}

}  // namespace inlay::native
