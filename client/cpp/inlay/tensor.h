// Tensors are tvm-ffi's (DLPack): whatever else speaks it takes them, and gives them, without a copy.
#ifndef INLAY_TENSOR_H_
#define INLAY_TENSOR_H_

#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "inlay/shape.h"

namespace inlay {

using Tensor = tvm::ffi::Tensor;

// A model's input or output.
struct TensorSpec {
  std::string name;
  std::string dtype;           // "f32"
  std::vector<int64_t> shape;  // -1: open
  Shape dims;                  // the same with what is open as its expression: "2*batch"
};

// Inputs and outputs in call order.
struct Signature {
  std::vector<TensorSpec> inputs, outputs;
};

// Dense, row-major, in CPU memory, aligned to 64 bytes; not initialised. INVALID_ARGUMENT: no such dtype ("f32", "f64",
// "f16", "bf16", "i8", "u8", "i16", "i32", "i64", "bool"), a negative extent.
absl::StatusOr<Tensor> EmptyTensor(absl::string_view dtype, absl::Span<const int64_t> shape);

// inlay's name of a tensor's dtype; "" where inlay has none.
std::string DTypeOf(const Tensor& tensor);

template <typename T>
constexpr const char* DTypeName() {
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, double>) return "f64";
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, int8_t>) return "i8";
  if constexpr (std::is_same_v<T, uint8_t>) return "u8";
  if constexpr (std::is_same_v<T, int16_t>) return "i16";
  if constexpr (std::is_same_v<T, int32_t>) return "i32";
  if constexpr (std::is_same_v<T, int64_t>) return "i64";
  return "";
}

// A tensor with a copy of the values: MakeTensor<float>({2, 2}, {1, 2, 3, 4}). INVALID_ARGUMENT: another number of them
// than the shape has.
template <typename T>
absl::StatusOr<Tensor> MakeTensor(absl::Span<const int64_t> shape, absl::Span<const T> values) {
  absl::StatusOr<Tensor> tensor = EmptyTensor(DTypeName<T>(), shape);
  if (!tensor.ok()) return tensor;
  if (tensor->numel() != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError("as many values as the shape has: " + std::to_string(tensor->numel()) + ", not " +
                                      std::to_string(values.size()));
  }
  if (!values.empty()) std::memcpy(tensor->data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

// The values of a dense tensor, where they lie; empty where it is not dense or not of T.
template <typename T>
absl::Span<const T> Values(const Tensor& tensor) {
  if (DTypeOf(tensor) != DTypeName<T>() || !tensor.IsContiguous()) return {};
  return {static_cast<const T*>(tensor.data_ptr()), static_cast<size_t>(tensor.numel())};
}

}  // namespace inlay

#endif  // INLAY_TENSOR_H_
