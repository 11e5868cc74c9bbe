#include "server/socket_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file_system.h"

namespace inlay::server {
namespace {

TEST(SocketLock, SecondDaemonIsRefusedUntilTheFirstIsGone) {
  TempDir directory = *TempDir::Create("socket_lock_test");
  const std::string path = directory.path() + "/run/inlayd.sock";
  auto first = SocketLock::Acquire(path);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = SocketLock::Acquire(path);
  EXPECT_EQ(second.status(), absl::UnavailableError("another inlayd listens on " + path));
  first->reset();
  EXPECT_TRUE(SocketLock::Acquire(path).ok());
}

TEST(SocketLock, SocketFileOfADeadDaemonIsRemoved) {
  TempDir directory = *TempDir::Create("socket_lock_test");
  const std::string path = directory.path() + "/inlayd.sock";
  const pid_t child = fork();
  if (child == 0) {
    auto lock = SocketLock::Acquire(path);
    if (lock.ok() && WriteFileAtomically(path, "").ok()) _exit(0);  // without running destructors: as killed
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  auto lock = SocketLock::Acquire(path);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_NE(stat(path.c_str(), &info), 0) << "the stale socket file is still there";
}

TEST(SocketLock, UnusableDirectoryIsAnError) { EXPECT_FALSE(SocketLock::Acquire("/proc/no/such/inlayd.sock").ok()); }

}  // namespace
}  // namespace inlay::server
