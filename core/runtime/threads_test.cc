#include "core/runtime/threads.h"

#include <gtest/gtest.h>
#include <math.h>

#include <atomic>
#include <thread>
#include <vector>

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

TEST(ParallelFor, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 7}) {
    for (int64_t n : {0, 1, 2, 6, 7, 1000}) {
      ThreadPool pool{threads};
      Recorder r(n);
      ScopedFloatMode mode;
      ParallelFor(&pool, n, &Record, &r);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(r.hits[i], 1) << threads << " threads, n " << n;
      EXPECT_LT(r.max_worker, threads);
      EXPECT_EQ(r.traps, 0);
    }
  }
}

TEST(ParallelFor, NegativeIsNothing) {
  ThreadPool pool{2};
  Recorder r(1);
  ParallelFor(&pool, -5, &Record, &r);
  EXPECT_EQ(r.hits[0], 0);
}

TEST(ParallelFor, FromSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        ThreadPool pool{2};
        Recorder r(100);
        ParallelFor(&pool, 100, &Record, &r);
        for (auto& hit : r.hits) wrong += hit != 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
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
