#include "server/worker/machine_gate.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::server {
namespace {

using Use = MachineGate::Use;
constexpr absl::Duration kMoment = absl::Milliseconds(50);  // long enough for a thread that does not wait

class MachineGateTest : public ::testing::Test {
 protected:
  MachineGate::Pass Enter(Use use) { return gate_.Enter(use, &token_).value(); }
  bool WouldWait(Use use) {
    CancelToken token(absl::Now() + kMoment);
    return gate_.Enter(use, &token).status().code() == absl::StatusCode::kDeadlineExceeded;
  }
  // Until another thread's measurement waits, behind which actions wait too.
  void AwaitMeasurement() {
    while (!WouldWait(Use::kShared)) absl::SleepFor(absl::Milliseconds(1));
  }
  MachineGate gate_;
  CancelToken token_;
};

TEST_F(MachineGateTest, ManyShareOneIsAlone) {
  {
    auto a = Enter(Use::kShared), b = Enter(Use::kShared);
    EXPECT_TRUE(WouldWait(Use::kAlone));
    EXPECT_FALSE(WouldWait(Use::kShared)) << "whoever gave up does not stand in the way";
  }
  {
    auto alone = Enter(Use::kAlone);
    EXPECT_TRUE(WouldWait(Use::kShared));
    EXPECT_TRUE(WouldWait(Use::kAlone));
  }
  EXPECT_FALSE(WouldWait(Use::kAlone));
}

TEST_F(MachineGateTest, InOrderOfArrivalSoThatNobodyStarves) {
  auto first = std::make_unique<MachineGate::Pass>(Enter(Use::kShared));
  std::atomic<bool> measured{false}, compiled{false};
  std::thread measure([&] {
    auto pass = Enter(Use::kAlone);
    EXPECT_FALSE(compiled) << "the action came later";
    measured = true;
    absl::SleepFor(kMoment);
    EXPECT_FALSE(compiled) << "alone";
  });
  AwaitMeasurement();
  std::thread compile([&] {
    auto pass = Enter(Use::kShared);
    EXPECT_TRUE(measured);
    compiled = true;
  });
  absl::SleepFor(kMoment);
  EXPECT_FALSE(measured || compiled) << "an action runs; another waits behind the measurement";
  first = nullptr;
  measure.join();
  compile.join();
}

TEST_F(MachineGateTest, CancellingEndsTheWaitAndLetsOthersIn) {
  auto running = Enter(Use::kShared);
  CancelToken token;
  std::thread measure(
      [&] { EXPECT_EQ(gate_.Enter(Use::kAlone, &token).status(), absl::CancelledError("the client has gone")); });
  AwaitMeasurement();
  std::thread compile([&] { Enter(Use::kShared); });
  absl::SleepFor(kMoment);
  token.Cancel(absl::CancelledError("the client has gone"));
  measure.join();
  compile.join();  // though `running` still runs
  EXPECT_EQ(gate_.Enter(Use::kShared, &token).status().code(), absl::StatusCode::kOk)
      << "there was nothing to wait for";
}

TEST_F(MachineGateTest, ManyThreads) {
  int unguarded = 0;
  std::atomic<int> sharing{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        if (t < 2) {
          auto pass = Enter(Use::kAlone);
          EXPECT_EQ(sharing, 0);
          ++unguarded;
        } else {
          auto pass = Enter(Use::kShared);
          most = std::max<int>(most, ++sharing);
          std::this_thread::yield();
          --sharing;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unguarded, 1000);
  EXPECT_GT(most, 1);
}

}  // namespace
}  // namespace inlay::server
