#include "core/compiler/single_flight.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace inlay::compiler {
namespace {

TEST(SingleFlight, HundredAtOnceAreDoneOnce) {
  SingleFlight<int> flights;
  std::atomic<int> runs{0}, shared{0};
  std::atomic<int> in{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) {
    threads.emplace_back([&] {
      CancelToken token;
      ++in;
      auto result = flights.Do(Digest::Of("key"), &token, [&](CancelToken*) -> absl::StatusOr<int> {
        ++runs;
        while (in < 100) std::this_thread::yield();
        absl::SleepFor(absl::Milliseconds(100));  // lets the last ones past their Join
        return 42;
      });
      EXPECT_EQ(*result.value, 42);
      shared += result.shared;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(shared, 99);
}

TEST(SingleFlight, ErrorsAreSharedAndNotKept) {
  SingleFlight<int> flights;
  CancelToken token;
  auto failing = [](CancelToken*) -> absl::StatusOr<int> { return absl::InternalError("broken"); };
  EXPECT_EQ(flights.Do(Digest::Of("k"), &token, failing).value.status(), absl::InternalError("broken"));
  auto fine = flights.Do(Digest::Of("k"), &token, [](CancelToken*) -> absl::StatusOr<int> { return 1; });
  EXPECT_EQ(*fine.value, 1);
}

TEST(SingleFlight, WorkStopsOnlyWhenEverybodyHasLeft) {
  SingleFlight<int> flights;
  CancelToken first, second;
  std::atomic<bool> running{false}, release{false};
  absl::Status seen_after_first;
  CancelToken* work_token = nullptr;
  std::thread leader([&] {
    auto result = flights.Do(Digest::Of("k"), &first, [&](CancelToken* token) -> absl::StatusOr<int> {
      work_token = token;
      running = true;
      while (!release && token->status().ok()) std::this_thread::yield();
      return token->status().ok() ? absl::StatusOr<int>(7) : token->status();
    });
    EXPECT_EQ(result.value.status().code(), absl::StatusCode::kCancelled);
  });
  while (!running) std::this_thread::yield();
  std::thread follower([&] {
    auto result = flights.Do(Digest::Of("k"), &second, [](CancelToken*) -> absl::StatusOr<int> { return 0; });
    EXPECT_TRUE(result.shared);
    EXPECT_EQ(result.value.status().code(), absl::StatusCode::kCancelled);
  });
  absl::SleepFor(absl::Milliseconds(100));  // the follower joins
  first.Cancel();
  EXPECT_TRUE(work_token->status().ok()) << "one of two left, but the work stopped";
  second.Cancel();
  leader.join();
  follower.join();
}

TEST(SingleFlight, FollowerThatIsCancelledLeavesAtOnce) {
  SingleFlight<int> flights;
  CancelToken first, second;
  std::atomic<bool> running{false}, release{false};
  std::thread leader([&] {
    auto result = flights.Do(Digest::Of("k"), &first, [&](CancelToken*) -> absl::StatusOr<int> {
      running = true;
      while (!release) std::this_thread::yield();
      return 7;
    });
    EXPECT_EQ(*result.value, 7);
  });
  while (!running) std::this_thread::yield();
  second.Cancel(absl::DeadlineExceededError("too late"));
  auto result = flights.Do(Digest::Of("k"), &second, [](CancelToken*) -> absl::StatusOr<int> { return 0; });
  EXPECT_EQ(result.value.status(), absl::DeadlineExceededError("too late"));
  release = true;
  leader.join();
}

}  // namespace
}  // namespace inlay::compiler
