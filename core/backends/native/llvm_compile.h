// From an MLIR module of scf, arith, vector and LLVM operations to code for a target.
//
// The contexts and registries are made once a process; compiling is safe from several threads, each with its own
// context.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LLVM_COMPILE_H_
#define INLAY_CORE_BACKENDS_NATIVE_LLVM_COMPILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/target/target.h"

namespace mlir {
class MLIRContext;
class ModuleOp;
}  // namespace mlir

namespace inlay::native {

// A context with the dialects loaded that the emitters use. Borrowed from a pool of the process, so that a compile does
// not pay for a new one; one user at a time.
class ContextLease {
 public:
  ContextLease();
  ~ContextLease();
  mlir::MLIRContext* get() const { return context_.get(); }

 private:
  std::unique_ptr<mlir::MLIRContext> context_;
};

enum class CodeForm { kObject, kAssembly };  // ELF; text to read

// INTERNAL with LLVM's or MLIR's own message where a stage fails (a bug of an emitter, never of the input). The module
// is spent afterwards. The target is a completed one.
absl::StatusOr<std::string> CompileModule(mlir::ModuleOp module, const target::Target& target,
                                          CodeForm form = CodeForm::kObject);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LLVM_COMPILE_H_
