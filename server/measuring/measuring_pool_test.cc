// The pool with real processes, in which subjects crash, hang and eat memory.
#include "server/measuring/measuring_pool.h"

#include <signal.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/measuring/testing.h"
#include "server/worker/testing.h"
#include "server/worker/worker_pool.h"

namespace inlay::server {
namespace {

using ::testing::HasSubstr;

class MeasuringPoolTest : public ::testing::Test {
 protected:
  MeasuringPoolTest() {
    options_.measurer_binary = std::filesystem::absolute("server/measuring/test_measurer");
    options_.scratch_dir = dir_.path();
  }
  MeasuringPool& pool() {
    // Made by whichever thread of a test comes first, of the options that the test has set by then.
    absl::call_once(made_, [this] { pool_ = std::make_unique<MeasuringPool>(options_, &gate_, &registry_); });
    return *pool_;
  }
  absl::StatusOr<proto::MeasureResult> Measure(const proto::MeasureAction& action) {
    CancelToken token;
    return pool().Measure(action, &token);
  }
  double Metric(const std::string& name) { return registry_.Snapshot()[name]; }
  double Starts() { return Metric("inlay_measurer_starts_total"); }
  static void ExpectTimed(const proto::MeasureResult::Timing& timing) {
    EXPECT_EQ(timing.code(), 0) << timing.message();
    EXPECT_GT(timing.min_us(), 0);
    EXPECT_GE(timing.rounds(), 5);
  }

  TempDir dir_ = TempDir::Create("measuring_pool_test").value();
  MachineGate gate_;
  metrics::Registry registry_;
  MeasuringPoolOptions options_;
  absl::once_flag made_;
  std::unique_ptr<MeasuringPool> pool_;
};

TEST_F(MeasuringPoolTest, TimesSubjectsInAProcessThatStays) {
  EXPECT_NE(pool().device(), "");
  EXPECT_EQ(pool().pid(), 0) << "nothing is started before it is needed";
  for (int i = 0; i < 3; ++i) {
    auto result = Measure(ActionOf({kMultiply, kMultiply}));
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectTimed(result->timings(0));
    ExpectTimed(result->timings(1));
  }
  EXPECT_EQ(Starts(), 1);
  EXPECT_EQ(Metric("inlay_measurements_total{result=\"ok\"}"), 3);
  EXPECT_EQ(Metric("inlay_measured_subjects_total"), 6);
  EXPECT_EQ(Metric("inlay_measure_crashes_total"), 0);
}

TEST_F(MeasuringPoolTest, SeveralThreads) {
  const std::string threads = "struct T a = {x, w, y}; ctx->parallel_for(ctx->pool, 1000, task, &a);";
  proto::MeasureAction action = ActionOf({});
  for (const char* name : {"a", "b"}) {
    *action.add_subjects() = SubjectOf(name, threads, "w", R"(
struct T {const float *x, *w; float* y;};
static void task(void* closure, int64_t begin, int64_t end, int32_t worker) {
  struct T* t = closure;
  for (int64_t i = begin; i < end; ++i) t->y[i] = t->x[i] * t->w[i];
})");
  }
  for (int num_threads : {2, 0, 1}) {
    action.set_num_threads(num_threads);
    auto result = Measure(action);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectTimed(result->timings(0));
    ExpectTimed(result->timings(1));
  }
}

TEST_F(MeasuringPoolTest, ASubjectThatCrashesIsExcludedAndTheOthersAreTimed) {
  const std::string late = absl::StrCat("static int runs; if (++runs > 4) ", kCrash, kMultiply);
  auto result = Measure(ActionOf({kMultiply, kCrash, kMultiply, late, "abort();", kMultiply}));
  ASSERT_TRUE(result.ok()) << result.status();
  for (int i : {0, 2, 5}) ExpectTimed(result->timings(i));
  for (int i : {1, 3}) EXPECT_EQ(result->timings(i).code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(result->timings(1).message(), HasSubstr("'subject 1' crashed in a run whose outputs were to be checked"));
  EXPECT_THAT(result->timings(1).message(), HasSubstr("signal 11 (SIGSEGV)"));
  EXPECT_THAT(result->timings(3).message(), HasSubstr("'subject 3' crashed"));
  EXPECT_THAT(result->timings(4).message(), HasSubstr("abort")) << "no function that compiled code may call";
  EXPECT_EQ(Metric("inlay_measure_crashes_total"), 2);
  EXPECT_EQ(Starts(), 5) << "each crashed twice";
  EXPECT_THAT(result->timings(3).message(), HasSubstr("(twice)"));
}

// A subject that goes wrong where the file is not there yet, and makes it.
std::string OnlyOnce(const std::string& file, const std::string& what) {
  return absl::StrCat("if (creat_once(\"", file, "\")) { ", what, " }", kMultiply);
}

TEST_F(MeasuringPoolTest, ASubjectThatFailsOnceIsMeasuredAgain) {
  options_.step_timeout = absl::Seconds(1);
  proto::MeasureAction action = ActionOf({kMultiply, kMultiply});
  // Compiled code may call little; a system call of its own needs no library.
  const std::string before = R"(
static long open_new(const char* path) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(2L), "D"(path), "S"(0301L), "d"(0600L) : "rcx", "r11", "memory");
  return result;
}
static int creat_once(const char* path) { return open_new(path) >= 0; }
)";
  const std::string crashed = dir_.path() + "/crashed", hung = dir_.path() + "/hung";
  *action.add_subjects() = SubjectOf("crashes once", OnlyOnce(crashed, kCrash), "layer.weight", before);
  *action.add_subjects() = SubjectOf("hangs once", OnlyOnce(hung, kSpin), "layer.weight", before);
  auto result = Measure(action);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const auto& timing : result->timings()) ExpectTimed(timing);
  EXPECT_EQ(result->timings(1).note(), "");
  EXPECT_THAT(result->timings(2).note(), HasSubstr("crashed in a run"));
  EXPECT_THAT(result->timings(2).note(), HasSubstr("not when measured again"));
  EXPECT_THAT(result->timings(3).note(), HasSubstr("took longer than 1s"));
  EXPECT_EQ(Metric("inlay_measure_crashes_total"), 0);
  EXPECT_EQ(Starts(), 3);
  std::filesystem::remove(crashed);
  std::filesystem::remove(hung);
}

TEST_F(MeasuringPoolTest, ASubjectThatHangsIsExcluded) {
  options_.step_timeout = absl::Seconds(1);
  auto result = Measure(ActionOf({kMultiply, kSpin, kMultiply}));
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectTimed(result->timings(0));
  ExpectTimed(result->timings(2));
  EXPECT_EQ(result->timings(1).code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(result->timings(1).message(), HasSubstr("'subject 1' took longer than 1s"));
}

TEST_F(MeasuringPoolTest, ALongMeasurementOfShortStepsIsNoHang) {
  options_.step_timeout = absl::Milliseconds(400);
  proto::MeasureAction action = ActionOf({kMultiply});
  action.set_max_rounds(0);
  action.set_budget_ms(1200);
  auto result = Measure(action);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->timings(0).rounds(), 100);
}

TEST_F(MeasuringPoolTest, AReferenceThatFailsIsAnErrorOfTheCall) {
  absl::Status status = Measure(ActionOf({kCrash, kMultiply})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the reference subject 'subject 0' cannot be measured"));
  EXPECT_THAT(status.message(), HasSubstr("SIGSEGV"));
  proto::MeasureAction action = ActionOf({kCrash, kMultiply});
  action.set_reference(1);
  EXPECT_TRUE(Measure(action).ok()) << "not the reference";
}

TEST_F(MeasuringPoolTest, AWrongResultIsExcluded) {
  auto result = Measure(ActionOf({kMultiply, absl::StrCat(kMultiply, "y[1] = 100;")}));
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectTimed(result->timings(0));
  EXPECT_THAT(result->timings(1).message(), HasSubstr("element 1 of f32[1000] is 100 instead of "));
}

TEST_F(MeasuringPoolTest, KilledFromOutsideIsASecondChance) {
  std::thread killer([&] {
    while (pool().pid() == 0 || Metric("inlay_measured_subjects_total") == 0) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(200));
    kill(pool().pid(), SIGKILL);
  });
  const std::string slow = absl::StrCat(
      "static int runs; if (runs++ == 0) for (volatile long k = 0; k < 800000000; k = k + 1) {}", kMultiply);
  auto result = Measure(ActionOf({slow, kMultiply}));
  killer.join();
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectTimed(result->timings(0));
  ExpectTimed(result->timings(1));
  EXPECT_EQ(Starts(), 2);
  EXPECT_EQ(Metric("inlay_measure_crashes_total"), 0);

  kill(pool().pid(), SIGKILL);  // while it is idle
  EXPECT_TRUE(Measure(ActionOf({kMultiply})).ok());
  EXPECT_EQ(Starts(), 3);
}

TEST_F(MeasuringPoolTest, CancellingEndsItAtOnce) {
  CancelToken token;
  std::thread cancel([&] {
    absl::SleepFor(absl::Milliseconds(500));
    token.Cancel(absl::CancelledError("the client has gone"));
  });
  const absl::Time start = absl::Now();
  EXPECT_EQ(pool().Measure(ActionOf({kSpin}), &token).status(), absl::CancelledError("the client has gone"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
  cancel.join();
  CancelToken deadline(absl::Now() + absl::Milliseconds(500));
  EXPECT_EQ(pool().Measure(ActionOf({kSpin}), &deadline).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Measure(ActionOf({kMultiply})).ok());
  EXPECT_EQ(Metric("inlay_measurements_total{result=\"cancelled\"}"), 2);
}

TEST_F(MeasuringPoolTest, CancellingAWaitForTheCores) {
  CancelToken token, never;
  auto compiling = gate_.Enter(MachineGate::Use::kShared, &never).value();
  std::thread cancel([&] {
    absl::SleepFor(absl::Milliseconds(100));
    token.Cancel();
  });
  EXPECT_EQ(pool().Measure(ActionOf({kMultiply}), &token).status().code(), absl::StatusCode::kCancelled);
  cancel.join();
  EXPECT_EQ(pool().pid(), 0);
}

TEST_F(MeasuringPoolTest, MemoryIsLimited) {
  options_.memory_bytes = 256 << 20;
  proto::MeasureAction action = ActionOf({kMultiply, kMultiply});
  proto::MeasureAction::Subject& greedy = *action.mutable_subjects(1);
  const std::string arena = "\"arena_bytes\":";
  const size_t at = greedy.plan_json().find(arena) + arena.size();
  ASSERT_GT(at, arena.size()) << greedy.plan_json();
  greedy.mutable_plan_json()->insert(at, "100000000");  // before the 0 that is there: a gigabyte
  auto result = Measure(action);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectTimed(result->timings(0));
  EXPECT_EQ(result->timings(1).code(), static_cast<int>(absl::StatusCode::kResourceExhausted))
      << result->timings(1).message();
  EXPECT_EQ(Starts(), 2) << "tried again by a fresh process";
}

TEST_F(MeasuringPoolTest, NoBinary) {
  options_.measurer_binary = "/no/such/measurer";
  absl::Status status = Measure(ActionOf({kMultiply})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/measurer"));
}

class SharedCoresTest : public MeasuringPoolTest {
 protected:
  SharedCoresTest() {
    WorkerPoolOptions options;
    options.worker_binary = std::filesystem::absolute("server/worker/test_worker");
    options.num_workers = 2;
    options.scratch_dir = dir_.path();
    options.gate = &gate_;
    workers_ = WorkerPool::Start(options, &registry_).value();
  }
  absl::Status Compile(absl::Duration limit, const std::map<std::string, std::string>& fake = {}) {
    CancelToken token(absl::Now() + limit);
    return workers_->Compile(FakeAction(fake), &token).status();
  }
  std::unique_ptr<WorkerPool> workers_;
};

TEST_F(SharedCoresTest, NoCompileActionRunsDuringAMeasurement) {
  CancelToken token;
  std::thread measure([&] { pool().Measure(ActionOf({kSpin}), &token).IgnoreError(); });
  while (Metric("inlay_measured_subjects_total") == 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(Compile(absl::Milliseconds(300)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Metric("inlay_worker_action_seconds_count"), 0) << "no worker was asked";
  std::thread waits([&] { EXPECT_TRUE(Compile(absl::Minutes(1)).ok()); });
  absl::SleepFor(absl::Milliseconds(100));
  token.Cancel();
  waits.join();
  measure.join();
}

TEST_F(SharedCoresTest, NoMeasurementRunsDuringACompileAction) {
  std::thread compile([&] { EXPECT_TRUE(Compile(absl::Minutes(1), {{"delay_ms", "3000"}}).ok()); });
  while (Metric("inlay_workers_busy") == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(100));
  CancelToken impatient(absl::Now() + absl::Milliseconds(100));
  EXPECT_EQ(pool().Measure(ActionOf({kMultiply}), &impatient).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Measure(ActionOf({kMultiply})).ok()) << "waits for it to end";
  EXPECT_EQ(Metric("inlay_worker_actions_total{result=\"ok\"}"), 1);
  compile.join();
}

TEST_F(SharedCoresTest, NeitherStarves) {
  const proto::MeasureAction action = ActionOf({kMultiply});
  std::atomic<int> compiled{0}, measured{0};
  auto enough = [&] { return compiled >= 20 && measured >= 10; };
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (; !enough(); ++compiled) EXPECT_TRUE(Compile(absl::Minutes(1), {{"delay_ms", "10"}}).ok());
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (; !enough(); ++measured) EXPECT_TRUE(Measure(action).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(MeasuringPoolTest, ScratchDirectoriesGo) {
  ASSERT_TRUE(Measure(ActionOf({kMultiply, kCrash})).ok());
  pool_ = nullptr;
  EXPECT_THAT(FileSystem::Default()->List(dir_.path()).value(), testing::IsEmpty());
}

}  // namespace
}  // namespace inlay::server
