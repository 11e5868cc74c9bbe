// From tvm-ffi's arguments to dense data of a plan's inputs and outputs, and back.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_DLPACK_ARGS_H_
#define INLAY_CORE_RUNTIME_EXPORTED_DLPACK_ARGS_H_

#include <tvm/ffi/c_api.h>

#include <vector>

#include "core/runtime/memory.h"
#include "core/runtime/plan.h"
#include "core/runtime/status.h"

namespace inlay::runtime {

// The tensor that an argument holds; null: it is none.
const DLTensor* AsTensor(const TVMFFIAny& arg);

// Checks dtype, shape and device of `arg` against `want`; the message begins with `what` ("input 0 'x'").
Status CheckTensor(const TVMFFIAny& arg, const NamedTensor& want, const std::string& what);

// The type of `arg`, which has `want`'s dtype and rank; `want` may be open.
StatusOr<TensorType> GivenType(const TVMFFIAny& arg, const TensorType& want, const OpenShapes& shapes,
                               const std::string& what);

// Address of the first element.
void* DataOf(const DLTensor& tensor);
bool IsDense(const DLTensor& tensor);  // row-major without gaps
// Copies any strides to dense memory.
void CopyDense(const DLTensor& from, int64_t element_bytes, void* to);

// A new uninitialised tensor: from the caller's allocator where it set one (PyTorch's, so that it gets torch.Tensors),
// else 64-byte aligned memory. Returns a strong reference in *tensor. The tensor may outlive the library: nothing of it
// points into the library's code.
Status AllocateOutput(const TensorType& type, TVMFFIObjectHandle* tensor);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_DLPACK_ARGS_H_
