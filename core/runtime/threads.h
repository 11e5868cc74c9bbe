// The threads of compiled code, one pool for all of a module: our own (thread_pool.h), or libgomp's where a library in
// it brings that (openmp.h). And the floating-point mode that compiled code runs in.
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

// For code that is not ours, called in between: the mode that a process starts with.
class ScopedDefaultFloatMode {
 public:
#if defined(__SSE__)
  ScopedDefaultFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~ScopedDefaultFloatMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  ScopedDefaultFloatMode() {}
  ~ScopedDefaultFloatMode() {}
#endif
  ScopedDefaultFloatMode(const ScopedDefaultFloatMode&) = delete;
  ScopedDefaultFloatMode& operator=(const ScopedDefaultFloatMode&) = delete;
};

struct ThreadPool {
  int num_threads = 1;  // 1: everything runs on the caller's thread and no pool is touched
  bool openmp = false;  // libgomp's threads, which a library of the module uses anyway
};

// InlayCallContext::parallel_for; `pool` is a ThreadPool.
void ParallelFor(void* pool, int64_t n, InlayTask task, void* closure);

// At the beginning of a run. Where libgomp is used: inlay_openmp_wake; our own pool sees to that itself.
void WakeThreads(const ThreadPool& pool);

// A run of compiled code on the calling thread.
class ScopedRun {
 public:
  explicit ScopedRun(const InlayCallContext& context) { WakeThreads(*static_cast<const ThreadPool*>(context.pool)); }

 private:
  ScopedFloatMode mode_;
};

// Where libgomp is used: inlay_openmp_pin. Idempotent.
void PinThreadLibrary();

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_THREADS_H_
