#include "core/backends/native/extent.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/ir/dim_expr.h"

namespace inlay::native {

Extent::Extent(const ir::Dim& dim) {
  if (dim.is_static()) {
    value_ = dim.value();
  } else {
    expr_ = std::make_shared<Expr>(Expr{Kind::kPolynomial, dim, {}, {}, dim.symbol()});
  }
}

Extent::Kind Extent::kind() const { return is_static() ? Kind::kNumber : expr_->kind; }
const ir::Dim& Extent::polynomial() const { return expr_->polynomial; }
const Extent& Extent::a() const { return expr_->a; }
const Extent& Extent::b() const { return expr_->b; }
std::string Extent::Key() const { return is_static() ? absl::StrCat(value_) : expr_->key; }

Extent Extent::Make(Kind kind, const Extent& a, const Extent& b) {
  Extent result;
  std::string key = absl::StrCat("<", static_cast<int>(kind), " ", a.Key(), " ", b.Key(), ">");
  result.expr_ = std::make_shared<Expr>(Expr{kind, 0, a, b, std::move(key)});
  return result;
}

bool Extent::AsDim(ir::Dim* dim) const {
  if (kind() == Kind::kNumber) *dim = ir::Dim(value_);
  if (kind() == Kind::kPolynomial) *dim = polynomial();
  return kind() == Kind::kNumber || kind() == Kind::kPolynomial;
}

bool Extent::IsMultipleOf(int64_t n) const {
  if (is_static()) return value_ % n == 0;
  if (kind() == Kind::kProduct) return a().IsMultipleOf(n) || b().IsMultipleOf(n);
  if (kind() != Kind::kPolynomial) return n == 1;
  std::vector<ir::DimTerm> terms = ir::DimTerms(polynomial());
  return std::all_of(terms.begin(), terms.end(), [&](const ir::DimTerm& t) { return t.coefficient % n == 0; });
}

Extent operator+(const Extent& x, const Extent& y) {
  if (x.is_static() && y.is_static()) return x.value() + y.value();
  ir::Dim a = 0, b = 0;
  if (x.AsDim(&a) && y.AsDim(&b)) {
    if (auto sum = ir::AddDims(a, b); sum.ok()) return Extent(*sum);
  }
  if (x == Extent(0)) return y;
  if (y == Extent(0)) return x;
  return Extent::Make(Extent::Kind::kSum, x, y);
}

Extent operator*(const Extent& x, const Extent& y) {
  if (x.is_static() && y.is_static()) return x.value() * y.value();
  ir::Dim a = 0, b = 0;
  if (x.AsDim(&a) && y.AsDim(&b)) {
    if (auto product = ir::MulDims(a, b); product.ok()) return Extent(*product);
  }
  if (x == Extent(1)) return y;
  if (y == Extent(1)) return x;
  return Extent::Make(Extent::Kind::kProduct, x, y);
}

Extent operator-(const Extent& x, const Extent& y) { return x + y * Extent(-1); }

Extent operator/(const Extent& x, int64_t y) {
  if (x.is_static()) return x.value() / y;
  if (y == 1) return x;
  if (x.kind() == Extent::Kind::kPolynomial && x.IsMultipleOf(y)) {
    if (auto quotient = ir::FloorDivDims(x.polynomial(), y); quotient.ok()) return Extent(*quotient);
  }
  return Extent::Make(Extent::Kind::kFloorDiv, x, y);
}

Extent operator%(const Extent& x, int64_t y) {
  if (x.is_static()) return x.value() % y;
  if (x.IsMultipleOf(y)) return 0;
  return x - x / y * Extent(y);
}

Extent Extent::Min(const Extent& a, const Extent& b) {
  if (a.is_static() && b.is_static()) return std::min(a.value(), b.value());
  return a == b ? a : Make(Kind::kMin, a, b);
}

Extent Extent::Max(const Extent& a, const Extent& b) {
  if (a.is_static() && b.is_static()) return std::max(a.value(), b.value());
  return a == b ? a : Make(Kind::kMax, a, b);
}

Shape ShapeOf(const std::vector<int64_t>& shape) { return Shape(shape.begin(), shape.end()); }

bool IsStatic(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Extent& e) { return e.is_static(); });
}

Shape RowMajorStrides(const Shape& shape) {
  Shape strides(shape.size(), Extent(1));
  for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

Extent Product(const Shape& shape, int begin, int end) {
  Extent product = 1;
  for (int i = begin; i < end; ++i) product = product * shape[i];
  return product;
}
Extent Product(const Shape& shape) { return Product(shape, 0, static_cast<int>(shape.size())); }

bool SplitsDims(const Shape& in, const Shape& out, std::vector<int>* part_of) {
  part_of->assign(out.size(), -1);
  size_t next = 0;
  for (size_t d = 0; d < in.size(); ++d) {
    for (Extent covered = 1; covered != in[d]; ++next) {
      bool passed = covered.is_static() && in[d].is_static() && covered.value() > in[d].value() && in[d].value() != 0;
      if (next == out.size() || passed) return false;
      covered = covered * out[next];
      if (out[next] != Extent(1)) (*part_of)[next] = static_cast<int>(d);
    }
  }
  return std::all_of(out.begin() + next, out.end(), [](const Extent& extent) { return extent == Extent(1); });
}

}  // namespace inlay::native
