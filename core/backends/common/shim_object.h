// An object file whose primitive functions call a runtime shim with a description that lies in the object: the
// "built-in" and "custom runtime module" flavours of backend need no other code.
//
// For each function: <symbol>_init(ctx, args, state) calls inlay_<component>_init(ctx, args, state, description, size),
// <symbol>_run(ctx, args) calls inlay_<component>_run(ctx, args), <symbol>_destroy(state) inlay_<component>_destroy.
// Links LLVM. Deterministic; any thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_SHIM_OBJECT_H_
#define INLAY_CORE_BACKENDS_COMMON_SHIM_OBJECT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/target/target.h"

namespace inlay::backends {

struct ShimFunction {
  std::string symbol;
  std::string description;  // any bytes; 64-byte aligned in the object
};

// `target` is completed. INVALID_ARGUMENT where LLVM does not know its triple.
absl::StatusOr<std::string> EmitShimObject(const std::string& component, const std::vector<ShimFunction>& functions,
                                           const target::Target& target);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_SHIM_OBJECT_H_
