#include "core/runtime/threads.h"

#include <dlfcn.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>

namespace inlay::runtime {

int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More CPUs than cpu_set_t holds (1024): fall back on libgomp's count.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::max(1, omp_get_num_procs());
  return std::max(1, CPU_COUNT(&set));
}

void ParallelFor(void* pool, int64_t n, InlayTask task, void* closure) {
  if (n <= 0) return;
  const int64_t threads = std::min<int64_t>(static_cast<ThreadPool*>(pool)->num_threads, n);
  if (threads <= 1) {
    task(closure, 0, n, 0);
    return;
  }
#pragma omp parallel num_threads(static_cast<int>(threads))
  {
    // The team may be smaller than asked for (a caller that is inside a parallel region itself, OMP_THREAD_LIMIT).
    const int64_t team = omp_get_num_threads();
    const int64_t self = omp_get_thread_num();
    const int64_t each = n / team;
    const int64_t rest = n % team;
    const int64_t begin = self * each + std::min(self, rest);
    const int64_t end = begin + each + (self < rest ? 1 : 0);
    // Threads of the pool belong to whoever uses OpenMP in this process, so their mode is put back too.
    ScopedFloatMode mode;
    if (begin < end) task(closure, begin, end, static_cast<int32_t>(self));
  }
}

void PinThreadLibrary() {
  static void* const pinned = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  (void)pinned;
}

}  // namespace inlay::runtime
