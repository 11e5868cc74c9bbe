#include "core/backends/csource/expr.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace inlay::csource {
namespace {

enum Level { kPrimary, kUnary, kProduct, kSum, kShift, kRelation, kEquality, kAnd, kXor, kOr, kBoth, kEither, kChoice };

std::string Inside(const Expr& e, int most) { return e.level > most ? absl::StrCat("(", e.text, ")") : e.text; }

Expr Make(std::string text, int level) {
  Expr e;
  e.text = std::move(text);
  e.level = level;
  return e;
}

Expr Binary(absl::string_view op, int level, const Expr& a, const Expr& b) {
  return Make(absl::StrCat(Inside(a, level), " ", op, " ", Inside(b, level - 1)), level);
}

bool Is(const Expr& e, int64_t value) { return e.number.has_value() && *e.number == value; }

}  // namespace

Expr::Expr(int64_t value) : text(absl::StrCat(value)), level(value < 0 ? kUnary : kPrimary), number(value) {}

Expr Expr::Name(std::string name) { return Make(std::move(name), kPrimary); }

Expr operator+(const Expr& a, const Expr& b) {
  if (a.number && b.number) return Expr(*a.number + *b.number);
  if (Is(a, 0)) return b;
  if (Is(b, 0)) return a;
  if (b.number && *b.number < 0) return a - Expr(-*b.number);
  return Binary("+", kSum, a, b);
}

Expr operator-(const Expr& a, const Expr& b) {
  if (a.number && b.number) return Expr(*a.number - *b.number);
  if (Is(b, 0)) return a;
  if (b.number && *b.number < 0) return a + Expr(-*b.number);
  return Binary("-", kSum, a, b);
}

Expr operator*(const Expr& a, const Expr& b) {
  if (a.number && b.number) return Expr(*a.number * *b.number);
  if (Is(a, 0) || Is(b, 0)) return Expr(0);
  if (Is(a, 1)) return b;
  if (Is(b, 1)) return a;
  return Binary("*", kProduct, a, b);
}

Expr operator/(const Expr& a, const Expr& b) {
  if (a.number && b.number && *b.number != 0) return Expr(*a.number / *b.number);
  if (Is(b, 1)) return a;
  return Binary("/", kProduct, a, b);
}

Expr operator%(const Expr& a, const Expr& b) {
  if (a.number && b.number && *b.number != 0) return Expr(*a.number % *b.number);
  if (Is(b, 1)) return Expr(0);
  return Binary("%", kProduct, a, b);
}

Expr operator<(const Expr& a, const Expr& b) { return Binary("<", kRelation, a, b); }
Expr operator>(const Expr& a, const Expr& b) { return Binary(">", kRelation, a, b); }
Expr operator>=(const Expr& a, const Expr& b) { return Binary(">=", kRelation, a, b); }
Expr operator==(const Expr& a, const Expr& b) { return Binary("==", kEquality, a, b); }
Expr operator!=(const Expr& a, const Expr& b) { return Binary("!=", kEquality, a, b); }
Expr operator&&(const Expr& a, const Expr& b) { return Binary("&&", kBoth, a, b); }
Expr operator||(const Expr& a, const Expr& b) {
  return Make(absl::StrCat(Inside(a, kRelation), " || ", Inside(b, kRelation)), kEither);
}
Expr operator!(const Expr& a) { return Make(absl::StrCat("!", Inside(a, kUnary)), kUnary); }

// Parentheses around anything inside: readers (and compilers' warnings) do not trust these levels.
Expr Bits(char op, const Expr& a, const Expr& b) {
  return Make(absl::StrCat(Inside(a, kUnary), " ", std::string(1, op), " ", Inside(b, kUnary)), kOr);
}
Expr ShiftRight(const Expr& a, const Expr& b) {
  return Make(absl::StrCat(Inside(a, kUnary), " >> ", Inside(b, kUnary)), kOr);
}
Expr Negate(const Expr& a) {
  // "--x" is another operator.
  const bool sign = absl::StartsWith(a.text, "-");
  return Make(sign ? absl::StrCat("-(", a.text, ")") : absl::StrCat("-", Inside(a, kUnary)), kUnary);
}
Expr Complement(const Expr& a) { return Make(absl::StrCat("~", Inside(a, kUnary)), kUnary); }

Expr Call(const std::string& function, const std::vector<Expr>& args) {
  auto text = [](std::string* out, const Expr& e) { absl::StrAppend(out, e.text); };
  return Make(absl::StrCat(function, "(", absl::StrJoin(args, ", ", text), ")"), kPrimary);
}

Expr CallMath(const std::string& function, ir::DType dtype, const std::vector<Expr>& args) {
  return Call(dtype == ir::DType::kF32 ? function + "f" : function, args);
}

Expr At(const Expr& array, const Expr& index) {
  return Make(absl::StrCat(Inside(array, kPrimary), "[", index.text, "]"), kPrimary);
}

Expr Select(const Expr& condition, const Expr& a, const Expr& b) {
  return Make(absl::StrCat(Inside(condition, kEither), " ? ", Inside(a, kEither), " : ", Inside(b, kEither)), kChoice);
}

Expr CastTo(absl::string_view c_type, const Expr& a) {
  return Make(absl::StrCat("(", c_type, ")", Inside(a, kUnary)), kUnary);
}

Expr Smaller(const Expr& a, const Expr& b) {
  if (a.number && b.number) return Expr(*a.number < *b.number ? *a.number : *b.number);
  return Select(a < b, a, b);
}

Expr Clamp(const Expr& a, int64_t low, int64_t high) {
  if (a.number) return Expr(*a.number < low ? low : *a.number > high ? high : *a.number);
  return Call("inlay_clamp", {a, Expr(low), Expr(high)});
}

absl::string_view StorageType(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
      return "float";
    case ir::DType::kF64:
      return "double";
    case ir::DType::kF16:
    case ir::DType::kBF16:
      return "uint16_t";
    case ir::DType::kI8:
      return "int8_t";
    case ir::DType::kU8:
    case ir::DType::kBool:
      return "uint8_t";
    case ir::DType::kI16:
      return "int16_t";
    case ir::DType::kI32:
      return "int32_t";
    case ir::DType::kI64:
      return "int64_t";
  }
  return "void";
}

ir::DType ComputeDType(ir::DType dtype) {
  return dtype == ir::DType::kF16 || dtype == ir::DType::kBF16 ? ir::DType::kF32 : dtype;
}

absl::string_view ComputeType(ir::DType dtype) { return StorageType(ComputeDType(dtype)); }

namespace {

Expr Wrapping(const char* function, ir::DType dtype, const Expr& a, const Expr& b,
              Expr (*of)(const Expr&, const Expr&)) {
  if (dtype != ir::DType::kI32 && dtype != ir::DType::kI64) return of(a, b);
  return Call(absl::StrCat("inlay_", function, "_", std::string(ir::Name(dtype))), {a, b});
}

}  // namespace

Expr Sum(ir::DType dtype, const Expr& a, const Expr& b) { return Wrapping("add", dtype, a, b, operator+); }
Expr Difference(ir::DType dtype, const Expr& a, const Expr& b) { return Wrapping("sub", dtype, a, b, operator-); }
Expr Product(ir::DType dtype, const Expr& a, const Expr& b) { return Wrapping("mul", dtype, a, b, operator*); }

Expr Number(ir::DType dtype, double value) {
  dtype = ComputeDType(dtype);
  if (!ir::IsFloat(dtype)) return Integer(dtype, static_cast<int64_t>(value));
  const bool single = dtype == ir::DType::kF32;
  if (single) value = static_cast<float>(value);
  const char* suffix = single ? "f" : "";
  std::string text;
  if (std::isnan(value)) {
    text = "NAN";
  } else if (std::isinf(value)) {
    text = "INFINITY";
  } else {
    char digits[40];
    std::snprintf(digits, sizeof(digits), single ? "%.9g" : "%.17g", std::abs(value));
    text = digits;
    if (text.find_first_of(".e") == text.npos) text += ".0";
    text += suffix;
  }
  return std::signbit(value) && !std::isnan(value) ? Make(absl::StrCat("-", text), kUnary) : Make(text, kPrimary);
}

Expr Integer(ir::DType dtype, int64_t value) {
  if (dtype == ir::DType::kI64 && value == INT64_MIN) return Expr::Name("INT64_MIN");
  if (dtype == ir::DType::kI64) {
    return Make(absl::StrCat("INT64_C(", value, ")"), kPrimary);
  }
  if (dtype == ir::DType::kI32 && value == INT32_MIN) return Expr::Name("INT32_MIN");
  return Make(absl::StrCat(value), value < 0 ? kUnary : kPrimary);
}

Expr Wrapped(ir::DType dtype, const Expr& value) {
  const bool promoted = dtype == ir::DType::kI8 || dtype == ir::DType::kU8 || dtype == ir::DType::kI16;
  return promoted ? CastTo(StorageType(dtype), value) : value;
}

}  // namespace inlay::csource
