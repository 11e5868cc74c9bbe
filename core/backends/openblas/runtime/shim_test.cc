#include "core/backends/openblas/runtime/shim.h"

#include "core/backends/common/runtime/testing/gemm_shim_suite.h"

namespace inlay::backends::testing {

GemmShim GemmShimUnderTest() {
  GemmShim shim{inlay_openblas_init, inlay_openblas_run, inlay_openblas_destroy};
  shim.workspace_bytes = [](const GemmDescription&) -> int64_t { return 0; };
  shim.f64 = true;
  return shim;
}

}  // namespace inlay::backends::testing
