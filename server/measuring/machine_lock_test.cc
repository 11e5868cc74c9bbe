// Locks between processes: a child is another daemon.
#include "server/measuring/machine_lock.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::server {
namespace {

using ::testing::HasSubstr;

class MachineLockTest : public ::testing::Test {
 protected:
  // A process that runs `body` and tells by a byte when it is ready; it stays until it is killed.
  pid_t Child(const std::function<void()>& body) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      body();
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
  }
  static void Kill(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  pid_t ChildWithTheLock() {
    return Child([this] {
      MachineLock lock(path_, absl::Minutes(1));
      CancelToken token;
      static auto turn = lock.Wait(&token);
      if (!turn.ok() || !turn->hold.held()) _exit(1);
    });
  }

  TempDir dir_ = TempDir::Create("machine_lock_test").value();
  const std::string path_ = dir_.path() + "/lock";
  CancelToken token_;
};

TEST_F(MachineLockTest, OneAtATimeAndWhoDiesLetsGo) {
  const pid_t other = ChildWithTheLock();
  MachineLock impatient(path_, absl::Milliseconds(50));
  auto turn = impatient.Wait(&token_).value();
  EXPECT_FALSE(turn.hold.held());
  EXPECT_THAT(turn.note, HasSubstr("measured beside another daemon of this machine, which held " + path_));

  std::atomic<bool> mine{false};
  std::thread waits([&] {
    MachineLock patient(path_, absl::Minutes(5));
    auto turn = patient.Wait(&token_).value();
    EXPECT_TRUE(turn.hold.held());
    EXPECT_EQ(turn.note, "");
    mine = true;
  });
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_FALSE(mine);
  Kill(other);
  waits.join();
  EXPECT_TRUE(mine);
}

TEST_F(MachineLockTest, WhoeverWaitedInVainDoesNotWaitAgainSoon) {
  const pid_t other = ChildWithTheLock();
  MachineLock lock(path_, absl::Seconds(1));
  EXPECT_FALSE(lock.Wait(&token_)->hold.held());
  const absl::Time start = absl::Now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(lock.Wait(&token_)->hold.held());
  EXPECT_LT(absl::Now() - start, absl::Seconds(50)) << "a hundred waits of a second each";
  Kill(other);
  EXPECT_TRUE(lock.Wait(&token_)->hold.held()) << "but takes the lock where it is free";
  EXPECT_EQ(lock.Wait(&token_)->note, "");
}

TEST_F(MachineLockTest, CancellingEndsTheWait) {
  const pid_t other = ChildWithTheLock();
  std::thread cancel([this] {
    absl::SleepFor(absl::Milliseconds(50));
    token_.Cancel(absl::CancelledError("gone"));
  });
  EXPECT_EQ(MachineLock(path_, absl::Minutes(5)).Wait(&token_).status(), absl::CancelledError("gone"));
  cancel.join();
  Kill(other);
}

TEST_F(MachineLockTest, WhoMeasuresMuchLetsOthersTakeTheirTurn) {
  std::vector<int> turns;  // whose
  std::atomic<int> started{0};
  std::atomic<bool> inside{false};
  std::vector<std::thread> daemons;
  for (int id = 0; id < 2; ++id) {
    daemons.emplace_back([&, id] {
      MachineLock lock(path_, absl::Minutes(5));
      ++started;
      while (started < 2) std::this_thread::yield();
      for (int i = 0; i < 10; ++i) {
        auto turn = lock.Wait(&token_).value();
        EXPECT_TRUE(turn.hold.held());
        EXPECT_FALSE(inside.exchange(true));
        turns.push_back(id);
        absl::SleepFor(absl::Milliseconds(30));
        inside = false;
      }
    });
  }
  for (std::thread& daemon : daemons) daemon.join();
  int changes = 0;
  for (size_t i = 1; i < turns.size(); ++i) changes += turns[i] != turns[i - 1];
  EXPECT_GE(changes, 5) << "not one after the other";
}

TEST_F(MachineLockTest, FilesThatAreNoneToLockAreLeftAlone) {
  const std::string precious = dir_.path() + "/precious";
  ASSERT_TRUE(WriteFileAtomically(precious, "text").ok());
  ASSERT_EQ(symlink(precious.c_str(), path_.c_str()), 0);
  auto turn = MachineLock(path_, absl::Seconds(1)).Wait(&token_).value();
  EXPECT_FALSE(turn.hold.held());
  EXPECT_THAT(turn.note, HasSubstr("measured without asking other daemons of this machine"));
  unlink(path_.c_str());
  ASSERT_EQ(link(precious.c_str(), path_.c_str()), 0);
  EXPECT_THAT(MachineLock(path_, absl::Seconds(1)).Wait(&token_)->note, HasSubstr("is not a plain file"));
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(MachineLock(path_, absl::Seconds(1)).Wait(&token_)->note, HasSubstr("is not a plain file"));
  EXPECT_EQ(MachineLock("none", absl::Seconds(1)).Wait(&token_)->note, "");
  EXPECT_EQ(ReadFile(precious).value(), "text");
}

}  // namespace
}  // namespace inlay::server
