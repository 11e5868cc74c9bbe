// What of a Target's CPU decides how kernels are cut and what instructions they may ask for. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CPU_FEATURES_H_
#define INLAY_CORE_BACKENDS_NATIVE_CPU_FEATURES_H_

#include <cstdint>

#include "core/backends/native/gemm_plan.h"
#include "core/target/target.h"

namespace inlay::native {

// What the emitters must know about the processor.
struct CpuFeatures {
  Core core{16, 16, 32 << 10, 512 << 10};
  bool fma = false;
  bool f16c = false;
  bool x86 = false;
  bool byte_dots = false;     // of four bytes: VNNI, as wide as the vectors
  bool byte_tables = false;   // VBMI: permutations of bytes, from two vectors of 64
  bool matrix_tiles = false;  // AMX, of bytes; beside byte_dots
  bool brain_dots = false;    // of two bf16
  bool brain_tiles = false;   // AMX, of bf16; beside brain_dots
};

CpuFeatures FeaturesOf(const target::Target& target);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CPU_FEATURES_H_
