// Extent: a dimension, or a number made of some, as code generation counts with it: known while compiling, or an
// expression over the symbols that a partition's types leave open, whose value the code is told at run time.
//
// Arithmetic folds: what is made of numbers is a number, what is made of polynomials is a polynomial in normal form, so
// equal derivations are equal extents. Two open extents that differ may still have equal values, and each may be 0.
// Plain values, immutable, any thread.
#ifndef INLAY_CORE_BACKENDS_NATIVE_EXTENT_H_
#define INLAY_CORE_BACKENDS_NATIVE_EXTENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/ir/type.h"

namespace inlay::native {

class Extent {
 public:
  // kPolynomial: over the symbols. The others: of `a` and `b`, where no polynomial can say it.
  enum class Kind { kNumber, kPolynomial, kSum, kProduct, kFloorDiv, kMin, kMax };
  struct Expr;

  Extent(int64_t value = 0) : value_(value) {}  // NOLINT: implicit, so that shapes read {1, 3, 224, 224}
  explicit Extent(const ir::Dim& dim);
  static Extent Min(const Extent& a, const Extent& b);
  static Extent Max(const Extent& a, const Extent& b);

  bool is_static() const { return expr_ == nullptr; }
  int64_t value() const { return value_; }  // only where is_static()
  // Whether it is that, whatever the symbols stand for.
  bool IsMultipleOf(int64_t n) const;

  Kind kind() const;
  const ir::Dim& polynomial() const;  // kPolynomial
  const Extent& a() const;
  const Extent& b() const;  // of kFloorDiv: a number
  // Equal for equal extents.
  std::string Key() const;

  bool operator==(const Extent& other) const {
    if (is_static() || other.is_static()) return is_static() == other.is_static() && value_ == other.value_;
    return Key() == other.Key();
  }
  bool operator!=(const Extent& other) const { return !(*this == other); }

 private:
  static Extent Make(Kind kind, const Extent& a, const Extent& b);
  friend Extent operator+(const Extent& x, const Extent& y);
  friend Extent operator*(const Extent& x, const Extent& y);
  friend Extent operator/(const Extent& x, int64_t y);
  // Of a number or a polynomial.
  bool AsDim(ir::Dim* dim) const;

  int64_t value_ = 0;
  std::shared_ptr<const Expr> expr_;
};

struct Extent::Expr {
  Kind kind;
  ir::Dim polynomial = 0;
  Extent a, b;
  std::string key;
};

Extent operator+(const Extent& x, const Extent& y);
Extent operator-(const Extent& x, const Extent& y);
Extent operator*(const Extent& x, const Extent& y);
Extent operator/(const Extent& x, int64_t y);  // of non-negative values, rounded down
Extent operator%(const Extent& x, int64_t y);
inline Extent CeilDiv(const Extent& x, int64_t y) { return x.IsMultipleOf(y) ? x / y : (x + (y - 1)) / y; }
inline Extent RoundUp(const Extent& x, int64_t y) { return CeilDiv(x, y) * y; }

using Shape = std::vector<Extent>;

Shape ShapeOf(const std::vector<int64_t>& shape);
bool IsStatic(const Shape& shape);
Shape RowMajorStrides(const Shape& shape);
Extent Product(const Shape& shape, int begin, int end);
Extent Product(const Shape& shape);
// Whether each dimension of `out` is a part of one of `in` (or 1): part_of[i] says of which (-1: of none), so that
// element `at` of out is element sum over a part's dimensions, row-major, of in.
bool SplitsDims(const Shape& in, const Shape& out, std::vector<int>* part_of);

// An estimate of cycles: a number, or one that grows with an open extent.
class Cycles {
 public:
  Cycles(double cycles) : constant_(cycles) {}  // NOLINT
  Cycles(const Extent& n) {                     // NOLINT
    if (n.is_static()) {
      constant_ = static_cast<double>(n.value());
    } else {
      factor_ = 1;
      times_ = n;
    }
  }
  Cycles operator*(double x) const { return With(constant_ * x, factor_ * x); }
  Cycles operator/(double x) const { return With(constant_ / x, factor_ / x); }
  Cycles operator+(double x) const { return With(constant_ + x, factor_); }

  // constant + factor * times
  double constant() const { return constant_; }
  double factor() const { return factor_; }
  const Extent& times() const { return times_; }

 private:
  Cycles With(double constant, double factor) const {
    Cycles result = *this;
    result.constant_ = constant;
    result.factor_ = factor;
    return result;
  }
  double constant_ = 0, factor_ = 0;
  Extent times_;
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_EXTENT_H_
