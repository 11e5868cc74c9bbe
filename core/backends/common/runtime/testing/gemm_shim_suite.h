// What the shim of a GEMM library is held to beyond backend/testing's conformance: many shapes, NaN and infinity,
// threads, damaged descriptions. A test defines GemmShimUnderTest().
#ifndef INLAY_CORE_BACKENDS_COMMON_RUNTIME_TESTING_GEMM_SHIM_SUITE_H_
#define INLAY_CORE_BACKENDS_COMMON_RUNTIME_TESTING_GEMM_SHIM_SUITE_H_

#include <map>
#include <string>

#include "core/backends/common/gemm_description.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::backends::testing {

struct GemmShim {
  int32_t (*init)(const InlayCallContext*, void* const*, void**, const char*, int64_t);
  int32_t (*run)(const InlayCallContext*, void* const*);
  void (*destroy)(void*);
  int64_t (*workspace_bytes)(const GemmDescription&);
  std::map<std::string, int64_t> options;
  bool f64 = false;
};

GemmShim GemmShimUnderTest();

}  // namespace inlay::backends::testing

#endif  // INLAY_CORE_BACKENDS_COMMON_RUNTIME_TESTING_GEMM_SHIM_SUITE_H_
