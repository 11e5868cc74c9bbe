// Shapes whose extents may be open until a run: {"batch", 64}, {"2*batch+1", "seq"}.
#ifndef INLAY_SHAPE_H_
#define INLAY_SHAPE_H_

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace inlay {

// An extent: a number, or the text of an expression of symbols, + - *, whole division by numbers and brackets. A symbol
// is one size in all of a module. A module's own texts are in a normal form ("n*2" is "2*n"; core/ir/dim_expr.h).
class Dim {
 public:
  template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Dim(T value) : value_(static_cast<int64_t>(value)) {}     // NOLINT: implicit, so that shapes read {"batch", 64}
  Dim(const char* symbol) : value_(std::string(symbol)) {}  // NOLINT
  Dim(std::string symbol) : value_(std::move(symbol)) {}    // NOLINT

  bool is_open() const { return std::holds_alternative<std::string>(value_); }
  int64_t value() const { return is_open() ? -1 : std::get<int64_t>(value_); }           // -1: open
  std::string symbol() const { return is_open() ? std::get<std::string>(value_) : ""; }  // "": a number
  std::string ToString() const { return is_open() ? symbol() : std::to_string(value()); }
  bool operator==(const Dim& other) const { return value_ == other.value_; }
  bool operator!=(const Dim& other) const { return !(*this == other); }

 private:
  std::variant<int64_t, std::string> value_;
};

// A tensor's extents, outermost first. A vector of numbers makes one, and so does {"batch", 64}.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}                                // NOLINT
  Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}                               // NOLINT
  Shape(const std::vector<int64_t>& extents) : dims_(extents.begin(), extents.end()) {}  // NOLINT

  const std::vector<Dim>& dims() const { return dims_; }
  bool is_open() const;
  std::vector<int64_t> values() const;  // -1: open
  std::string ToString() const;         // "[batch, 64]"
  bool operator==(const Shape& other) const { return dims_ == other.dims_; }
  bool operator!=(const Shape& other) const { return dims_ != other.dims_; }
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.ToString(); }

 private:
  std::vector<Dim> dims_;
};

}  // namespace inlay

#endif  // INLAY_SHAPE_H_
