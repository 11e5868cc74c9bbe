// What of a Target's CPU decides how kernels are cut and what instructions they may ask for. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CPU_FEATURES_H_
#define INLAY_CORE_BACKENDS_NATIVE_CPU_FEATURES_H_

#include <cstdint>

#include "core/backends/native/gemm_plan.h"
#include "core/target/target.h"

namespace inlay::native {

// What the emitters must know about the processor.
struct CpuFeatures {
  int64_t vector_bytes = 16;
  int64_t vector_registers = 16;
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10;  // caches of a core
  bool fma = false;
  bool f16c = false;
};

CpuFeatures FeaturesOf(const target::Target& target);

inline Core CoreOf(const CpuFeatures& cpu) {
  return {cpu.vector_bytes, cpu.vector_registers, cpu.l1_bytes, cpu.l2_bytes};
}

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CPU_FEATURES_H_
