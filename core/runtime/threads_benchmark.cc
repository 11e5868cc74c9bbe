// Parallel loops of our own pool and of libgomp, alone and beside others that want the cores.
//
// Loop/<pool>/<threads>/<us of work>/<hogs>: a loop over 64 items that together take so many microseconds on one core,
// while `hogs` other processes never sleep. What the pools are to show is the ratio to one thread.
// AfterPause: loops after 20 ms in which nothing ran.
// LineThereAndBack: how near two CPUs are to each other: a cache line that goes from one to the other and back. About
// 100 ns where they share a level of cache, several hundred where they do not; on a virtual machine it may change from
// one minute to the next, and the times of two threads with it.
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "core/runtime/threads.h"

namespace inlay::runtime {
namespace {

class Hogs {
 public:
  explicit Hogs(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile uint64_t n = 0;; n = n + 1) {
        }
      }
      pids_.push_back(pid);
    }
  }
  ~Hogs() {
    for (pid_t pid : pids_) kill(pid, SIGKILL);
    for (pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }

 private:
  std::vector<pid_t> pids_;
};

// A chain of multiplications: four cycles each.
void Work(void* steps, int64_t begin, int64_t end, int32_t) {
  for (int64_t i = begin; i < end; ++i) {
    float x = 1.0f;
    for (int64_t s = 0; s < *static_cast<int64_t*>(steps); ++s) benchmark::DoNotOptimize(x *= 1.0001f);
  }
}

void Loop(benchmark::State& state) {
  ThreadPool pool{static_cast<int>(state.range(1)), state.range(0) == 1};
  int64_t steps = state.range(2) * 1000 / 64;  // about a nanosecond a step
  Hogs hogs(state.range(3));
  for (auto _ : state) ParallelFor(&pool, 64, &Work, &steps);
}

// 1, 2, 4, ... as many as there are CPUs.
std::vector<int64_t> ThreadCounts() {
  std::vector<int64_t> counts;
  for (int64_t threads = 1; threads <= AvailableCpus(); threads *= 2) counts.push_back(threads);
  return counts;
}

// Each after a pause in which the workers fall asleep: requests that come one by one. `loops` of them follow each other
// as those of a model's run do.
void AfterPause(benchmark::State& state) {
  ThreadPool pool{static_cast<int>(state.range(1)), state.range(0) == 1};
  int64_t steps = state.range(2) * 1000 / 64;
  for (auto _ : state) {
    usleep(20000);
    const auto begin = std::chrono::steady_clock::now();
    WakeThreads(pool);
    for (int64_t i = 0; i < state.range(3); ++i) ParallelFor(&pool, 64, &Work, &steps);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}
BENCHMARK(AfterPause)
    ->ArgNames({"openmp", "threads", "us", "loops"})
    ->Apply([](benchmark::internal::Benchmark* b) {
      for (int64_t openmp : {0, 1}) {
        for (int64_t threads : ThreadCounts()) {
          for (int64_t us : {20, 100, 1000}) {
            for (int64_t loops : {1, 10}) b->Args({openmp, threads, us, loops});
          }
        }
      }
    })
    ->Unit(benchmark::kMicrosecond)
    ->UseManualTime()
    ->Iterations(100);

std::vector<int> Cpus() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

void StayOn(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  sched_setaffinity(0, sizeof(only), &only);
}

void LineThereAndBack(benchmark::State& state) {
  const std::vector<int> cpus = Cpus();
  if (cpus.size() < 2) return state.SkipWithError("only one CPU");
  struct alignas(128) {
    std::atomic<int64_t> turn{0};  // odd: the other's; negative: the end
  } line;
  // Each on a thread of its own, whose CPU is nobody else's concern.
  std::thread there([&] {
    StayOn(cpus.back());
    for (int64_t turn; (turn = line.turn.load(std::memory_order_acquire)) >= 0;) {
      if (turn % 2 == 1) line.turn.store(turn + 1, std::memory_order_release);
    }
  });
  std::thread here([&] {
    StayOn(cpus.front());
    int64_t turn = 0;
    for (auto _ : state) {
      line.turn.store(turn + 1, std::memory_order_release);
      turn += 2;
      while (line.turn.load(std::memory_order_acquire) != turn) {
      }
    }
    line.turn.store(-1, std::memory_order_release);
  });
  here.join();
  there.join();
}
BENCHMARK(LineThereAndBack)->UseRealTime();

void Configurations(benchmark::internal::Benchmark* b) {
  b->ArgNames({"openmp", "threads", "us", "hogs"})->Unit(benchmark::kMicrosecond)->UseRealTime()->MinTime(0.3);
  for (int64_t hogs : {0, 1}) {
    for (int64_t us : {0, 5, 20, 100, 1000}) {
      for (int64_t openmp : {0, 1}) {
        for (int64_t threads : ThreadCounts()) {
          if (openmp == 0 || threads > 1) b->Args({openmp, threads, us, hogs});
        }
      }
    }
  }
}
BENCHMARK(Loop)->Apply(Configurations);

}  // namespace
}  // namespace inlay::runtime
