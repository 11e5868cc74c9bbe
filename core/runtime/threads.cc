#include "core/runtime/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "core/runtime/openmp.h"
#include "core/runtime/thread_pool.h"

// Absent from artifacts that need no libgomp.
#pragma weak inlay_openmp_parallel_for
#pragma weak inlay_openmp_pin
#pragma weak inlay_openmp_wake

namespace inlay::runtime {

int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More CPUs than cpu_set_t holds (1024): all that are online.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  }
  return std::max(1, CPU_COUNT(&set));
}

void ParallelFor(void* pool, int64_t n, InlayTask task, void* closure) {
  if (n <= 0) return;
  const ThreadPool& threads = *static_cast<ThreadPool*>(pool);
  if (threads.num_threads <= 1 || n == 1) {
    task(closure, 0, n, 0);
  } else if (threads.openmp && &inlay_openmp_parallel_for != nullptr) {
    inlay_openmp_parallel_for(static_cast<int>(std::min<int64_t>(threads.num_threads, n)), n, task, closure);
  } else {
    RunOnPool(threads.num_threads, n, task, closure);
  }
}

void WakeThreads(const ThreadPool& pool) {
  if (pool.openmp && pool.num_threads > 1 && &inlay_openmp_wake != nullptr) inlay_openmp_wake(pool.num_threads);
}

void PinThreadLibrary() {
  if (&inlay_openmp_pin != nullptr) inlay_openmp_pin();
}

}  // namespace inlay::runtime
