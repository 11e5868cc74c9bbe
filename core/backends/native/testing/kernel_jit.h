// KernelJit: builds a function with KernelBuilder, compiles it for a CPU of x86 and runs it here. For tests and
// benchmarks of kernels alone, without a partition around them. Dies on errors.
#ifndef INLAY_CORE_BACKENDS_NATIVE_TESTING_KERNEL_JIT_H_
#define INLAY_CORE_BACKENDS_NATIVE_TESTING_KERNEL_JIT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/kernel_builder.h"

namespace inlay::native::testing {

class KernelJit {
 public:
  // "x86-64", "x86-64-v3", "x86-64-v4", or "" for this machine.
  explicit KernelJit(std::string cpu);
  ~KernelJit();

  Core core() const;
  // Compiles `void name(void** pointers)`; `body` gets the pointers loaded.
  using Function = void (*)(void**);
  Function Compile(int num_pointers, const std::function<void(KernelBuilder&, const std::vector<mlir::Value>&)>& body);
  // Of the last Compile: milliseconds in MLIR, in LLVM's passes, in its code generator.
  double mlir_ms = 0, opt_ms = 0, codegen_ms = 0;
  std::string last_assembly_file;  // set before Compile: writes assembly there

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay::native::testing

#endif  // INLAY_CORE_BACKENDS_NATIVE_TESTING_KERNEL_JIT_H_
