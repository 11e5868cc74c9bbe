#include "server/measuring/process_threads.h"

#include <sched.h>

#include <atomic>
#include <climits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace inlay::server {
namespace {

cpu_set_t Cpus(pid_t thread = 0) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(thread, sizeof(set), &set);
  return set;
}

TEST(ProcessThreads, PinsAllThreadsToTheLastCpus) {
  const cpu_set_t given = Cpus();
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &given)) last = cpu;
  }
  absl::Notification pinned;
  std::atomic<int> count{0};
  std::thread other([&] {
    pinned.WaitForNotification();
    const cpu_set_t set = Cpus();
    count = CPU_COUNT(&set);
  });
  PinToLastCpus(1);
  pinned.Notify();
  other.join();
  EXPECT_EQ(count, 1) << "a thread that was there before";
  const cpu_set_t one = Cpus();
  EXPECT_EQ(CPU_COUNT(&one), 1);
  EXPECT_TRUE(CPU_ISSET(last, &one));
  PinToLastCpus(INT_MAX);
  const cpu_set_t all = Cpus();
  EXPECT_TRUE(CPU_EQUAL(&all, &given));
}

TEST(ProcessThreads, WaitsForOthersToSleep) {
  EXPECT_TRUE(WaitForOtherThreadsToSleep(absl::Seconds(10)));
  std::atomic<bool> stop{false};
  absl::Notification end;
  std::thread spins([&] {
    while (!stop) {
    }
    end.WaitForNotification();
  });
  EXPECT_FALSE(WaitForOtherThreadsToSleep(absl::Milliseconds(20)));
  stop = true;
  EXPECT_TRUE(WaitForOtherThreadsToSleep(absl::Seconds(10)));
  end.Notify();
  spins.join();
}

}  // namespace
}  // namespace inlay::server
