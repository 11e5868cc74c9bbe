// A dtype as DLPack names it: for an exported library's arguments, and for the program of a bundle that makes them.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_DLPACK_DTYPE_H_
#define INLAY_CORE_RUNTIME_EXPORTED_DLPACK_DTYPE_H_

#include <tvm/ffi/c_api.h>

#include "core/runtime/tensor_type.h"

namespace inlay::runtime {

inline DLDataType ToDLPack(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * ByteSize(dtype));
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
      return {kDLFloat, bits, 1};
    case DType::kBF16:
      return {kDLBfloat, bits, 1};
    case DType::kU8:
      return {kDLUInt, bits, 1};
    case DType::kBool:
      return {kDLBool, bits, 1};
    default:
      return {kDLInt, bits, 1};
  }
}

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_DLPACK_DTYPE_H_
