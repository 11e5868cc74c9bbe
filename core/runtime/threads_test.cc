#include "core/runtime/threads.h"

#include <gtest/gtest.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/runtime/thread_pool.h"

namespace inlay::runtime {
namespace {

struct Recorder {
  std::vector<std::atomic<int>> hits;
  std::atomic<int> max_worker{0};
  std::atomic<int> traps{0};
  explicit Recorder(int64_t n) : hits(n) {}
};

void Record(void* closure, int64_t begin, int64_t end, int32_t worker) {
  auto* r = static_cast<Recorder*>(closure);
  for (int64_t i = begin; i < end; ++i) ++r->hits[i];
  if (worker > r->max_worker) r->max_worker = worker;
#if defined(__SSE__)
  if (_mm_getcsr() != ScopedFloatMode::kMode) ++r->traps;
#endif
}

// Of this process.
int64_t NumThreads() {
  std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

class ParallelForTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Own, ParallelForTest, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(OpenMp, ParallelForTest, testing::Values(true));

// The first in this file: nothing has started a thread yet.
TEST(OneThread, StartsNone) {
  const int64_t before = NumThreads();
  for (bool openmp : {false, true}) {
    ThreadPool pool{1, openmp};
    Recorder r(100);
    ParallelFor(&pool, 100, &Record, &r);
    EXPECT_EQ(r.max_worker, 0);
  }
  EXPECT_EQ(NumThreads(), before);
}

TEST(OwnPool, StartsWhatTheLargestLoopWants) {
  ThreadPool pool{3, false};
  for (int round = 0; round < 3; ++round) {
    Recorder r(100);
    ParallelFor(&pool, 100, &Record, &r);
  }
  EXPECT_EQ(NumPoolWorkers(), 2);
}

TEST_P(ParallelForTest, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 7}) {
    for (int64_t n : {0, 1, 2, 6, 7, 1000}) {
      ThreadPool pool{threads, GetParam()};
      Recorder r(n);
      ScopedFloatMode mode;
      ParallelFor(&pool, n, &Record, &r);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(r.hits[i], 1) << threads << " threads, n " << n;
      EXPECT_LT(r.max_worker, threads);
      EXPECT_EQ(r.traps, 0);
    }
  }
}

TEST_P(ParallelForTest, NegativeIsNothing) {
  ThreadPool pool{2, GetParam()};
  Recorder r(1);
  ParallelFor(&pool, -5, &Record, &r);
  EXPECT_EQ(r.hits[0], 0);
}

TEST_P(ParallelForTest, FromSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        ThreadPool pool{2 + t, GetParam()};
        Recorder r(100);
        ParallelFor(&pool, 100, &Record, &r);
        for (auto& hit : r.hits) wrong += hit != 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// Loops so short that a worker comes when they are over already: seats offered and taken back.
TEST(OwnPool, ManyShortLoops) {
  ThreadPool pool{4, false};
  int64_t sum = 0;
  for (int round = 0; round < 100000; ++round) {
    std::atomic<int64_t> items{0};
    auto add = [](void* closure, int64_t begin, int64_t end, int32_t) {
      *static_cast<std::atomic<int64_t>*>(closure) += end - begin;
    };
    ParallelFor(&pool, 5, add, &items);
    sum += items;
  }
  EXPECT_EQ(sum, 500000);
}

// Helpers of a loop begin while its caller still fills the seats of others, which hold the loop before.
TEST(OwnPool, LoopsOfDifferentTasks) {
  ThreadPool pool{8, false};
  struct Sums {
    std::atomic<int64_t> items{0}, squares{0};
  };
  for (int64_t round = 0; round < 20000; ++round) {
    Sums sums;
    auto count = [](void* closure, int64_t begin, int64_t end, int32_t) {
      static_cast<Sums*>(closure)->items += end - begin;
    };
    auto square = [](void* closure, int64_t begin, int64_t end, int32_t) {
      for (int64_t i = begin; i < end; ++i) static_cast<Sums*>(closure)->squares += i * i;
    };
    const int64_t n = 2 + round % 40;
    ParallelFor(&pool, n, count, &sums);
    ParallelFor(&pool, n + 3, square, &sums);
    ASSERT_EQ(sums.items, n);
    ASSERT_EQ(sums.squares, (n + 2) * (n + 3) * (2 * n + 5) / 6) << n;
  }
}

// Whose core others want: loops go on with the other workers, and with it after a while.
TEST(OwnPool, AWorkerThatWasLateIsAvoidedForAWhile) {
  ThreadPool pool{3, false};
  struct Loop {
    std::atomic<pid_t> late{0};  // the first worker of the first loop
    std::atomic<int> by_late{0}, by_others{0};
    bool first = true;
  };
  auto task = [](void* closure, int64_t, int64_t, int32_t worker) {
    auto* loop = static_cast<Loop*>(closure);
    if (worker == 0) {
      usleep(200);  // the others get to begin
      return;
    }
    const pid_t me = gettid();
    pid_t nobody = 0;
    if (loop->first && loop->late.compare_exchange_strong(nobody, me)) usleep(20000);
    ++(loop->late == me ? loop->by_late : loop->by_others);
    if (!loop->first) usleep(50);
  };
  using Clock = std::chrono::steady_clock;
  // Where this thread's core was taken too, it did not sleep for the worker's sake.
  int tries = 0, avoided = 0;
  bool used_others = false, used_again = false;
  for (int attempt = 0; attempt < 20 && !(avoided > 2 && used_others && used_again); ++attempt) {
    Loop loop;
    ParallelFor(&pool, 64, task, &loop);
    if (loop.late == 0) continue;  // none came in time
    loop.first = false;
    loop.by_late = loop.by_others = 0;
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < 5; ++i) ParallelFor(&pool, 16, task, &loop);
    // What is avoided is avoided for 10 ms.
    if (Clock::now() - begin < std::chrono::milliseconds(8)) {
      ++tries;
      avoided += loop.by_late == 0;
      used_others |= loop.by_others > 0;
    }
    usleep(15000);
    for (int i = 0; i < 5; ++i) ParallelFor(&pool, 16, task, &loop);
    used_again |= loop.by_late > 0;
  }
  EXPECT_GT(2 * avoided, tries);
  EXPECT_GT(avoided, 0);
  EXPECT_TRUE(used_others);
  EXPECT_TRUE(used_again);
}

// More threads than cores, and tasks that sleep: the caller has to wait for pieces of others, asleep itself.
TEST(OwnPool, WaitsForPiecesThatOthersBegan) {
  ThreadPool pool{4, false};
  struct Pieces {
    std::atomic<int> done{0}, of_others{0};
  };
  int of_others = 0;
  // After loops that had to wait for long, as those before may have been, some run on the caller alone.
  for (int round = 0; round < 20 || (of_others == 0 && round < 2000); ++round) {
    Pieces pieces;
    auto slow = [](void* closure, int64_t begin, int64_t end, int32_t worker) {
      auto* pieces = static_cast<Pieces*>(closure);
      usleep(worker > 0 ? 2000 : 100);  // the others get to begin
      if (worker > 0) ++pieces->of_others;
      pieces->done += static_cast<int>(end - begin);
    };
    ParallelFor(&pool, 64, slow, &pieces);
    ASSERT_EQ(pieces.done, 64);
    of_others += pieces.of_others;
  }
  EXPECT_GT(of_others, 0);
}

// The pool's threads.
std::vector<pid_t> Workers() {
  std::vector<pid_t> workers;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "inlay") workers.push_back(std::stoi(task.path().filename()));
  }
  return workers;
}

std::atomic<bool> hold{false};
std::atomic<int> num_held{0};

// Of many workers few come: what the others would have done is not left to the caller.
TEST(OwnPool, WhoIsThereSharesTheRest) {
  constexpr int kThreads = 16, kHelpers = 2, kItems = 128;
  ThreadPool pool{kThreads, false};
  Recorder start(kItems);
  ParallelFor(&pool, kItems, &Record, &start);
  std::vector<pid_t> workers = Workers();
  ASSERT_EQ(workers.size(), kThreads - 1);
  std::sort(workers.begin(), workers.end());
  hold = true;
  num_held = 0;
  const auto before = signal(SIGTRAP, [](int) {
    ++num_held;
    while (hold) usleep(100);
  });
  for (size_t i = kHelpers; i < workers.size(); ++i) tgkill(getpid(), workers[i], SIGTRAP);
  while (num_held < kThreads - 1 - kHelpers) usleep(100);
  std::atomic<int> by_caller{0};
  auto slow = [](void* closure, int64_t begin, int64_t end, int32_t worker) {
    usleep(300 * (end - begin));
    if (worker == 0) *static_cast<std::atomic<int>*>(closure) += static_cast<int>(end - begin);
  };
  ParallelFor(&pool, kItems, slow, &by_caller);
  hold = false;
  Recorder after(kItems);  // by all of them again
  ParallelFor(&pool, kItems, &Record, &after);
  for (auto& hit : after.hits) EXPECT_EQ(hit, 1);
  signal(SIGTRAP, before);
  EXPECT_LT(by_caller, kItems * 9 / 20) << "of three threads one";
}

TEST(OwnPool, AChildProcessHasItsOwn) {
  ThreadPool pool{2, false};
  Recorder before(100);
  ParallelFor(&pool, 100, &Record, &before);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    Recorder r(100);
    ParallelFor(&pool, 100, &Record, &r);
    bool right = NumPoolWorkers() == 1;
    for (auto& hit : r.hits) right &= hit == 1;
    exit(right ? 0 : 1);  // with destructors: the pool stops
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Recorder after(100);
  ParallelFor(&pool, 100, &Record, &after);
  for (auto& hit : after.hits) EXPECT_EQ(hit, 1);
}

// As a signal handler may: the loop's workers are not given back.
TEST(OwnPool, AChildProcessMayExitWithinALoop) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    ThreadPool pool{2, false};
    auto leave = [](void*, int64_t, int64_t, int32_t worker) {
      worker == 0 ? exit(7) : static_cast<void>(usleep(100));
    };
    ParallelFor(&pool, 100, leave, nullptr);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

cpu_set_t AffinityOf(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(thread, sizeof(set), &set);
  return set;
}

// The kernel would begin it on the caller's CPU, where it is for milliseconds then.
TEST_P(ParallelForTest, AWorkerThatSleptOnTheCallersCpuBeginsOnAnother) {
  if (AvailableCpus() < 2) GTEST_SKIP() << "one CPU";
  struct Cpus {
    std::atomic<int> caller{-1}, worker{-1};
    std::atomic<pid_t> worker_id{0};
  };
  auto note = [](void* closure, int64_t, int64_t, int32_t worker) {
    auto* cpus = static_cast<Cpus*>(closure);
    std::atomic<int>& cpu = worker == 0 ? cpus->caller : cpus->worker;
    if (cpu < 0) cpu = sched_getcpu();
    if (worker == 1) cpus->worker_id = gettid();
    usleep(200);
  };
  const bool openmp = GetParam();
  ThreadPool pool{openmp ? 2 : NumPoolWorkers() + 1, openmp};
  const int here = sched_getcpu();
  const cpu_set_t all = AffinityOf(0);
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(here, &only);
  ASSERT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
  Cpus before;
  WakeThreads(pool);
  ParallelFor(&pool, 64, note, &before);
  std::vector<pid_t> workers = openmp ? std::vector<pid_t>{before.worker_id} : Workers();
  for (pid_t worker : workers) ASSERT_EQ(sched_setaffinity(worker, sizeof(only), &only), 0);
  ParallelFor(&pool, 64, note, &before);
  usleep(100000);  // asleep, all on this CPU
  for (pid_t worker : workers) ASSERT_EQ(sched_setaffinity(worker, sizeof(all), &all), 0);
  Cpus cpus;
  WakeThreads(pool);
  ParallelFor(&pool, 64, note, &cpus);
  usleep(10000);
  for (pid_t worker : workers) {
    const cpu_set_t set = AffinityOf(worker);
    EXPECT_TRUE(CPU_EQUAL(&set, &all)) << "what it was, when it runs again";
  }
  sched_setaffinity(0, sizeof(all), &all);
  EXPECT_EQ(cpus.caller, here);
  EXPECT_NE(cpus.worker, here);
  EXPECT_NE(cpus.worker, -1);
}

#if defined(__SSE__)
TEST(ScopedFloatMode, DenormalsAreZeroInsideAndTheCallersModeComesBack) {
  const unsigned before = _mm_getcsr();
  volatile float tiny = 1e-38f;
  volatile float inside;
  {
    ScopedFloatMode mode;
    inside = tiny * 0.1f;
  }
  volatile float outside = tiny * 0.1f;
  EXPECT_EQ(inside, 0.0f);
  EXPECT_GT(outside, 0.0f);
  // The sticky exception flags (the low six bits) are the caller's own business afterwards.
  EXPECT_EQ(_mm_getcsr() & ~0x3fu, before & ~0x3fu);
}
#endif

TEST(AvailableCpus, AtLeastOne) { EXPECT_GE(AvailableCpus(), 1); }

}  // namespace
}  // namespace inlay::runtime
