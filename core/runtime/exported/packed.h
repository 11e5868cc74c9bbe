// call_packed in an exported library: functions of the process, by their name in tvm-ffi's global registry.
#ifndef INLAY_CORE_RUNTIME_EXPORTED_PACKED_H_
#define INLAY_CORE_RUNTIME_EXPORTED_PACKED_H_

#include <string>

#include "core/runtime/executor.h"

namespace inlay::runtime {

// The function is called with a Tensor for each input (its own copy: it may keep it) and gives a Tensor, or an Array of
// as many as there are outputs, dense, of exactly the types that the model says. FAILED_PRECONDITION: nothing is
// registered under that name. INTERNAL: it failed, with its own message. INVALID_ARGUMENT: it gave something else.
Status CallRegistered(const std::string& name, const PackedTensor* inputs, int num_inputs, const PackedTensor* outputs,
                      int num_outputs);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXPORTED_PACKED_H_
