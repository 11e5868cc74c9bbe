// An object file out of LLVM IR that only calls and moves pointers: no optimisation, no feature of the CPU is asked
// for.
#ifndef INLAY_CORE_BACKENDS_COMMON_EMIT_OBJECT_H_
#define INLAY_CORE_BACKENDS_COMMON_EMIT_OBJECT_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/target/target.h"

namespace llvm {
class Module;
}

namespace inlay::backends {

// Sets the module's triple and data layout. `target` is completed. INVALID_ARGUMENT where LLVM does not know its
// triple. Deterministic; any thread, with its own LLVMContext.
absl::StatusOr<std::string> EmitObject(llvm::Module* module, const target::Target& target);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_EMIT_OBJECT_H_
