#include "core/ir/dim_expr.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

absl::StatusOr<Dim> FloorDivDims(const Dim& a, int64_t divisor) {
  if (a.is_static()) {
    int64_t q = a.value() / divisor;
    if (a.value() % divisor < 0) --q;
    return Dim(q);
  }
  Polynomial p = ToPolynomial(a);
  bool exact = true;
  for (const auto& [factors, c] : p) exact &= c % divisor == 0;
  if (!exact) return ToDim({{{absl::StrCat("((", Print(p), ")/", divisor, ")")}, 1}});
  for (auto& [factors, c] : p) c /= divisor;
  return ToDim(p);
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

Dim OpaqueDim(absl::string_view function, const std::vector<std::string>& args) {
  return Dim::Symbol(absl::StrCat(function, "(", absl::StrJoin(args, ","), ")"));
}

Dim CanonicalDim(const std::string& symbol) {
  std::string compact;
  for (char c : symbol) {
    if (!absl::ascii_isspace(c)) compact.push_back(c);
  }
  Polynomial p;
  // Only what is clearly an expression: ONNX names may hold any character.
  if (!Parse(compact, &p)) return Dim::Symbol(symbol);
  absl::StatusOr<Dim> dim = ToDim(p);
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

absl::StatusOr<int64_t> EvaluateDim(const Dim& dim, const std::map<std::string, int64_t>& values) {
  if (dim.is_static()) return dim.value();
  int64_t sum = 0;
  for (const auto& [factors, c] : ToPolynomial(dim)) {
    int64_t product = c;
    for (const std::string& name : factors) {
      auto it = values.find(name);
      if (it == values.end()) {
        return absl::InvalidArgumentError(absl::StrCat("the symbolic extent '", name, "' has no value"));
      }
      if (__builtin_mul_overflow(product, it->second, &product)) return Overflow();
    }
    if (__builtin_add_overflow(sum, product, &sum)) return Overflow();
  }
  return sum;
}

}  // namespace inlay::ir
