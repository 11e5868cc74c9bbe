#include "core/runtime/openmp.h"

#include <dlfcn.h>
#include <omp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "core/runtime/placement.h"
#include "core/runtime/threads.h"

namespace {

constexpr int kMaxTeam = 256;
// libgomp's threads look out for the next region at least that long before they sleep, unless the user told them not
// to.
constexpr std::chrono::milliseconds kAwake{1};

// Of the calling thread.
struct Team {
  int workers = 0;
  pid_t ids[kMaxTeam];
  std::chrono::steady_clock::time_point woken;
};
thread_local Team team;

}  // namespace

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

extern "C" void inlay_openmp_wake(int num_threads) {
  const auto now = std::chrono::steady_clock::now(), before = std::exchange(team.woken, now);
  if (now - before < kAwake) return;
  const int cpu = sched_getcpu();
  std::vector<inlay::runtime::Placement> placements(team.workers);
  auto for_workers = [&](auto&& act) {
    for (int i = 0; i < static_cast<int>(placements.size()); ++i) {
      // Teams change, and threads end.
      if (syscall(SYS_tgkill, getpid(), team.ids[i], 0) == 0) act(placements[i], team.ids[i]);
    }
  };
  for_workers([&](auto& placement, pid_t id) { placement.KeepOff(cpu, cpu, id); });
  pid_t* const ids = team.ids;
  int workers = 0;
#pragma omp parallel num_threads(std::min(num_threads, kMaxTeam))
  {
    const int self = omp_get_thread_num();
    if (self > 0) ids[self - 1] = static_cast<pid_t>(syscall(SYS_gettid));
    if (self == 0) workers = omp_get_num_threads() - 1;
  }
  for_workers([&](auto& placement, pid_t id) { placement.Allow(id); });
  team.workers = workers;
}

extern "C" void inlay_openmp_pin() {
  static void* const pinned = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  (void)pinned;
}
