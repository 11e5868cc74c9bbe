// What both halves of the backend say about libxsmm.
#ifndef INLAY_CORE_BACKENDS_LIBXSMM_LIBRARY_H_
#define INLAY_CORE_BACKENDS_LIBXSMM_LIBRARY_H_

#include "core/backends/common/gemm_backend.h"
#include "core/backends/libxsmm/plan.h"

namespace inlay::libxsmm {

inline backends::GemmLibrary Library() {
  backends::GemmLibrary library;
  library.name = "libxsmm";
  library.dtypes = {ir::DType::kF32};
  // Columns and depth of a block of packed weights. Whole vectors; what fits the L1 cache: 64 x 64 floats are 16 KB.
  library.options = {{"nb", 64, 16, 1024, 16, "columns of a block of packed weights"},
                     {"kb", 64, 8, 4096, 8, "depth of a block of packed weights"}};
  // Its kernels for older CPUs are not generated (SSE) or half as fast (AVX without FMA).
  library.required_feature = "avx2";
  // Where native code's products reach 0.8 (1.02 to 1.12 times its time in 550 places of 29 models, 2026-11-22).
  library.efficiency_avx512 = 0.73;
  library.efficiency_avx2 = 0.70;
  library.bytes_per_micro = 20e3;
  library.call_micros = 0.6;
  library.packs_weights = true;
  library.linked_package = "libxsmm-dev";
  library.workspace_bytes = WorkspaceBytes;
  return library;
}

}  // namespace inlay::libxsmm

#endif  // INLAY_CORE_BACKENDS_LIBXSMM_LIBRARY_H_
