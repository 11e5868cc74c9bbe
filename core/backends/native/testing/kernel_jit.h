// KernelJit: builds a function with KernelBuilder, compiles it as the backend does, for a CPU of x86, and runs it here.
// For tests and benchmarks of kernels alone, without a partition around them. Dies on errors.
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
  // As in -mcpu; "" for this machine.
  explicit KernelJit(const std::string& cpu);
  ~KernelJit();

  Core core() const;
  // `body` gets the pointers.
  using Body = std::function<void(KernelBuilder&, const std::vector<mlir::Value>&)>;
  // Compiles `void name(void** pointers)`.
  using Function = void (*)(void**);
  Function Compile(int num_pointers, const Body& body);
  // The same as text.
  std::string Assembly(int num_pointers, const Body& body);
  double compile_ms = 0;  // of the last Compile

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// max(acc + bias, 0) as fused operators compute it: NaN stays NaN.
mlir::Value BiasRelu(KernelBuilder& kb, mlir::Value acc, mlir::Value bias);

}  // namespace inlay::native::testing

#endif  // INLAY_CORE_BACKENDS_NATIVE_TESTING_KERNEL_JIT_H_
