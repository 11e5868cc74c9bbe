#include "server/measuring/stopwatch.h"

#include <sched.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace inlay::server {
namespace {

double ThreadCpuUs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

void Work(double cpu_us) {
  for (const double start = ThreadCpuUs(); ThreadCpuUs() - start < cpu_us;) {
  }
}

TEST(Stopwatch, OthersThreadsWorkIsWaitedFor) {
  const Stopwatch stopwatch(/*own_work=*/false);
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_GE(stopwatch.Elapsed(), 20000);
}

// Two threads on one CPU: each is interrupted for the other.
TEST(Stopwatch, TimeThatAnotherHadDoesNotCount) {
  cpu_set_t given, one;
  CPU_ZERO(&given);
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof(given), &given);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &given)) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof(one), &one);
  std::atomic<bool> stop{false};
  std::thread other([&] {  // on the same CPU
    while (!stop) {
    }
  });
  const Stopwatch own(/*own_work=*/true), wall(/*own_work=*/false);
  Work(100000);
  const double own_us = own.Elapsed(), wall_us = wall.Elapsed();
  stop = true;
  other.join();
  sched_setaffinity(0, sizeof(given), &given);
  EXPECT_GE(own_us, 100000);
  EXPECT_LT(own_us, 150000);
  EXPECT_GT(wall_us, own_us * 1.2) << "the other thread's share";
}

}  // namespace
}  // namespace inlay::server
