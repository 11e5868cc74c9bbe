// Which operators have code for open dimensions: what the daemon's rules and the worker both ask. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_OPEN_OPS_H_
#define INLAY_CORE_BACKENDS_NATIVE_OPEN_OPS_H_

#include "absl/status/status.h"
#include "core/ir/ir_module.h"

namespace inlay::native {

// UNIMPLEMENTED, naming operator and dimension, for a call whose types are open in a way that has no code.
absl::Status CheckOpenDims(const ir::Binding& binding);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_OPEN_OPS_H_
