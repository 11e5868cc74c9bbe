// Cores that plans are tested for.
#ifndef INLAY_CORE_BACKENDS_NATIVE_TESTING_CORES_H_
#define INLAY_CORE_BACKENDS_NATIVE_TESTING_CORES_H_

#include "core/backends/native/gemm_plan.h"

namespace inlay::native::testing {

// The core with the caches of Intel's servers.
inline Core WithFarCaches(Core core) {
  core.far_caches = true;
  core.l1_bytes = 48 << 10;
  core.l2_bytes = 2 << 20;
  return core;
}

// The core of Zen 4 with AVX-512.
inline Core WithOneMultiplyAdd(Core core) {
  core.multiply_adds = 1;
  core.l1_bytes = 32 << 10;
  core.l2_bytes = 1 << 20;
  return core;
}

inline Core Unchanged(Core core) { return core; }

}  // namespace inlay::native::testing

#endif  // INLAY_CORE_BACKENDS_NATIVE_TESTING_CORES_H_
