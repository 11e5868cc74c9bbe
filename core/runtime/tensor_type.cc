#include "core/runtime/tensor_type.h"

#include <algorithm>

namespace inlay::runtime {
namespace {

struct DTypeInfo {
  const char* name;
  const char* safetensors;
  int64_t bytes;
};
// In the order of the enum, which begins at 1.
constexpr DTypeInfo kInfo[] = {{"f32", "F32", 4}, {"f64", "F64", 8},  {"f16", "F16", 2}, {"bf16", "BF16", 2},
                               {"i8", "I8", 1},   {"u8", "U8", 1},    {"i16", "I16", 2}, {"i32", "I32", 4},
                               {"i64", "I64", 8}, {"bool", "BOOL", 1}};
const DTypeInfo& Info(DType dtype) { return kInfo[static_cast<int>(dtype) - 1]; }

}  // namespace

int64_t ByteSize(DType dtype) { return Info(dtype).bytes; }
const char* Name(DType dtype) { return Info(dtype).name; }
const char* SafetensorsName(DType dtype) { return Info(dtype).safetensors; }

bool ParseDType(const std::string& name, DType* dtype) {
  for (int i = 0; i < static_cast<int>(sizeof(kInfo) / sizeof(kInfo[0])); ++i) {
    if (name == kInfo[i].name) {
      *dtype = static_cast<DType>(i + 1);
      return true;
    }
  }
  return false;
}

bool TensorType::is_open() const {
  return std::any_of(shape.begin(), shape.end(), [](int64_t extent) { return extent < 0; });
}

int64_t TensorType::NumElements() const {
  int64_t n = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(n, extent, &n)) return -1;
  }
  return n;
}

int64_t TensorType::NumBytes() const {
  int64_t n = NumElements();
  if (n < 0 || __builtin_mul_overflow(n, ByteSize(dtype), &n)) return -1;
  return n;
}

std::string TensorType::ToString() const {
  std::string text = std::string(Name(dtype)) + "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace inlay::runtime
