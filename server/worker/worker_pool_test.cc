// The pool with real worker processes, which crash, hang, allocate without bound and are killed.
#include "server/worker/worker_pool.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/worker/testing.h"

namespace inlay::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class WorkerPoolTest : public ::testing::Test {
 protected:
  WorkerPoolTest() {
    options_.worker_binary = std::filesystem::absolute("server/worker/test_worker");
    options_.num_workers = 2;
    options_.scratch_dir = dir_.path();
  }
  void Start() { pool_ = WorkerPool::Start(options_, &registry_).value(); }
  absl::StatusOr<proto::StaticLibrary> Compile(const std::map<std::string, std::string>& fake = {}) {
    CancelToken token;
    return pool_->Compile(FakeAction(fake), &token);
  }
  double Metric(const std::string& name) { return registry_.Snapshot()[name]; }
  double Starts() { return Metric("inlay_worker_starts_total"); }
  // Whether the pool still does its work with as many workers as it should have.
  void ExpectHealthy() {
    for (int i = 0; i < options_.num_workers; ++i) {
      auto library = Compile();
      EXPECT_TRUE(library.ok()) << library.status();
    }
    EXPECT_EQ(Metric("inlay_workers_busy"), 0);
    EXPECT_EQ(Metric("inlay_worker_queue_length"), 0);
  }

  TempDir dir_ = TempDir::Create("worker_pool_test").value();
  metrics::Registry registry_;
  WorkerPoolOptions options_;
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(WorkerPoolTest, CompilesAndKnowsItsBackends) {
  Start();
  auto library = Compile();
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->manifest().functions(0).symbol(), "inlay_f");
  EXPECT_THAT(pool_->backends(), SizeIs(1));
  EXPECT_EQ(pool_->BackendVersion("fake").value(), "fake 1");
  EXPECT_EQ(pool_->BackendVersion("none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(pool_->pids(), SizeIs(2));
  EXPECT_EQ(Metric("inlay_worker_actions_total{result=\"ok\"}"), 1);
}

TEST_F(WorkerPoolTest, WorkersPersist) {
  Start();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Compile().ok());
  EXPECT_EQ(Starts(), 2);
}

TEST_F(WorkerPoolTest, LargeAnswersArriveWhole) {
  Start();
  auto library = Compile({{"size", "50000000"}});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_GT(library->objects(0).data().size(), 50000000);
}

TEST_F(WorkerPoolTest, AnErrorOfTheCodeGeneratorIsPassedOnAndNotRepeated) {
  Start();
  absl::Status status = Compile({{"behaviour", "fail"}}).status();
  EXPECT_EQ(status, absl::InternalError("fake: failing on request"));
  proto::CompileAction action = FakeAction();
  action.set_backend_version("another");
  CancelToken token;
  EXPECT_EQ(pool_->Compile(action, &token).status().code(), absl::StatusCode::kFailedPrecondition);
  action = FakeAction();
  action.mutable_module()->mutable_functions()->begin()->second.clear_vars();
  EXPECT_EQ(pool_->Compile(action, &token).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Starts(), 2);
  EXPECT_EQ(Metric("inlay_worker_retries_total"), 0);
}

TEST_F(WorkerPoolTest, ACrashIsTriedOnceMoreAndThenAnErrorThatNamesItAll) {
  Start();
  absl::Status status = Compile({{"behaviour", "crash"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("backend fake, partition inlay_f: its worker failed 2 times"));
  EXPECT_THAT(status.message(), HasSubstr("signal 11 (SIGSEGV)"));
  EXPECT_THAT(Compile({{"behaviour", "exit"}}).status().message(), HasSubstr("exited with code 3"));
  EXPECT_EQ(Metric("inlay_worker_retries_total"), 2);
  EXPECT_EQ(Metric("inlay_worker_actions_total{result=\"worker_failed\"}"), 2);
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, ACrashThatDoesNotComeBackIsNotSeen) {
  Start();
  auto library = Compile({{"behaviour", "crash"}, {"once", dir_.path() + "/once"}});
  EXPECT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(Metric("inlay_worker_retries_total"), 1);
}

TEST_F(WorkerPoolTest, AWorkerKilledFromOutsideDuringAnActionIsNotSeen) {
  Start();
  std::thread compile([&] {
    auto library = Compile({{"delay_ms", "2000"}});
    EXPECT_TRUE(library.ok()) << library.status();
  });
  while (Metric("inlay_workers_busy") == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(100));
  for (pid_t pid : pool_->pids()) kill(pid, SIGKILL);  // the idle one too
  compile.join();
  EXPECT_EQ(Metric("inlay_worker_retries_total"), 1);
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, ARunawayIsEndedAtTheLimit) {
  options_.action_timeout = absl::Seconds(2);
  Start();
  for (const char* behaviour : {"hang", "spin"}) {
    const absl::Time start = absl::Now();
    absl::Status status = Compile({{"behaviour", behaviour}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("partition inlay_f"));
    EXPECT_THAT(status.message(), HasSubstr("took longer than 2s"));
    EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  }
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, MemoryIsLimited) {
  options_.memory_bytes = 256 << 20;
  Start();
  absl::Status status = Compile({{"behaviour", "allocate"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("bad_alloc")) << "the end of the worker's standard error";
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, AWorkerThatHasGrownIsRetired) {
  options_.memory_bytes = 256 << 20;
  options_.num_workers = 1;
  Start();
  ASSERT_TRUE(Compile({{"size", "1000"}}).ok());
  EXPECT_EQ(Starts(), 1);
  ASSERT_TRUE(Compile({{"size", "70000000"}}).ok()) << "with its copies more than half of the limit";
  ASSERT_TRUE(Compile().ok());  // the answer itself counts from here on
  EXPECT_EQ(Starts(), 2);
  ASSERT_TRUE(Compile().ok());
  EXPECT_EQ(Starts(), 2) << "the fresh one is small again";
}

TEST_F(WorkerPoolTest, CancellingEndsTheActionAtOnce) {
  options_.num_workers = 1;
  Start();
  CancelToken token;
  std::thread cancel([&] {
    absl::SleepFor(absl::Milliseconds(100));
    token.Cancel(absl::CancelledError("the client has gone"));
  });
  const absl::Time start = absl::Now();
  EXPECT_EQ(pool_->Compile(FakeAction({{"behaviour", "hang"}}), &token).status(),
            absl::CancelledError("the client has gone"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  cancel.join();
  EXPECT_EQ(Metric("inlay_worker_retries_total"), 0);
  EXPECT_EQ(pool_->Compile(FakeAction(), &token).status().code(), absl::StatusCode::kCancelled) << "before it began";
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, ADeadlineEndsTheActionAndTheWait) {
  options_.num_workers = 1;
  Start();
  CancelToken running(absl::Now() + absl::Milliseconds(400));
  const proto::CompileAction hang = FakeAction({{"behaviour", "hang"}});
  EXPECT_EQ(pool_->Compile(hang, &running).status().code(), absl::StatusCode::kDeadlineExceeded);
  CancelToken in_front;
  std::thread first([&] { pool_->Compile(hang, &in_front).IgnoreError(); });
  while (Metric("inlay_workers_busy") == 0) absl::SleepFor(absl::Milliseconds(1));
  CancelToken waiting(absl::Now() + absl::Milliseconds(100));
  EXPECT_EQ(pool_->Compile(FakeAction(), &waiting).status().code(), absl::StatusCode::kDeadlineExceeded);
  in_front.Cancel();
  first.join();
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, CancellingAWaitingActionFreesItsPlace) {
  options_.num_workers = 1;
  options_.max_waiting = 1;
  Start();
  CancelToken running, waiting;
  std::thread first([&] { pool_->Compile(FakeAction({{"behaviour", "hang"}}), &running).IgnoreError(); });
  while (Metric("inlay_workers_busy") == 0) absl::SleepFor(absl::Milliseconds(1));
  std::thread second(
      [&] { EXPECT_EQ(pool_->Compile(FakeAction(), &waiting).status().code(), absl::StatusCode::kCancelled); });
  while (Metric("inlay_worker_queue_length") == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::Status third = Compile().status();
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(third.message(), HasSubstr("1 actions wait"));
  waiting.Cancel();
  second.join();
  running.Cancel();
  first.join();
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, WaitsInOrderOfArrival) {
  options_.num_workers = 1;
  Start();
  absl::Mutex mu;
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(Compile({{"delay_ms", "200"}}).ok());
      absl::MutexLock lock(&mu);
      order.push_back(i);
    });
    // One after the other into the queue.
    auto done = [&] {
      absl::MutexLock lock(&mu);
      return order.size();
    };
    while (Metric("inlay_workers_busy") + Metric("inlay_worker_queue_length") + done() < i + 1) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(WorkerPoolTest, ManyCallersWhileWorkersDie) {
  Start();
  std::atomic<bool> stop{false};
  std::thread killer([&] {
    while (!stop) {
      absl::SleepFor(absl::Milliseconds(150));
      std::vector<pid_t> pids = pool_->pids();
      if (!pids.empty()) kill(pids[0], SIGKILL);
    }
  });
  std::atomic<int> ok{0}, failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        auto library = Compile({{"delay_ms", "10"}});
        if (library.ok()) {
          ++ok;
        } else {
          ++failed;
          EXPECT_EQ(library.status().code(), absl::StatusCode::kInternal) << library.status();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  killer.join();
  EXPECT_EQ(ok + failed, 80) << "every call has returned";
  EXPECT_GT(ok, 40) << "two deaths of one action's workers are rare";
  ExpectHealthy();
}

TEST_F(WorkerPoolTest, ScratchDirectoriesGo) {
  Start();
  ASSERT_TRUE(Compile().ok());
  EXPECT_FALSE(Compile({{"behaviour", "crash"}}).ok());  // leaves its own behind
  int inside = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
    inside += absl::StrContains(entry.path().filename().string(), "action");
  }
  EXPECT_EQ(inside, 0);
  pool_ = nullptr;
  EXPECT_THAT(FileSystem::Default()->List(dir_.path()).value(), IsEmpty());
}

TEST_F(WorkerPoolTest, BinariesThatAreNoWorkers) {
  options_.start_timeout = absl::Seconds(3);
  const std::map<std::string, std::string> expected = {{"garbage", "no answer"},
                                                       {"huge", "frame of 4294967295 bytes"},
                                                       {"exits", "libsomething.so"},
                                                       {"silent", "in time"}};
  for (const auto& [name, message] : expected) {
    options_.worker_binary = dir_.path() + "/" + name;
    std::filesystem::create_symlink(std::filesystem::absolute("server/worker/silent_worker"), options_.worker_binary);
    absl::Status status = WorkerPool::Start(options_, &registry_).status();
    EXPECT_THAT(status.message(), HasSubstr(message)) << name;
  }
  options_.worker_binary = "/no/such/worker";
  absl::Status status = WorkerPool::Start(options_, &registry_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("/no/such/worker"));
}

TEST_F(WorkerPoolTest, ABinaryThatVanishesIsAnErrorAndNotTheEnd) {
  const std::string binary = dir_.path() + "/worker";
  std::filesystem::create_symlink(options_.worker_binary, binary);
  const std::string real = options_.worker_binary;
  options_.worker_binary = binary;
  Start();
  std::filesystem::remove(binary);
  absl::Status status = Compile({{"behaviour", "crash"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("starting a worker"));
  std::filesystem::create_symlink(real, binary);
  ExpectHealthy();
}

}  // namespace
}  // namespace inlay::server
