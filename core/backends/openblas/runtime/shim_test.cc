#include "core/backends/openblas/runtime/shim.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "core/backends/common/runtime/testing/gemm_shim_suite.h"

namespace inlay::backends::testing {

GemmShim GemmShimUnderTest() {
  GemmShim shim{inlay_openblas_init, inlay_openblas_run, inlay_openblas_destroy};
  shim.workspace_bytes = [](const GemmDescription&) -> int64_t { return 0; };
  shim.f64 = true;
  return shim;
}

namespace {

// OpenBLAS does not look whether the CPU can do what OPENBLAS_CORETYPE asks for.
class OnThisCpu : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* core = std::getenv("OPENBLAS_CORETYPE");
    if (core == nullptr || core != std::string_view("SkylakeX")) return;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) {
      GTEST_SKIP() << "this CPU has no AVX-512";
    }
  }
};

const ::testing::Environment* const on_this_cpu = ::testing::AddGlobalTestEnvironment(new OnThisCpu);

}  // namespace
}  // namespace inlay::backends::testing
