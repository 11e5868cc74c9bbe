// Arithmetic on extents that may be symbolic: what shape inference derives new extents with.
//
// A symbol holds a polynomial over names with integer coefficients in one normal form, so that equal derivations give
// equal symbols: "2*batch", "past+seq". The client has the same (client/python/inlay/ir/dims.py), to the letter.
// Of a floor division, what is whole is taken out and the rest is opaque: (h-1)/2+1 is "((h+1)/2)", (8*h-1)/2+1 is
// "4*h", (3*h+2)/2 is "((h)/2)+h+1". One of another is one: halved five times like that, h is "((h+31)/32)".
// Every function is pure; hostile extents give INVALID_ARGUMENT, never an overflow.
#ifndef INLAY_CORE_IR_DIM_EXPR_H_
#define INLAY_CORE_IR_DIM_EXPR_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "core/ir/type.h"

namespace inlay::ir {

absl::StatusOr<Dim> AddDims(const Dim& a, const Dim& b);
absl::StatusOr<Dim> AddDims(const Dim& a, int64_t b);
absl::StatusOr<Dim> MulDims(const Dim& a, const Dim& b);
// floor(a / divisor), divisor > 0.
absl::StatusOr<Dim> FloorDivDims(const Dim& a, int64_t divisor);
// a / b where that is exact whatever the symbols stand for ("6*batch" / "2*batch" = 3), else INVALID_ARGUMENT.
absl::StatusOr<Dim> ExactDivDims(const Dim& a, const Dim& b);
// How many elements NumPy's x[begin:end:step] has, step != 0. Of a symbolic extent that is told by a polynomial where a
// few are dropped at an end ("n-2"; a run that has fewer is refused, see required_extents.h) or the step divides or
// turns the whole axis ("((n+1)/2)", "n"). It is a number where what is taken lies in the first or last g elements of a
// multiple of g ("7*h", g = 7; "n", g = 1), which then can't be 0. Else it is a name of its own: "slice(n,1,5,2)".
absl::StatusOr<Dim> SliceDim(const Dim& extent, int64_t begin, int64_t end, int64_t step);
// An extent that follows from others in a way that is no polynomial: "slice(seq,1,5,2)". `args` are its inputs.
Dim OpaqueDim(absl::string_view function, const std::vector<std::string>& args);

// The symbol in its normal form ("batch * 4" -> "4*batch"); a name that is no expression stays as it is.
Dim CanonicalDim(const std::string& symbol);

// The names that a symbol consists of ("2*batch+seq" -> batch, seq). Opaque parts are given whole.
std::vector<std::string> SymbolNames(const Dim& dim);

// The polynomial, term by term: 2*batch*seq+1 = {2, {batch, seq}}, {1, {}}; no terms for 0. Opaque parts are names.
struct DimTerm {
  int64_t coefficient;
  std::vector<std::string> names;  // sorted; twice where squared
};
std::vector<DimTerm> DimTerms(const Dim& dim);

// What an opaque name stands for (core/base/extents.h).
struct OpaquePart {
  enum class Function { kFloorDiv, kSlice, kCeilPool };
  Function function;
  Dim of;
  std::vector<int64_t> args;  // a divisor; begin, end, step; window, stride, pads
};
// nullopt: a plain name.
absl::optional<OpaquePart> ParseOpaque(const std::string& name);

// The names that all of it is made from, those inside opaque parts in place of these ("((h+1)/2)+w" -> h, w).
std::vector<std::string> PlainNames(const Dim& dim);

// The value with every name replaced, opaque parts of these computed (unless they have a value of their own).
// INVALID_ARGUMENT names the one that is missing.
absl::StatusOr<int64_t> EvaluateDim(const Dim& dim, const std::map<std::string, int64_t>& values);
// Every plain name by a function.
absl::StatusOr<int64_t> EvaluateDim(const Dim& dim, const std::function<int64_t(const std::string&)>& value_of);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_DIM_EXPR_H_
