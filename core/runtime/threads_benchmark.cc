// Parallel loops of our own pool and of libgomp, alone and beside others that want the cores.
//
// Loop/<pool>/<threads>/<us of work>/<hogs>: a loop over 64 items that together take so many microseconds on one core,
// while `hogs` other processes never sleep. What the pools are to show is the ratio to one thread.
// AfterPause: loops after 20 ms in which nothing ran.
#include <benchmark/benchmark.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
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
    ->ArgsProduct({{0, 1}, {1, 2}, {20, 100, 1000}, {1, 10}})
    ->Unit(benchmark::kMicrosecond)
    ->UseManualTime()
    ->Iterations(100);

void Configurations(benchmark::internal::Benchmark* b) {
  b->ArgNames({"openmp", "threads", "us", "hogs"})->Unit(benchmark::kMicrosecond)->UseRealTime()->MinTime(0.3);
  for (int64_t hogs : {0, 1}) {
    for (int64_t us : {0, 5, 20, 100, 1000}) {
      for (int64_t openmp : {0, 1}) {
        for (int64_t threads : {1, 2}) {
          if (openmp == 0 || threads > 1) b->Args({openmp, threads, us, hogs});
        }
      }
    }
  }
}
BENCHMARK(Loop)->Apply(Configurations);

}  // namespace
}  // namespace inlay::runtime
