#include "core/backends/native/winograd_transforms.h"

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
Value Axpy(KernelBuilder& kb, double c, Value x, Value y) { return kb.MultiplyAdd(Constant(kb, x.getType(), c), x, y); }

constexpr double kA = kWinogradA, kB = kWinogradB, kA2 = kA * kA, kB2 = kB * kB;

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
Values InputTransform(KernelBuilder& kb, const WinogradPlan& plan, const Values& d) {
  if (plan.is_strided()) return StridedInputTransform(kb, d);
  if (d.size() == 4) return {Minus(kb, d[0], d[2]), Plus(kb, d[1], d[2]), Minus(kb, d[2], d[1]), Minus(kb, d[3], d[1])};
  Value even_a = Axpy(kb, -kB2, d[2], d[4]), odd_a = Axpy(kb, -kB2, d[1], d[3]);
  Value even_b = Axpy(kb, -kA2, d[2], d[4]), odd_b = Axpy(kb, -kA2, d[1], d[3]);
  return {Axpy(kb, kA2 * kB2, d[0], Axpy(kb, -(kA2 + kB2), d[2], d[4])),
          Axpy(kb, kA, odd_a, even_a),
          Axpy(kb, -kA, odd_a, even_a),
          Axpy(kb, kB, odd_b, even_b),
          Axpy(kb, -kB, odd_b, even_b),
          Axpy(kb, kA2 * kB2, d[1], Axpy(kb, -(kA2 + kB2), d[3], d[5]))};
}

Values OutputTransform(KernelBuilder& kb, const WinogradPlan& plan, const Values& v) {
  if (plan.is_strided()) return StridedOutputTransform(kb, v);
  if (v.size() == 4) {
    return {Plus(kb, Plus(kb, v[0], v[1]), v[2]), Plus(kb, Minus(kb, v[1], v[2]), v[3])};
  }
  Value sum_a = Plus(kb, v[1], v[2]), difference_a = Minus(kb, v[1], v[2]);
  Value sum_b = Plus(kb, v[3], v[4]), difference_b = Minus(kb, v[3], v[4]);
  if (plan.m == 2) {
    return {Plus(kb, Plus(kb, v[0], sum_a), sum_b), Axpy(kb, kB, difference_b, Axpy(kb, kA, difference_a, v[5]))};
  }
  return {Plus(kb, Plus(kb, v[0], sum_a), sum_b), Axpy(kb, kB, difference_b, Times(kb, kA, difference_a)),
          Axpy(kb, kB2, sum_b, Times(kb, kA2, sum_a)),
          Axpy(kb, kB2 * kB, difference_b, Axpy(kb, kA2 * kA, difference_a, v[5]))};
}

Values WeightTransform(KernelBuilder& kb, const WinogradPlan& plan, const Values& g) {
  if (plan.is_strided()) return StridedWeightTransform(kb, plan.m, g);
  auto pair = [&](double p, double scale) -> Values {
    const bool five = plan.taps() == 5;
    Value even = Axpy(kb, p * p, five ? Axpy(kb, p * p, g[4], g[2]) : g[2], g[0]);
    Value odd = Times(kb, p, five ? Axpy(kb, p * p, g[3], g[1]) : g[1]);
    return {Times(kb, scale, Plus(kb, even, odd)), Times(kb, scale, Minus(kb, even, odd))};
  };
  if (plan.axis_points() == 4) {
    Values one = pair(1, 0.5);
    return {g[0], one[0], one[1], g[2]};
  }
  Values a = pair(kA, 1 / (2 * kA2 * (kA2 - kB2))), b = pair(kB, 1 / (2 * kB2 * (kB2 - kA2)));
  return {Times(kb, 1 / (kA2 * kB2), g[0]), a[0], a[1], b[0], b[1], g.back()};
}

}  // namespace inlay::native
