#include "core/runtime/openmp.h"

#include <dlfcn.h>
#include <omp.h>

#include <algorithm>

#include "core/runtime/threads.h"

extern "C" void inlay_openmp_parallel_for(int num_threads, int64_t n, InlayTask task, void* closure) {
#pragma omp parallel num_threads(num_threads)
  {
    // The team may be smaller than asked for (a caller that is inside a parallel region itself, OMP_THREAD_LIMIT).
    const int64_t team = omp_get_num_threads();
    const int64_t self = omp_get_thread_num();
    const int64_t each = n / team;
    const int64_t rest = n % team;
    const int64_t begin = self * each + std::min(self, rest);
    const int64_t end = begin + each + (self < rest ? 1 : 0);
    // Threads of the pool belong to whoever uses OpenMP in this process, so their mode is put back too.
    inlay::runtime::ScopedFloatMode mode;
    if (begin < end) task(closure, begin, end, static_cast<int32_t>(self));
  }
}

extern "C" void inlay_openmp_pin() {
  static void* const pinned = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  (void)pinned;
}
