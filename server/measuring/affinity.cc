#include "server/measuring/affinity.h"

#include <sched.h>
#include <sys/types.h>

#include "absl/strings/numbers.h"
#include "core/base/file_system.h"

namespace inlay::server {
namespace {

cpu_set_t GivenCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}

}  // namespace

void PinToLastCpus(int num_threads) {
  static const cpu_set_t kGiven = GivenCpus();
  if (CPU_COUNT(&kGiven) == 0) return;  // more CPUs than cpu_set_t holds
  cpu_set_t set = kGiven;
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&set) > num_threads; ++cpu) CPU_CLR(cpu, &set);
  // Threads of a pool that earlier measurements started keep the CPUs they were started with, unless told.
  absl::StatusOr<std::vector<std::string>> threads = FileSystem::Default()->List("/proc/self/task");
  if (!threads.ok()) return;
  for (const std::string& thread : *threads) {
    pid_t id = 0;
    if (absl::SimpleAtoi(thread, &id)) sched_setaffinity(id, sizeof(set), &set);
  }
}

}  // namespace inlay::server
