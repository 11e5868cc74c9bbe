// What the kernels' benchmarks share.
#ifndef INLAY_CORE_BACKENDS_NATIVE_TESTING_MEASURING_H_
#define INLAY_CORE_BACKENDS_NATIVE_TESTING_MEASURING_H_

#include <cstdint>
#include <cstdlib>
#include <ctime>

#include "core/backends/native/gemm_plan.h"

namespace inlay::native::testing {

// CPU time of this thread: machines that build are busy.
inline double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

// An environment variable.
inline int64_t Setting(const char* name, int64_t value) {
  const char* text = getenv(name);
  return text != nullptr ? atoll(text) : value;
}

// With caches of L1 and L2 KiB, and far ones (FAR), where those are set.
inline Core WithCaches(Core core) {
  core.l1_bytes = Setting("L1", core.l1_bytes >> 10) << 10;
  core.l2_bytes = Setting("L2", core.l2_bytes >> 10) << 10;
  core.far_caches = Setting("FAR", core.far_caches);
  return core;
}

}  // namespace inlay::native::testing

#endif  // INLAY_CORE_BACKENDS_NATIVE_TESTING_MEASURING_H_
