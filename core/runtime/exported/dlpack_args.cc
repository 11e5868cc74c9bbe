#include "core/runtime/exported/dlpack_args.h"

#include <tvm/ffi/extra/c_env_api.h>

#include <cstdlib>
#include <cstring>

#include "core/runtime/exported/dlpack_dtype.h"
#include "core/runtime/memory.h"

namespace inlay::runtime {
namespace {

std::string TypeText(const DLTensor& tensor) {
  static constexpr const char* kCodes[] = {"i", "u", "f", "handle", "bf", "complex", "bool"};
  std::string text = tensor.dtype.code < 7 ? kCodes[tensor.dtype.code] : "type" + std::to_string(tensor.dtype.code);
  if (text != "bool") text += std::to_string(tensor.dtype.bits);
  if (tensor.dtype.lanes != 1) text += "x" + std::to_string(tensor.dtype.lanes);
  text += "[";
  for (int i = 0; i < tensor.ndim; ++i) text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  return text + "]";
}

bool SameDTypeAndRank(const DLTensor& tensor, const TensorType& want) {
  const DLDataType dtype = ToDLPack(want.dtype);
  return tensor.dtype.code == dtype.code && tensor.dtype.bits == dtype.bits && tensor.dtype.lanes == 1 &&
         tensor.ndim == static_cast<int>(want.shape.size());
}

bool SameType(const DLTensor& tensor, const TensorType& want) {
  if (!SameDTypeAndRank(tensor, want)) return false;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] != want.shape[i]) return false;
  }
  return true;
}

void CopyAxis(const DLTensor& from, int axis, int64_t element_bytes, const char* source, char** to) {
  if (axis == from.ndim) {
    std::memcpy(*to, source, element_bytes);
    *to += element_bytes;
    return;
  }
  const int64_t step = from.strides[axis] * element_bytes;
  if (axis == from.ndim - 1 && from.strides[axis] == 1) {
    std::memcpy(*to, source, from.shape[axis] * element_bytes);
    *to += from.shape[axis] * element_bytes;
    return;
  }
  for (int64_t i = 0; i < from.shape[axis]; ++i) CopyAxis(from, axis + 1, element_bytes, source + i * step, to);
}

// One block: this header, the shape, the data. Freed by free() itself, so that a tensor which outlives the library has
// no deleter in its code.
Status AllocateOwn(const TensorType& type, int64_t bytes, TVMFFIObjectHandle* out) {
  const size_t ndim = type.shape.size();
  size_t header = sizeof(DLManagedTensor) + 2 * ndim * sizeof(int64_t);
  header = (header + 63) / 64 * 64;
  auto* managed = static_cast<DLManagedTensor*>(AllocateToFree(header + bytes + 64));
  if (managed == nullptr) return ResourceExhausted("no memory for an output of " + std::to_string(bytes) + " bytes");
  std::memset(managed, 0, header);
  auto* shape = reinterpret_cast<int64_t*>(managed + 1);
  int64_t* strides = shape + ndim;
  int64_t stride = 1;
  for (size_t i = ndim; i-- > 0;) {
    shape[i] = type.shape[i];
    strides[i] = stride;
    stride *= type.shape[i];
  }
  managed->dl_tensor = {reinterpret_cast<char*>(managed) + header,
                        {kDLCPU, 0},
                        static_cast<int32_t>(ndim),
                        ToDLPack(type.dtype),
                        shape,
                        strides,
                        0};
  managed->deleter = reinterpret_cast<void (*)(DLManagedTensor*)>(&std::free);
  if (TVMFFITensorFromDLPack(managed, 0, 0, out) != 0) {
    std::free(managed);
    return Internal("tvm-ffi refused an output tensor");
  }
  return Status();
}

}  // namespace

const DLTensor* AsTensor(const TVMFFIAny& arg) {
  if (arg.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(arg.v_ptr);
  if (arg.type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(arg.v_obj);
  return nullptr;
}

Status CheckTensor(const TVMFFIAny& arg, const NamedTensor& want, const std::string& what) {
  const DLTensor* tensor = AsTensor(arg);
  if (tensor == nullptr) return InvalidArgument(what + ": expected a tensor " + want.type.ToString());
  if (!SameType(*tensor, want.type)) {
    return InvalidArgument(what + ": expected " + want.type.ToString() + ", got " + TypeText(*tensor));
  }
  if (tensor->device.device_type != kDLCPU) {
    return InvalidArgument(what + ": expected a tensor in CPU memory, got one on device type " +
                           std::to_string(tensor->device.device_type));
  }
  if (tensor->data == nullptr && want.type.NumBytes() > 0) return InvalidArgument(what + ": has no data");
  return Status();
}

StatusOr<TensorType> GivenType(const TVMFFIAny& arg, const TensorType& want, const OpenShapes& shapes,
                               const std::string& what) {
  const DLTensor* tensor = AsTensor(arg);
  if (tensor == nullptr) return InvalidArgument(what + ": expected a tensor " + shapes.ToString(want));
  if (!SameDTypeAndRank(*tensor, want)) {
    return InvalidArgument(what + ": expected " + shapes.ToString(want) + ", got " + TypeText(*tensor));
  }
  return TensorType{want.dtype, {tensor->shape, tensor->shape + tensor->ndim}};
}

void* DataOf(const DLTensor& tensor) { return static_cast<char*>(tensor.data) + tensor.byte_offset; }

bool IsDense(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t stride = 1;
  for (int i = tensor.ndim; i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

void CopyDense(const DLTensor& from, int64_t element_bytes, void* to) {
  char* cursor = static_cast<char*>(to);
  if (from.strides == nullptr) {  // dense already, but not aligned
    int64_t bytes = element_bytes;
    for (int i = 0; i < from.ndim; ++i) bytes *= from.shape[i];
    std::memcpy(to, DataOf(from), bytes);
    return;
  }
  CopyAxis(from, 0, element_bytes, static_cast<const char*>(DataOf(from)), &cursor);
}

Status AllocateOutput(const TensorType& type, TVMFFIObjectHandle* tensor) {
  if (TVMFFIEnvGetDLPackManagedTensorAllocator() == nullptr) return AllocateOwn(type, type.NumBytes(), tensor);
  DLTensor prototype = {};
  prototype.device = {kDLCPU, 0};
  prototype.ndim = static_cast<int32_t>(type.shape.size());
  prototype.dtype = ToDLPack(type.dtype);
  prototype.shape = const_cast<int64_t*>(type.shape.data());
  if (TVMFFIEnvTensorAlloc(&prototype, tensor) == 0) return Status();
  TVMFFIObjectHandle error = nullptr;  // the allocator's own error: ours says enough
  TVMFFIErrorMoveFromRaised(&error);
  if (error != nullptr) TVMFFIObjectDecRef(error);
  return ResourceExhausted("the caller's allocator gave no output " + type.ToString());
}

}  // namespace inlay::runtime
