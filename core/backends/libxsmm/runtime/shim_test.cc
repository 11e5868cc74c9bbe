#include "core/backends/libxsmm/runtime/shim.h"

#include "core/backends/common/runtime/testing/gemm_shim_suite.h"
#include "core/backends/libxsmm/plan.h"

namespace inlay::backends::testing {

GemmShim GemmShimUnderTest() {
  return {
      inlay_libxsmm_init, inlay_libxsmm_run, inlay_libxsmm_destroy, libxsmm::WorkspaceBytes, {{"nb", 64}, {"kb", 64}}};
}

}  // namespace inlay::backends::testing
