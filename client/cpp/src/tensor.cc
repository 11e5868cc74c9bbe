#include "inlay/tensor.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/runtime/exported/dlpack_dtype.h"
#include "core/runtime/tensor_type.h"

namespace inlay {
namespace {

constexpr size_t kAlignment = 64;

struct CpuAllocator {
  void AllocData(DLTensor* tensor) {
    const size_t bytes = tvm::ffi::GetDataSize(*tensor);
    tensor->data = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
    if (tensor->data == nullptr) TVM_FFI_THROW(MemoryError) << "no memory for a tensor of " << bytes << " bytes";
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

}  // namespace

absl::StatusOr<Tensor> EmptyTensor(absl::string_view dtype, absl::Span<const int64_t> shape) {
  runtime::TensorType type;
  type.shape.assign(shape.begin(), shape.end());
  if (!runtime::ParseDType(std::string(dtype), &type.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("there is no dtype '", dtype, "'; it is f32, i64 and so on"));
  }
  if (type.NumBytes() < 0) return absl::InvalidArgumentError(absl::StrCat("no tensor can be ", type.ToString()));
  try {
    return Tensor::FromNDAlloc(CpuAllocator(), tvm::ffi::ShapeView(shape.data(), shape.size()),
                               runtime::ToDLPack(type.dtype), DLDevice{kDLCPU, 0});
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", type.ToString()));
  }
}

std::string DTypeOf(const Tensor& tensor) {
  const DLDataType dtype = tensor.dtype();
  for (int i = static_cast<int>(runtime::DType::kF32); i <= static_cast<int>(runtime::DType::kBool); ++i) {
    const DLDataType known = runtime::ToDLPack(static_cast<runtime::DType>(i));
    if (known.code == dtype.code && known.bits == dtype.bits && known.lanes == dtype.lanes) {
      return runtime::Name(static_cast<runtime::DType>(i));
    }
  }
  return "";
}

}  // namespace inlay
