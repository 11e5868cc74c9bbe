// GELU by its own expansion rather than erf's: where erf must be right relative to itself, 1 + erf must not.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/backends/native/math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

namespace inlay::native {

using mlir::Type;
using mlir::Value;

namespace {

// Q(t) = the normal distribution's integral from t up, t >= 0, in pieces around 0, width, 2 width, ...: each a
// polynomial in the distance from there. The last piece is 0: there x Q(x) < 3e-8.
struct Pieces {
  int degree;
  float width;  // of few bits: multiples of it are exact
};
// With 16 pieces or 8; the remainder term is less than 1e-8 either way.
Pieces PiecesOf(int64_t entries) { return entries == 16 ? Pieces{5, 0.40625f} : Pieces{7, 0.90625f}; }

double UpperTail(double t) { return 0.5 * std::erfc(t / std::sqrt(2.0)); }

// The coefficients of the polynomial of degree n - 1 through n points of f, lowest power first, by divided differences.
template <typename F>
std::vector<double> Interpolate(const std::vector<double>& points, F f) {
  size_t n = points.size();
  std::vector<double> d;
  for (double p : points) d.push_back(f(p));
  for (size_t k = 1; k < n; ++k) {
    for (size_t i = n - 1; i >= k; --i) d[i] = (d[i] - d[i - 1]) / (points[i] - points[i - k]);
  }
  std::vector<double> c(n, 0.0);
  for (size_t i = n; i-- > 0;) {  // c = c * (x - points[i]) + d[i]
    for (size_t j = n - 1; j > 0; --j) c[j] = c[j - 1] - points[i] * c[j];
    c[0] = d[i] - points[i] * c[0];
  }
  return c;
}

std::vector<double> ChebyshevPoints(int count, double low, double high) {
  std::vector<double> points;
  for (int k = 0; k < count; ++k) {
    points.push_back((low + high) / 2 + (high - low) / 2 * std::cos(M_PI * (k + 0.5) / count));
  }
  return points;
}

// [power][piece].
std::vector<std::vector<float>> Coefficients(int64_t entries, const Pieces& pieces) {
  std::vector<std::vector<float>> table(pieces.degree + 1, std::vector<float>(entries, 0.0f));
  double half = pieces.width / 2.0;
  for (int64_t i = 0; i + 1 < entries; ++i) {
    std::vector<double> c;
    if (i == 0) {  // exactly 1/2 at 0
      c = Interpolate(ChebyshevPoints(pieces.degree, 0, half), [](double t) { return (UpperTail(t) - 0.5) / t; });
      c.insert(c.begin(), 0.5);
    } else {
      double middle = static_cast<double>(i) * pieces.width;
      c = Interpolate(ChebyshevPoints(pieces.degree + 1, -half, half),
                      [middle](double r) { return UpperTail(middle + r); });
    }
    for (int power = 0; power <= pieces.degree; ++power) table[power][i] = static_cast<float>(c[power]);
  }
  return table;
}

// x Phi(x) = max(x, 0) - |x| Q(|x|): one formula for both signs, and Q's error is never multiplied.
Value GeluByTable(Ops& o, Value x, int64_t entries) {
  Pieces pieces = PiecesOf(entries);
  std::vector<std::vector<float>> table = Coefficients(entries, pieces);
  Type type = x.getType();
  double last = static_cast<double>(entries - 1) * pieces.width;
  Value limit = o.ConstF(type, last), zero = o.ConstF(type, 0.0);
  Value t = o.AbsF(x);
  t = o.Select(o.CompareF(Compare::kGt, t, limit), limit, t);  // NaN passes
  // Adding 1.5 * 2^23 rounds to the piece's number, in the low bits.
  Value magic = o.ConstF(type, 12582912.0);
  Value shifted = o.Fma(t, o.ConstF(type, 1.0 / pieces.width), magic);
  Value number = o.Bitcast(shifted, o.b.getI32Type());
  Value r = o.Fma(o.SubF(shifted, magic), o.ConstF(type, -pieces.width), t);
  auto coefficient = [&](int power) { return o.Permute(o.ConstLanes(table[power]), number); };
  Value q = coefficient(pieces.degree);
  for (int power = pieces.degree - 1; power >= 0; --power) q = o.Fma(q, r, coefficient(power));
  Value positive = o.Select(o.CompareF(Compare::kGt, zero, x), zero, x);  // NaN passes
  return o.Fma(o.NegF(t), q, positive);
}

}  // namespace

Value Gelu(Ops& o, Value x) {
  Type type = x.getType();
  int64_t entries = o.cpu().core.vector_bytes / 4, lanes = Ops::Lanes(x);
  if (!mlir::getElementTypeOrSelf(type).isF32() || entries < 8) {
    Value half = o.MulF(x, o.ConstF(type, 0.5)), one = o.ConstF(type, 1.0);
    return o.MulF(half, o.AddF(one, Erf(o, o.MulF(x, o.ConstF(type, 0.70710678118654752)))));
  }
  if (lanes % entries == 0) return GeluByTable(o, x, entries);
  // Shorter vectors and scalars: as the first lanes of a whole one, so that all give the same bits.
  const Value whole = lanes == 1 ? o.Broadcast(x, entries) : o.Joined(std::vector<Value>(entries / lanes, x));
  return o.Parts(GeluByTable(o, whole, entries), lanes)[0];
}

}  // namespace inlay::native
