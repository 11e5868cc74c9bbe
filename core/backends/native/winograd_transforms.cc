#include "core/backends/native/winograd_transforms.h"

#include <cmath>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

namespace inlay::native {
namespace {

namespace arith = mlir::arith;
using mlir::Type;
using mlir::Value;
using Values = std::vector<Value>;

Value Constant(KernelBuilder& kb, Type type, double value) {
  mlir::FloatAttr scalar = kb.b.getFloatAttr(mlir::getElementTypeOrSelf(type), value);
  if (auto vector = mlir::dyn_cast<mlir::VectorType>(type)) {
    return kb.b.create<arith::ConstantOp>(kb.loc, mlir::DenseElementsAttr::get(vector, mlir::Attribute(scalar)));
  }
  return kb.b.create<arith::ConstantOp>(kb.loc, scalar);
}

Value Plus(KernelBuilder& kb, Value x, Value y) { return kb.b.create<arith::AddFOp>(kb.loc, x, y); }
Value Minus(KernelBuilder& kb, Value x, Value y) { return kb.b.create<arith::SubFOp>(kb.loc, x, y); }
Value Times(KernelBuilder& kb, double c, Value x) {
  return kb.b.create<arith::MulFOp>(kb.loc, x, Constant(kb, x.getType(), c));
}
// c * x + y
Value Axpy(KernelBuilder& kb, double c, Value x, Value y) {
  if (c == 1) return Plus(kb, y, x);
  if (c == -1) return Minus(kb, y, x);
  return kb.MultiplyAdd(Constant(kb, x.getType(), c), x, y);
}

// Of (x^2 - p^2) for all of the points +-p but the one at `without`: its coefficients of even powers of x.
std::vector<double> Polynomial(const std::vector<double>& pairs, size_t without) {
  std::vector<double> result{1};
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i == without) continue;
    result.insert(result.begin(), 0);
    for (size_t j = 0; j + 1 < result.size(); ++j) result[j] -= pairs[i] * pairs[i] * result[j + 1];
  }
  return result;
}

// Sum of c_j d_(first + 2j), of which the last coefficient is 1.
Value Combine(KernelBuilder& kb, const std::vector<double>& c, const Values& d, size_t first) {
  Value sum = d[first + 2 * (c.size() - 1)];
  for (size_t j = c.size() - 1; j-- > 0;) sum = Axpy(kb, c[j], d[first + 2 * j], sum);
  return sum;
}

// Of F(4, 2), over the even inputs: points 0, +-a, b and infinity.
Values StridedInputTransform(KernelBuilder& kb, const Values& d) {
  if (d.size() == 5) return {Minus(kb, d[0], d[2]), d[2], Minus(kb, d[4], d[2]), d[1], d[3]};
  constexpr double a = kStridedA, b = kStridedB;
  auto of_a = [&](int64_t i) { return Axpy(kb, -a * a, d[i], d[i + 4]); };  // (x^2 - a^2) x^(i/2)
  Value a0 = of_a(0), a1 = of_a(2), a2 = of_a(4), even = Axpy(kb, -b, d[2], d[4]), odd = Axpy(kb, -b, d[4], d[6]);
  return {Axpy(kb, -b, a0, a1),
          Axpy(kb, a, even, odd),
          Axpy(kb, -a, even, odd),
          a1,
          Axpy(kb, -b, a1, a2),
          d[1],
          d[3],
          d[5],
          d[7]};
}

// The products of odd inputs in the middle are the last ones.
Values StridedOutputTransform(KernelBuilder& kb, const Values& v) {
  if (v.size() == 3) return {Plus(kb, v[0], v[1]), Plus(kb, v[1], v[2])};
  constexpr double a = kStridedA, b = kStridedB;
  Value sum = Plus(kb, v[1], v[2]), difference = Minus(kb, v[1], v[2]);
  return {Plus(kb, Plus(kb, v[0], sum), v[3]), Axpy(kb, b, v[3], Axpy(kb, a, difference, v[5])),
          Axpy(kb, b * b, v[3], Axpy(kb, a * a, sum, v[6])),
          Axpy(kb, b * b * b, v[3], Axpy(kb, a * a * a, difference, v[4]))};
}

Values StridedWeightTransform(KernelBuilder& kb, int64_t m, const Values& g) {
  if (m == 2) return {g[0], Plus(kb, g[0], g[2]), g[2], g[1], g[1]};
  constexpr double a = kStridedA, b = kStridedB;
  auto at = [&](double p, double scale) { return Times(kb, scale, Axpy(kb, p, g[2], g[0])); };
  return {Times(kb, 1 / (a * a * b), g[0]),
          at(a, 1 / (2 * a * a * (a - b))),
          at(-a, -1 / (2 * a * a * (a + b))),
          at(b, 1 / (b * (b * b - a * a))),
          g[2],
          g[1],
          g[1],
          g[1],
          g[1]};
}

}  // namespace

// The rows of a pair of points +-p share their even and their odd part.
Values InputTransform(KernelBuilder& kb, const WinogradAxis& axis, const Values& d) {
  if (axis.taps == 1) return d;
  if (axis.stride > 1) return StridedInputTransform(kb, d);
  const std::vector<double> pairs = WinogradPairs(axis.points()), of_all = Polynomial(pairs, pairs.size());
  Values result{Combine(kb, of_all, d, 0)};
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<double> of_others = Polynomial(pairs, i);
    const Value even = Combine(kb, of_others, d, 2), odd = Combine(kb, of_others, d, 1);
    result.push_back(Axpy(kb, pairs[i], odd, even));
    result.push_back(Axpy(kb, -pairs[i], odd, even));
  }
  if (d.size() % 2 == 0) result.push_back(Combine(kb, of_all, d, 1));
  return result;
}

Values OutputTransform(KernelBuilder& kb, const WinogradAxis& axis, const Values& v) {
  if (axis.taps == 1) return v;
  if (axis.stride > 1) return StridedOutputTransform(kb, v);
  const std::vector<double> pairs = WinogradPairs(axis.points());
  Values even, odd;
  for (size_t i = 0; i < pairs.size(); ++i) {
    even.push_back(Plus(kb, v[2 * i + 1], v[2 * i + 2]));
    odd.push_back(Minus(kb, v[2 * i + 1], v[2 * i + 2]));
  }
  Values result;
  for (int64_t q = 0; q < axis.m; ++q) {
    Value sum = q == 0 ? v.front() : q == axis.m - 1 && v.size() % 2 == 0 ? v.back() : nullptr;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const double power = std::pow(pairs[i], static_cast<double>(q));
      const Value of_pair = q % 2 == 0 ? even[i] : odd[i];
      sum = sum ? Axpy(kb, power, of_pair, sum) : power == 1 ? of_pair : Times(kb, power, of_pair);
    }
    result.push_back(sum);
  }
  return result;
}

Values WeightTransform(KernelBuilder& kb, const WinogradAxis& axis, const Values& g) {
  if (axis.taps == 1) return g;
  if (axis.stride > 1) return StridedWeightTransform(kb, axis.m, g);
  const std::vector<double> pairs = WinogradPairs(axis.points());
  // g_first + p^2 g_(first + 2) + ...
  auto every_other = [&](double p, int64_t first) {
    int64_t t = first + (axis.tile_taps() - 1 - first) / 2 * 2;
    Value sum = g[t];
    while ((t -= 2) >= first) sum = Axpy(kb, p * p, sum, g[t]);
    return sum;
  };
  Values result{Times(kb, 1 / Polynomial(pairs, pairs.size())[0], g.front())};
  for (size_t i = 0; i < pairs.size(); ++i) {
    const double p = pairs[i];
    double others = 1;
    for (size_t j = 0; j < pairs.size(); ++j) others *= j == i ? 1 : p * p - pairs[j] * pairs[j];
    const Value even = every_other(p, 0), odd = Times(kb, p, every_other(p, 1));
    result.push_back(Times(kb, 1 / (2 * p * p * others), Plus(kb, even, odd)));
    result.push_back(Times(kb, 1 / (2 * p * p * others), Minus(kb, even, odd)));
  }
  if (axis.points() % 2 == 0) result.push_back(g.back());
  return result;
}

}  // namespace inlay::native
