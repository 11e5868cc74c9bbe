// Types of the IR: tensors with static or symbolic dims, and tuples. Plain values; copy freely, any thread.
#ifndef INLAY_CORE_IR_TYPE_H_
#define INLAY_CORE_IR_TYPE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay::ir {

// The numbers are those of proto/ir.proto's DType.
enum class DType : uint8_t { kF32 = 1, kF64, kF16, kBF16, kI8, kU8, kI16, kI32, kI64, kBool };

int64_t ByteSize(DType dtype);
absl::string_view Name(DType dtype);  // "f32"
absl::StatusOr<DType> ParseDType(absl::string_view name);
bool IsFloat(DType dtype);
bool IsInteger(DType dtype);  // not bool
bool IsSigned(DType dtype);

// One extent: a non-negative number, or a symbol such as "batch" (equal only to itself).
class Dim {
 public:
  Dim(int64_t value) : value_(value) {}  // NOLINT: implicit, so that shapes read {1, 3, 224, 224}
  static Dim Symbol(std::string name);

  bool is_static() const { return symbol_.empty(); }
  int64_t value() const { return value_; }  // only where is_static()
  const std::string& symbol() const { return symbol_; }
  bool operator==(const Dim& other) const { return value_ == other.value_ && symbol_ == other.symbol_; }
  bool operator!=(const Dim& other) const { return !(*this == other); }
  std::string ToString() const;

 private:
  int64_t value_;
  std::string symbol_;
};

struct TensorType {
  DType dtype = DType::kF32;
  std::vector<Dim> dims;

  int rank() const { return static_cast<int>(dims.size()); }
  bool is_static() const;
  // The first open symbol, or "" where is_static().
  std::string FirstSymbol() const;
  // Only where is_static(). The verifier guarantees that neither overflows and that bytes <= kMaxTensorBytes.
  int64_t NumElements() const;
  int64_t NumBytes() const { return NumElements() * ByteSize(dtype); }
  std::vector<int64_t> Shape() const;
  bool operator==(const TensorType& other) const { return dtype == other.dtype && dims == other.dims; }
  bool operator!=(const TensorType& other) const { return !(*this == other); }
  std::string ToString() const;  // "f32[1, 3, batch]"
};

TensorType MakeTensorType(DType dtype, const std::vector<int64_t>& shape);

// A tensor of so many bytes or more, or of a higher rank, is refused: INVALID_ARGUMENT, naming the node.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;
inline constexpr int kMaxRank = 16;
// INVALID_ARGUMENT where a limit is passed or an extent is negative. Symbols count as 1.
absl::Status CheckTensorType(const TensorType& type);

struct Type;
struct TupleType {
  std::vector<Type> fields;
  bool operator==(const TupleType& other) const;
};

struct Type {
  std::variant<TensorType, TupleType> kind;

  Type() = default;
  Type(TensorType tensor) : kind(std::move(tensor)) {}  // NOLINT
  Type(TupleType tuple) : kind(std::move(tuple)) {}     // NOLINT
  bool is_tensor() const { return std::holds_alternative<TensorType>(kind); }
  bool is_tuple() const { return std::holds_alternative<TupleType>(kind); }
  const TensorType& tensor() const { return std::get<TensorType>(kind); }
  const TupleType& tuple() const { return std::get<TupleType>(kind); }
  bool operator==(const Type& other) const { return kind == other.kind; }
  bool operator!=(const Type& other) const { return !(*this == other); }
  std::string ToString() const;
};

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_TYPE_H_
