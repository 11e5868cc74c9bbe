#include "core/base/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"

namespace inlay {
namespace {

TEST(CancelToken, FirstReasonWinsAndCallbacksRunOnce) {
  CancelToken token;
  int calls = 0;
  auto registration = token.OnCancel([&] { ++calls; });
  EXPECT_TRUE(token.status().ok());
  token.Cancel(absl::CancelledError("the client went away"));
  token.Cancel(absl::InternalError("second"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(token.status(), absl::CancelledError("the client went away"));
}

TEST(CancelToken, CallbackAfterCancelRunsAtOnceAndDestroyedOneNever) {
  CancelToken token;
  int dropped = 0, late = 0;
  token.OnCancel([&] { ++dropped; }).reset();
  token.Cancel();
  auto registration = token.OnCancel([&] { ++late; });
  EXPECT_EQ(dropped, 0);
  EXPECT_EQ(late, 1);
}

TEST(CancelToken, DeadlineShowsInStatus) {
  CancelToken token(absl::Now() - absl::Seconds(1));
  EXPECT_EQ(token.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(CancelToken, DestroyingARegistrationWaitsForItsCallback) {
  CancelToken token;
  std::atomic<bool> entered{false}, done{false};
  auto registration = token.OnCancel([&] {
    entered = true;
    absl::SleepFor(absl::Milliseconds(50));
    done = true;
  });
  std::thread canceller([&] { token.Cancel(); });
  while (!entered) std::this_thread::yield();
  registration.reset();
  EXPECT_TRUE(done);
  canceller.join();
}

}  // namespace
}  // namespace inlay
