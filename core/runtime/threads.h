// The thread pool of compiled code: libgomp's, through OpenMP, so that a process has one pool whatever libraries
// (oneDNN, OpenBLAS) are in it. And the floating-point mode that compiled code runs in.
#ifndef INLAY_CORE_RUNTIME_THREADS_H_
#define INLAY_CORE_RUNTIME_THREADS_H_

#include <cstdint>

#include "core/runtime/kernel_abi.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace inlay::runtime {

// How many CPUs this process may run on.
int AvailableCpus();

// Sets the calling thread to what compiled code expects, and back at the end of the scope: round to nearest, nothing
// traps, denormals are zero (an activation that decays into denormals costs a hundred times the cycles otherwise).
class ScopedFloatMode {
 public:
#if defined(__SSE__)
  static constexpr unsigned kMode = 0x1f80 | 0x8040;  // all exceptions masked; FTZ | DAZ
  ScopedFloatMode() : saved_(_mm_getcsr()) {
    if (saved_ != kMode) _mm_setcsr(kMode);
  }
  ~ScopedFloatMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  ScopedFloatMode() {}
  ~ScopedFloatMode() {}
#endif
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;
};

struct ThreadPool {
  int num_threads = 1;  // 1: everything runs on the caller's thread and OpenMP is not touched
};

// InlayCallContext::parallel_for; `pool` is a ThreadPool.
void ParallelFor(void* pool, int64_t n, InlayTask task, void* closure);

// Keeps libgomp in the process for good: its idle threads would return into unmapped code if unloading the last
// exported library unloaded it too. Idempotent.
void PinThreadLibrary();

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_THREADS_H_
