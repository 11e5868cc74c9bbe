#include <algorithm>
#include <cmath>
#include <limits>

#include "core/backend/testing/reference_ops.h"

namespace inlay::backend::testing {
namespace {

using Unary = double (*)(double);
using Binary = double (*)(double, double);

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double Sign(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }
double Max(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
double Min(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }

RefOp OfUnary(Unary f) {
  return [f](const RefCall& call) {
    for (size_t i = 0; i < call.out->values.size(); ++i) call.out->values[i] = f(call.arg(0).values[i]);
  };
}

// With up to two numbers of the attributes.
using Parametric = double (*)(double x, double alpha, double beta);
RefOp OfParametric(Parametric f) {
  return [f](const RefCall& call) {
    const double alpha = call.attrs.FloatOr("alpha", 0), beta = call.attrs.FloatOr("beta", 0);
    for (size_t i = 0; i < call.out->values.size(); ++i) call.out->values[i] = f(call.arg(0).values[i], alpha, beta);
  };
}

RefOp OfBinary(Binary f) {
  return [f](const RefCall& call) {
    int64_t i = 0;
    ForEach(call.out->type.Shape(), [&](const Index& index) {
      call.out->values[i++] = f(AtBroadcast(call.arg(0), index), AtBroadcast(call.arg(1), index));
    });
  };
}

void Gelu(const RefCall& call) {
  const bool tanh = call.attrs.StringOr("approximate", "none") == "tanh";
  for (size_t i = 0; i < call.out->values.size(); ++i) {
    const double x = call.arg(0).values[i];
    call.out->values[i] = tanh ? 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
                               : 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  }
}

void Clip(const RefCall& call) {
  const double low = call.attrs.Has("min") ? call.attrs.Float("min") : -INFINITY;
  const double high = call.attrs.Has("max") ? call.attrs.Float("max") : INFINITY;
  for (size_t i = 0; i < call.out->values.size(); ++i) {
    call.out->values[i] = Min(Max(call.arg(0).values[i], low), high);
  }
}

void Cast(const RefCall& call) {
  const ir::DType to = call.out->type.dtype;
  for (size_t i = 0; i < call.out->values.size(); ++i) {
    const double x = call.arg(0).values[i];
    const int bits = static_cast<int>(8 * ir::ByteSize(to)) - (ir::IsSigned(to) ? 1 : 0);
    const double low = ir::IsSigned(to) ? -std::ldexp(1, bits) : 0, high = std::ldexp(1, bits) - 1;
    call.out->values[i] = ir::IsFloat(to) ? x : Min(Max(std::trunc(x), low), high);
  }
}

void Where(const RefCall& call) {
  int64_t i = 0;
  ForEach(call.out->type.Shape(), [&](const Index& index) {
    call.out->values[i++] = AtBroadcast(call.arg(AtBroadcast(call.arg(0), index) != 0 ? 1 : 2), index);
  });
}

}  // namespace

void AddElementwiseOps(std::map<std::string, RefOp>* ops) {
  const std::map<std::string, Unary> unary = {
      {"neg", [](double x) { return -x; }},
      {"abs", [](double x) { return std::abs(x); }},
      {"sign", Sign},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"reciprocal", [](double x) { return 1 / x; }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"sigmoid", Sigmoid},
      {"floor", [](double x) { return std::floor(x); }},
      {"ceil", [](double x) { return std::ceil(x); }},
      {"round", [](double x) { return std::nearbyint(x); }},
      {"relu", [](double x) { return Max(x, 0.0); }},
      {"silu", [](double x) { return x * Sigmoid(x); }},
      {"softplus", Softplus},
      {"identity", [](double x) { return x; }},
  };
  for (const auto& [name, f] : unary) (*ops)[name] = OfUnary(f);
  (*ops)["leaky_relu"] = OfParametric([](double x, double alpha, double) { return x < 0 ? alpha * x : x; });
  (*ops)["elu"] = OfParametric([](double x, double alpha, double) { return x < 0 ? alpha * std::expm1(x) : x; });
  (*ops)["hard_sigmoid"] =
      OfParametric([](double x, double alpha, double beta) { return Min(Max(alpha * x + beta, 0.0), 1.0); });
  (*ops)["gelu"] = Gelu;
  (*ops)["clip"] = Clip;
  (*ops)["cast"] = Cast;
  (*ops)["where"] = Where;
  const std::map<std::string, Binary> binary = {
      {"add", [](double a, double b) { return a + b; }},
      {"sub", [](double a, double b) { return a - b; }},
      {"mul", [](double a, double b) { return a * b; }},
      {"div", [](double a, double b) { return a / b; }},
      {"minimum", Min},
      {"maximum", Max},
      {"pow", [](double a, double b) { return std::pow(a, b); }},
      {"equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {"less", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {"greater", [](double a, double b) { return a > b ? 1.0 : 0.0; }},
  };
  for (const auto& [name, f] : binary) (*ops)[name] = OfBinary(f);
}

}  // namespace inlay::backend::testing
