// What both halves of the native backend share: its name, the targets it serves, the work of a partition. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_NATIVE_BACKEND_H_
#define INLAY_CORE_BACKENDS_NATIVE_NATIVE_BACKEND_H_

#include "absl/status/status.h"
#include "core/ir/ir_module.h"
#include "core/target/target.h"

namespace inlay::native {

inline constexpr char kBackendName[] = "native";

// UNIMPLEMENTED, saying what it can serve.
absl::Status CheckNativeTarget(const target::Target& target);

// Floating-point (and integer) operations of one call, a multiply-add counted as two; shapes must be static.
double CountFlops(const ir::Function& function);
// Bytes of parameters and results.
double CountBytes(const ir::Function& function);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_NATIVE_BACKEND_H_
