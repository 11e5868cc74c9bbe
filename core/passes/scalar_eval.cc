#include "core/passes/scalar_eval.h"

#include <cmath>
#include <functional>
#include <map>

#include "core/ir/literal.h"

namespace inlay::passes {
namespace {

using ir::DType;

Scalar Float(DType dtype, double value) {
  Scalar s;
  s.dtype = dtype;
  // The product of two f32 in double, rounded to f32, is the f32 product (so for + - / sqrt); f16 goes through f32.
  s.f = dtype == DType::kF64 ? value : ir::RoundTo(dtype, ir::RoundTo(DType::kF32, value));
  return s;
}

// Wrapped to the width of `dtype`.
Scalar Int(DType dtype, int64_t value) {
  std::string data;
  ir::AppendInt(dtype, value, &data);
  Scalar s;
  s.dtype = dtype;
  s.i = ir::ElementAsInt(dtype, data, 0);
  return s;
}

Scalar Bool(bool value) { return Int(DType::kBool, value); }

int64_t WrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrapSub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t WrapMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
// x / 0 = 0, min / -1 wraps.
int64_t Div(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? WrapSub(0, a) : a / b; }

// IEEE 754-2019: NaN propagates, -0.0 < 0.0; so the order of arguments does not matter.
double Maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
double Minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

using FloatUnary = double (*)(double);
const std::map<absl::string_view, FloatUnary>& FloatUnaries() {
  static const auto* table = new std::map<absl::string_view, FloatUnary>{
      {"neg", [](double x) { return -x; }},
      {"abs", [](double x) { return std::fabs(x); }},
      {"sign", [](double x) { return std::isnan(x) || x == 0 ? x : std::copysign(1.0, x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1.0 / std::sqrt(x); }},
      {"reciprocal", [](double x) { return 1.0 / x; }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"sigmoid", [](double x) { return 1.0 / (1.0 + std::exp(-x)); }},
      {"floor", [](double x) { return std::floor(x); }},
      {"ceil", [](double x) { return std::ceil(x); }},
      {"round", [](double x) { return std::nearbyint(x); }},
      {"relu", [](double x) { return Maximum(x, 0.0); }},
  };
  return *table;
}

absl::optional<Scalar> CompareOrder(absl::string_view op, bool less, bool equal, bool ordered) {
  if (op == "equal") return Bool(equal);
  if (op == "not_equal") return Bool(!equal);
  if (op == "less") return Bool(less);
  if (op == "less_equal") return Bool(less || equal);
  if (op == "greater") return Bool(ordered && !less && !equal);
  if (op == "greater_equal") return Bool(ordered && !less);
  return absl::nullopt;
}

absl::optional<Scalar> FloatBinary(absl::string_view op, DType dtype, double a, double b) {
  if (op == "add") return Float(dtype, a + b);
  if (op == "sub") return Float(dtype, a - b);
  if (op == "mul") return Float(dtype, a * b);
  if (op == "div") return Float(dtype, a / b);
  if (op == "pow") return Float(dtype, std::pow(a, b));
  if (op == "maximum") return Float(dtype, Maximum(a, b));
  if (op == "minimum") return Float(dtype, Minimum(a, b));
  return CompareOrder(op, a < b, a == b, !std::isnan(a) && !std::isnan(b));
}

absl::optional<Scalar> IntBinary(absl::string_view op, DType dtype, int64_t a, int64_t b) {
  if (op == "add") return Int(dtype, WrapAdd(a, b));
  if (op == "sub") return Int(dtype, WrapSub(a, b));
  if (op == "mul") return Int(dtype, WrapMul(a, b));
  if (op == "div") return Int(dtype, Div(a, b));
  if (op == "maximum") return Int(dtype, std::max(a, b));
  if (op == "minimum") return Int(dtype, std::min(a, b));
  if (op == "bitwise_and" || op == "logical_and") return Int(dtype, a & b);
  if (op == "bitwise_or" || op == "logical_or") return Int(dtype, a | b);
  if (op == "bitwise_xor" || op == "logical_xor") return Int(dtype, a ^ b);
  return CompareOrder(op, a < b, a == b, true);
}

}  // namespace

Scalar Load(DType dtype, absl::string_view data, int64_t index) {
  Scalar s;
  s.dtype = dtype;
  if (ir::IsFloat(dtype)) {
    s.f = ir::ElementAsDouble(dtype, data, index);
  } else {
    s.i = ir::ElementAsInt(dtype, data, index);
  }
  return s;
}

void Append(const Scalar& value, std::string* data) {
  if (value.is_float()) return ir::AppendDouble(value.dtype, value.f, data);
  ir::AppendInt(value.dtype, value.i, data);
}

absl::optional<Scalar> EvalUnary(absl::string_view op, const Scalar& x) {
  if (x.is_float()) {
    if (op == "isnan") return Bool(std::isnan(x.f));
    auto it = FloatUnaries().find(op);
    if (it == FloatUnaries().end()) return absl::nullopt;
    return Float(x.dtype, it->second(x.f));
  }
  if (op == "neg") return Int(x.dtype, WrapSub(0, x.i));
  if (op == "abs") return Int(x.dtype, x.i < 0 ? WrapSub(0, x.i) : x.i);
  if (op == "sign") return Int(x.dtype, x.i < 0 ? -1 : x.i > 0);
  if (op == "relu") return Int(x.dtype, std::max<int64_t>(x.i, 0));
  if (op == "logical_not") return Bool(x.i == 0);
  if (op == "bitwise_not") return Int(x.dtype, ~x.i);
  return absl::nullopt;
}

absl::optional<Scalar> EvalBinary(absl::string_view op, const Scalar& a, const Scalar& b) {
  if (a.dtype != b.dtype) return absl::nullopt;  // pow of mixed dtypes
  return a.is_float() ? FloatBinary(op, a.dtype, a.f, b.f) : IntBinary(op, a.dtype, a.i, b.i);
}

Scalar EvalCast(const Scalar& x, DType dtype) {
  if (dtype == DType::kBool) return Bool(x.is_float() ? x.f != 0 : x.i != 0);
  if (ir::IsFloat(dtype)) {
    // One rounding, straight to the narrow type.
    Scalar s;
    s.dtype = dtype;
    std::string data;
    ir::AppendDouble(dtype, x.is_float() ? x.f : static_cast<double>(x.i), &data);
    s.f = ir::ElementAsDouble(dtype, data, 0);
    return s;
  }
  if (!x.is_float()) return Int(dtype, x.i);
  std::string data;
  ir::AppendDouble(dtype, x.f, &data);  // truncates, saturates
  return Load(dtype, data, 0);
}

}  // namespace inlay::passes
