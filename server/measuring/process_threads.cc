#include "server/measuring/process_threads.h"

#include <sched.h>
#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"

namespace inlay::server {
namespace {

constexpr char kTasks[] = "/proc/self/task";

cpu_set_t GivenCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}

std::vector<pid_t> Threads() {
  std::vector<pid_t> threads;
  absl::StatusOr<std::vector<std::string>> names = FileSystem::Default()->List(kTasks);
  if (!names.ok()) return threads;
  for (const std::string& name : *names) {
    pid_t id = 0;
    if (absl::SimpleAtoi(name, &id)) threads.push_back(id);
  }
  return threads;
}

// "pid (name) state ...": the name may have parentheses itself.
bool IsRunning(pid_t thread) {
  absl::StatusOr<std::string> stat = ReadFile(absl::StrCat(kTasks, "/", thread, "/stat"));
  if (!stat.ok()) return false;  // it has ended
  const size_t name_end = stat->rfind(')');
  return name_end != std::string::npos && stat->compare(name_end, 3, ") R") == 0;
}

}  // namespace

void PinToLastCpus(int num_threads) {
  static const cpu_set_t kGiven = GivenCpus();
  if (CPU_COUNT(&kGiven) == 0) return;  // more CPUs than cpu_set_t holds
  cpu_set_t set = kGiven;
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&set) > num_threads; ++cpu) CPU_CLR(cpu, &set);
  // Threads of a pool that earlier measurements started keep the CPUs they were started with, unless told.
  for (const pid_t thread : Threads()) sched_setaffinity(thread, sizeof(set), &set);
}

bool WaitForOtherThreadsToSleep(absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  const pid_t self = gettid();
  while (true) {
    bool running = false;
    for (const pid_t thread : Threads()) running |= thread != self && IsRunning(thread);
    if (!running) return true;
    if (absl::Now() >= end) return false;
    absl::SleepFor(absl::Microseconds(200));
  }
}

}  // namespace inlay::server
