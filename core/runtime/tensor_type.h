// Tensor types as the runtime knows them. No Abseil: part of every exported library.
#ifndef INLAY_CORE_RUNTIME_TENSOR_TYPE_H_
#define INLAY_CORE_RUNTIME_TENSOR_TYPE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace inlay::runtime {

// The numbers are those of proto/ir.proto's DType.
enum class DType : uint8_t { kF32 = 1, kF64, kF16, kBF16, kI8, kU8, kI16, kI32, kI64, kBool };

int64_t ByteSize(DType dtype);
const char* Name(DType dtype);                           // "f32"
const char* SafetensorsName(DType dtype);                // "F32"
bool ParseDType(const std::string& name, DType* dtype);  // false: no such name

struct TensorType {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // below zero: an extent that is open until a run (open_shapes.h)

  bool is_open() const;
  // -1: an open extent, or overflow.
  int64_t NumElements() const;
  int64_t NumBytes() const;
  std::string ToString() const;  // "f32[1, 3, 224]"
  bool operator==(const TensorType& other) const { return dtype == other.dtype && shape == other.shape; }
  bool operator!=(const TensorType& other) const { return !(*this == other); }
};

struct NamedTensor {
  std::string name;
  TensorType type;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_TENSOR_TYPE_H_
