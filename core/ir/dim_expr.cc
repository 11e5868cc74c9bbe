#include "core/ir/dim_expr.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/extents.h"
#include "core/base/status_macros.h"

namespace inlay::ir {
namespace {

// Sorted factors -> coefficient (never 0); the constant term has no factors.
using Monomial = std::vector<std::string>;
using Polynomial = std::map<Monomial, int64_t>;

// Bounds what a chain of operations on symbols can grow to.
constexpr size_t kMaxTerms = 32;
constexpr size_t kMaxSymbolLength = 1024;

absl::Status Overflow() { return absl::InvalidArgumentError("an extent overflows 64 bits"); }

absl::Status AddTerm(Polynomial* p, const Monomial& factors, int64_t coefficient) {
  int64_t& slot = (*p)[factors];
  if (__builtin_add_overflow(slot, coefficient, &slot)) return Overflow();
  if (slot == 0) p->erase(factors);
  if (p->size() > kMaxTerms) return absl::InvalidArgumentError("an extent has too many symbolic terms");
  return absl::OkStatus();
}

// Splits at `separators` outside parentheses; false: unbalanced.
bool SplitTop(absl::string_view text, absl::string_view separators, std::vector<absl::string_view>* parts,
              std::string* found) {
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth < 0) return false;
    if (depth == 0 && separators.find(text[i]) != absl::string_view::npos) {
      parts->push_back(text.substr(begin, i - begin));
      found->push_back(text[i]);
      begin = i + 1;
    }
  }
  parts->push_back(text.substr(begin));
  return depth == 0;
}

// False: `text` is not an expression of ours.
bool Parse(absl::string_view text, Polynomial* p) {
  std::vector<absl::string_view> terms;
  std::string signs;
  if (!SplitTop(text, "+-", &terms, &signs)) return false;
  for (size_t t = 0; t < terms.size(); ++t) {
    if (terms[t].empty()) {
      if (t == 0 && terms.size() > 1) continue;  // a leading sign
      return false;
    }
    std::vector<absl::string_view> factors;
    std::string ignored;
    if (!SplitTop(terms[t], "*", &factors, &ignored)) return false;
    int64_t coefficient = t > 0 && signs[t - 1] == '-' ? -1 : 1;
    Monomial monomial;
    for (absl::string_view factor : factors) {
      int64_t number;
      if (factor.empty()) return false;
      if (absl::SimpleAtoi(factor, &number)) {
        if (__builtin_mul_overflow(coefficient, number, &coefficient)) return false;
      } else {
        monomial.emplace_back(factor);
      }
    }
    std::sort(monomial.begin(), monomial.end());
    if (coefficient != 0 && !AddTerm(p, monomial, coefficient).ok()) return false;
  }
  return true;
}

Polynomial ToPolynomial(const Dim& dim) {
  Polynomial p;
  if (dim.is_static()) {
    if (dim.value() != 0) p[{}] = dim.value();
  } else if (!Parse(dim.symbol(), &p)) {
    p = {{{dim.symbol()}, 1}};
  }
  return p;
}

std::string Print(const Polynomial& p) {
  std::string out;
  auto append = [&](const Monomial& factors, int64_t c) {
    if (c < 0) {
      out += "-";
    } else if (!out.empty()) {
      out += "+";
    }
    uint64_t magnitude = c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c);
    if (factors.empty()) {
      absl::StrAppend(&out, magnitude);
      return;
    }
    if (magnitude != 1) absl::StrAppend(&out, magnitude, "*");
    absl::StrAppend(&out, absl::StrJoin(factors, "*"));
  };
  for (const auto& [factors, c] : p) {
    if (!factors.empty()) append(factors, c);
  }
  if (auto it = p.find({}); it != p.end()) append({}, it->second);
  return out;
}

absl::StatusOr<Dim> ToDim(const Polynomial& p) {
  if (p.empty()) return Dim(0);
  if (p.size() == 1 && p.begin()->first.empty()) return Dim(p.begin()->second);
  std::string symbol = Print(p);
  if (symbol.size() > kMaxSymbolLength) return absl::InvalidArgumentError("a symbolic extent grows too long");
  return Dim::Symbol(std::move(symbol));
}

// "((h+1)/2)"
absl::optional<OpaquePart> ParseDivision(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "((") || !absl::ConsumeSuffix(&text, ")")) return absl::nullopt;
  const size_t slash = text.rfind(")/");
  int64_t divisor;
  if (slash == absl::string_view::npos || !absl::SimpleAtoi(text.substr(slash + 2), &divisor) || divisor <= 0) {
    return absl::nullopt;
  }
  Polynomial p;
  if (!Parse(text.substr(0, slash), &p)) return absl::nullopt;
  absl::StatusOr<Dim> of = ToDim(p);
  if (!of.ok() || of->is_static()) return absl::nullopt;
  return OpaquePart{OpaquePart::Function::kFloorDiv, *std::move(of), {divisor}};
}

// nullopt: there is no function of that name and arguments.
absl::optional<OpaquePart> MakePart(absl::string_view function, const Dim& of,
                                    const std::vector<absl::string_view>& args) {
  const bool slices = function == "slice";
  if (of.is_static() || (!slices && function != "pool") || args.size() != (slices ? 3 : 4)) return absl::nullopt;
  OpaquePart part{slices ? OpaquePart::Function::kSlice : OpaquePart::Function::kCeilPool, of, {}};
  for (absl::string_view arg : args) {
    if (!absl::SimpleAtoi(arg, &part.args.emplace_back())) return absl::nullopt;
  }
  if (slices ? part.args[2] == 0 : part.args[1] <= 0) return absl::nullopt;
  return part;
}

}  // namespace

absl::StatusOr<Dim> AddDims(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) {
    int64_t sum;
    if (__builtin_add_overflow(a.value(), b.value(), &sum)) return Overflow();
    return Dim(sum);
  }
  Polynomial p = ToPolynomial(a);
  for (const auto& [factors, c] : ToPolynomial(b)) INLAY_RETURN_IF_ERROR(AddTerm(&p, factors, c));
  return ToDim(p);
}

absl::StatusOr<Dim> AddDims(const Dim& a, int64_t b) { return AddDims(a, Dim(b)); }

absl::StatusOr<Dim> MulDims(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) {
    int64_t product;
    if (__builtin_mul_overflow(a.value(), b.value(), &product)) return Overflow();
    return Dim(product);
  }
  Polynomial result;
  const Polynomial pa = ToPolynomial(a), pb = ToPolynomial(b);
  for (const auto& [fa, ca] : pa) {
    for (const auto& [fb, cb] : pb) {
      int64_t c;
      if (__builtin_mul_overflow(ca, cb, &c)) return Overflow();
      Monomial factors = fa;
      factors.insert(factors.end(), fb.begin(), fb.end());
      std::sort(factors.begin(), factors.end());
      INLAY_RETURN_IF_ERROR(AddTerm(&result, factors, c));
    }
  }
  return ToDim(result);
}

namespace {

// (a + m * r) / (m * n) for (floor(a / m) + r) / n, which it equals: strides that follow each other are one division.
// nullopt: no term is such a division, or several are, or the numbers get too large.
absl::optional<std::pair<Dim, int64_t>> MergeDivision(const Polynomial& p, int64_t n) {
  absl::optional<OpaquePart> inner;
  Polynomial rest;
  for (const auto& [factors, c] : p) {
    absl::optional<OpaquePart> part;
    if (c == 1 && factors.size() == 1) part = ParseDivision(factors[0]);
    if (!part.has_value()) {
      rest[factors] = c;
    } else if (inner.has_value()) {
      return absl::nullopt;
    } else {
      inner = std::move(part);
    }
  }
  int64_t divisor;
  if (!inner.has_value() || __builtin_mul_overflow(inner->args[0], n, &divisor)) return absl::nullopt;
  absl::StatusOr<Dim> dividend = ToDim(rest);
  if (dividend.ok()) dividend = MulDims(*dividend, inner->args[0]);
  if (dividend.ok()) dividend = AddDims(inner->of, *dividend);
  if (!dividend.ok()) return absl::nullopt;
  return std::make_pair(*std::move(dividend), divisor);
}

}  // namespace

absl::StatusOr<Dim> FloorDivDims(const Dim& a, int64_t divisor) {
  if (a.is_static()) return Dim(FloorDivExtent(a.value(), divisor));
  // floor((divisor * whole + rest) / divisor) = whole + floor(rest / divisor); rest's coefficients lie in [0, divisor).
  Polynomial whole, rest;
  int64_t common = divisor;  // of the rest but for its number, and the divisor
  for (const auto& [factors, c] : ToPolynomial(a)) {
    const int64_t quotient = FloorDivExtent(c, divisor), left = c % divisor < 0 ? c % divisor + divisor : c % divisor;
    if (quotient != 0) whole[factors] = quotient;
    if (left != 0) rest[factors] = left;
    if (!factors.empty()) common = std::gcd(common, left);
  }
  INLAY_ASSIGN_OR_RETURN(Dim result, ToDim(whole));
  if (common == divisor) return result;  // the rest is a number below it
  for (auto it = rest.begin(); it != rest.end();) {
    it->second /= common;
    it = it->second == 0 ? rest.erase(it) : std::next(it);
  }
  divisor /= common;
  Dim quotient = 0;
  if (const auto merged = MergeDivision(rest, divisor)) {
    INLAY_ASSIGN_OR_RETURN(quotient, FloorDivDims(merged->first, merged->second));
  } else {
    INLAY_ASSIGN_OR_RETURN(quotient, ToDim({{{absl::StrCat("((", Print(rest), ")/", divisor, ")")}, 1}}));
  }
  return AddDims(result, quotient);
}

absl::StatusOr<Dim> ExactDivDims(const Dim& a, const Dim& b) {
  const Polynomial divisor = ToPolynomial(b);
  const absl::Status inexact =
      absl::InvalidArgumentError(absl::StrCat(a.ToString(), " can't be divided by ", b.ToString()));
  if (divisor.size() != 1 || divisor.begin()->second <= 0) return inexact;
  const auto& [divisor_factors, divisor_c] = *divisor.begin();
  Polynomial result;
  for (const auto& [factors, c] : ToPolynomial(a)) {
    if (c % divisor_c != 0) return inexact;
    Monomial rest;
    std::set_difference(factors.begin(), factors.end(), divisor_factors.begin(), divisor_factors.end(),
                        std::back_inserter(rest));
    if (rest.size() + divisor_factors.size() != factors.size()) return inexact;
    INLAY_RETURN_IF_ERROR(AddTerm(&result, rest, c / divisor_c));
  }
  return ToDim(result);
}

absl::StatusOr<Dim> SliceDim(const Dim& extent, int64_t begin, int64_t end, int64_t step) {
  if (extent.is_static()) return Dim(SliceExtent(extent.value(), &begin, &end, step));
  constexpr int64_t kMost = int64_t{1} << 48;  // elements
  const bool through_last = end == INT64_MAX;
  if (step == 1 && begin >= 0 && begin < kMost) {
    if (through_last) return AddDims(extent, -begin);
    if (end < 0 && end > -kMost) return AddDims(extent, end - begin);
  }
  if (step == 1) {
    int64_t unit = 0;
    for (const auto& [factors, c] : ToPolynomial(extent)) unit = std::gcd(unit, c);
    if (begin >= 0 && begin < end && end <= unit) return Dim(end - begin);
    if (begin < 0 && begin >= -unit && through_last) return Dim(-begin);
    if (begin < 0 && begin >= -unit && end < 0 && begin < end) return Dim(end - begin);
  }
  if (step > 1 && begin >= 0 && begin < step && through_last) {
    INLAY_ASSIGN_OR_RETURN(Dim rounded, AddDims(extent, step - 1 - begin));
    return FloorDivDims(rounded, step);
  }
  if (step == -1 && (begin == -1 || begin == INT64_MAX) && end == INT64_MIN) return extent;
  return OpaqueDim("slice", {extent.symbol(), absl::StrCat(begin), absl::StrCat(end), absl::StrCat(step)});
}

Dim OpaqueDim(absl::string_view function, const std::vector<std::string>& args) {
  return Dim::Symbol(absl::StrCat(function, "(", absl::StrJoin(args, ","), ")"));
}

namespace {

// What people and importers write: + - * and whole division by numbers, brackets, the opaque functions.
class ExprParser {
 public:
  explicit ExprParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Dim> Run() {
    INLAY_ASSIGN_OR_RETURN(Dim dim, Sum());
    return absl::StripAsciiWhitespace(text_).empty() ? absl::StatusOr<Dim>(dim) : Bad();
  }

 private:
  static constexpr int kMaxDepth = 64;
  static absl::Status Bad() { return absl::InvalidArgumentError("no expression"); }
  bool Take(char c) {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    return absl::ConsumePrefix(&text_, absl::string_view(&c, 1));
  }

  absl::StatusOr<Dim> Sum() {
    if (++depth_ > kMaxDepth) return Bad();
    const bool negative = Take('-');
    INLAY_ASSIGN_OR_RETURN(Dim sum, Product());
    if (negative) {
      INLAY_ASSIGN_OR_RETURN(sum, MulDims(sum, -1));
    }
    while (true) {
      const bool minus = Take('-');
      if (!minus && !Take('+')) break;
      INLAY_ASSIGN_OR_RETURN(Dim term, Product());
      if (minus) {
        INLAY_ASSIGN_OR_RETURN(term, MulDims(term, -1));
      }
      INLAY_ASSIGN_OR_RETURN(sum, AddDims(sum, term));
    }
    --depth_;
    return sum;
  }

  absl::StatusOr<Dim> Product() {
    INLAY_ASSIGN_OR_RETURN(Dim product, Factor());
    while (true) {
      const bool times = Take('*');
      if (!times && !Take('/')) return product;
      if (!times) Take('/');  // Python's //
      INLAY_ASSIGN_OR_RETURN(Dim factor, Factor());
      if (times) {
        INLAY_ASSIGN_OR_RETURN(product, MulDims(product, factor));
      } else if (factor.is_static() && factor.value() > 0) {
        INLAY_ASSIGN_OR_RETURN(product, FloorDivDims(product, factor.value()));
      } else {
        return Bad();
      }
    }
  }

  absl::StatusOr<Dim> Factor() {
    if (Take('(')) {
      INLAY_ASSIGN_OR_RETURN(Dim inner, Sum());
      return Take(')') ? absl::StatusOr<Dim>(inner) : Bad();
    }
    const std::string word = Word();
    if (word.empty()) return Bad();
    int64_t number;
    if (absl::SimpleAtoi(word, &number)) return Dim(number);
    if (!Take('(')) return Dim::Symbol(word);
    // An opaque function: a dimension, then numbers.
    INLAY_ASSIGN_OR_RETURN(Dim of, Sum());
    std::vector<std::string> args = {of.ToString()};
    while (Take(',')) {
      const std::string sign = Take('-') ? "-" : "";
      args.push_back(sign + Word());
    }
    const bool known = MakePart(word, of, {args.begin() + 1, args.end()}).has_value();
    return known && Take(')') ? absl::StatusOr<Dim>(OpaqueDim(word, args)) : Bad();
  }

  std::string Word() {
    const size_t end = std::min(text_.find_first_of("+-*/(),"), text_.size());
    std::string word(absl::StripAsciiWhitespace(text_.substr(0, end)));
    text_.remove_prefix(end);
    return word;
  }

  absl::string_view text_;
  int depth_ = 0;
};

}  // namespace

Dim CanonicalDim(const std::string& symbol) {
  // Only what is clearly an expression: ONNX names may hold any character.
  absl::StatusOr<Dim> dim = ExprParser(symbol).Run();
  return dim.ok() ? *dim : Dim::Symbol(symbol);
}

std::vector<std::string> SymbolNames(const Dim& dim) {
  if (dim.is_static()) return {};
  std::set<std::string> names;
  for (const auto& [factors, c] : ToPolynomial(dim)) names.insert(factors.begin(), factors.end());
  return {names.begin(), names.end()};
}

std::vector<DimTerm> DimTerms(const Dim& dim) {
  std::vector<DimTerm> terms;
  for (const auto& [factors, c] : ToPolynomial(dim)) terms.push_back({c, factors});
  return terms;
}

absl::optional<OpaquePart> ParseOpaque(const std::string& name) {
  if (name.size() > kMaxSymbolLength) return absl::nullopt;
  if (absl::optional<OpaquePart> part = ParseDivision(name)) return part;
  // As OpaqueDim writes them.
  absl::string_view text = name;
  const absl::string_view function = text.substr(0, text.find('('));
  std::vector<absl::string_view> args;
  std::string ignored;
  if (!absl::ConsumePrefix(&text, absl::StrCat(function, "(")) || !absl::ConsumeSuffix(&text, ")") ||
      !SplitTop(text, ",", &args, &ignored) || args[0].empty()) {
    return absl::nullopt;
  }
  return MakePart(function, CanonicalDim(std::string(args[0])), {args.begin() + 1, args.end()});
}

std::vector<std::string> PlainNames(const Dim& dim) {
  std::set<std::string> names;
  for (const std::string& name : SymbolNames(dim)) {
    if (absl::optional<OpaquePart> part = ParseOpaque(name)) {
      for (std::string& inner : PlainNames(part->of)) names.insert(std::move(inner));
    } else {
      names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

namespace {

absl::StatusOr<int64_t> EvaluateName(const std::string& name, const std::map<std::string, int64_t>& values) {
  if (auto it = values.find(name); it != values.end()) return it->second;
  absl::optional<OpaquePart> part = ParseOpaque(name);
  if (!part.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("the symbolic extent '", name, "' has no value"));
  }
  INLAY_ASSIGN_OR_RETURN(int64_t of, EvaluateDim(part->of, values));
  std::vector<int64_t>& args = part->args;
  if (part->function == OpaquePart::Function::kFloorDiv) return FloorDivExtent(of, args[0]);
  int64_t extent = -1;
  if (of >= 0 && part->function == OpaquePart::Function::kSlice) extent = SliceExtent(of, &args[0], &args[1], args[2]);
  if (of >= 0 && part->function == OpaquePart::Function::kCeilPool) {
    extent = CeilPoolExtent(of, args[0], args[1], args[2], args[3]);
  }
  if (extent >= 0) return extent;
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no extent where '", part->of.ToString(), "' is ", of));
}

}  // namespace

absl::StatusOr<int64_t> EvaluateDim(const Dim& dim, const std::map<std::string, int64_t>& values) {
  if (dim.is_static()) return dim.value();
  int64_t sum = 0;
  for (const auto& [factors, c] : ToPolynomial(dim)) {
    int64_t product = c;
    for (const std::string& name : factors) {
      INLAY_ASSIGN_OR_RETURN(int64_t value, EvaluateName(name, values));
      if (__builtin_mul_overflow(product, value, &product)) return Overflow();
    }
    if (__builtin_add_overflow(sum, product, &sum)) return Overflow();
  }
  return sum;
}

absl::StatusOr<int64_t> EvaluateDim(const Dim& dim, const std::function<int64_t(const std::string&)>& value_of) {
  std::map<std::string, int64_t> values;
  for (const std::string& name : PlainNames(dim)) values[name] = value_of(name);
  return EvaluateDim(dim, values);
}

}  // namespace inlay::ir
