// Reading and writing elements of literal data: dense, little-endian, any dtype.
#ifndef INLAY_CORE_IR_LITERAL_H_
#define INLAY_CORE_IR_LITERAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

// Element `index` as a double (floats exactly; integers exactly up to 2^53) and as an integer (of integers and bool).
double ElementAsDouble(DType dtype, absl::string_view data, int64_t index);
int64_t ElementAsInt(DType dtype, absl::string_view data, int64_t index);

// Appends one element. A float is rounded to nearest even, overflow gives infinity; integers wrap.
void AppendDouble(DType dtype, double value, std::string* data);
void AppendInt(DType dtype, int64_t value, std::string* data);

// The one value that all elements of a literal of at least one element have; nullopt: they differ, or no literal.
// Elements are compared by their bits.
absl::optional<double> SplatDouble(const Operand& operand);

// All elements of an integer literal.
std::vector<int64_t> IntElements(const Constant& literal);

// `value` rounded to the precision of `dtype` (a float type).
double RoundTo(DType dtype, double value);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_LITERAL_H_
