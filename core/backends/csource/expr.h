// C expressions, put together with the parentheses that they need and with arithmetic on numbers done at once, so that
// emitters write `n * stride + i` and the C reads as a person would have written it. Plain values; any thread.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_EXPR_H_
#define INLAY_CORE_BACKENDS_CSOURCE_EXPR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/ir/type.h"

namespace inlay::csource {

struct Expr {
  std::string text;
  int level = 0;  // of C's precedence: 0 binds tightest
  absl::optional<int64_t> number;

  Expr() = default;
  Expr(int64_t value);  // NOLINT: so that indices and extents mix
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}
  static Expr Name(std::string name);
};
using Index = std::vector<Expr>;

Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr operator/(const Expr& a, const Expr& b);  // of non-negative numbers, where both are known
Expr operator%(const Expr& a, const Expr& b);
Expr operator<(const Expr& a, const Expr& b);
Expr operator>(const Expr& a, const Expr& b);
Expr operator>=(const Expr& a, const Expr& b);
Expr operator==(const Expr& a, const Expr& b);
Expr operator!=(const Expr& a, const Expr& b);
Expr operator&&(const Expr& a, const Expr& b);
Expr operator||(const Expr& a, const Expr& b);
Expr operator!(const Expr& a);

Expr Bits(char op, const Expr& a, const Expr& b);  // '&', '|', '^'
Expr ShiftRight(const Expr& a, const Expr& b);     // of non-negative numbers
Expr Negate(const Expr& a);
Expr Complement(const Expr& a);
Expr Call(const std::string& function, const std::vector<Expr>& args);
// <function>f(args) or <function>(args) of <math.h>, by the type that is computed in.
Expr CallMath(const std::string& function, ir::DType dtype, const std::vector<Expr>& args);
Expr At(const Expr& array, const Expr& index);
Expr Select(const Expr& condition, const Expr& a, const Expr& b);
Expr CastTo(absl::string_view c_type, const Expr& a);
Expr Smaller(const Expr& a, const Expr& b);  // of two indices
Expr Clamp(const Expr& a, int64_t low, int64_t high);

// What elements are stored as ("uint16_t" for f16), what they are computed in (f32 for f16), and their names in C.
absl::string_view StorageType(ir::DType dtype);
ir::DType ComputeDType(ir::DType dtype);
absl::string_view ComputeType(ir::DType dtype);
// What indices are computed in: of 64 bits, for targets of kind "c" of 32 (prelude.h).
inline constexpr char kIndexType[] = "inlay_int";
// Sums and products; of i32 and i64 by functions that wrap, as C's operators need not.
Expr Sum(ir::DType dtype, const Expr& a, const Expr& b);
Expr Difference(ir::DType dtype, const Expr& a, const Expr& b);
Expr Product(ir::DType dtype, const Expr& a, const Expr& b);
// A literal of the type that `dtype` is computed in.
Expr Number(ir::DType dtype, double value);
Expr Integer(ir::DType dtype, int64_t value);
// `value`, wrapped to the width of its dtype where C would have promoted it.
Expr Wrapped(ir::DType dtype, const Expr& value);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_EXPR_H_
