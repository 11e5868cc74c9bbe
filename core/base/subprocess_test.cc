#include "core/base/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

SubprocessOptions Shell(std::string script) {
  SubprocessOptions options;
  options.argv = {"/bin/sh", "-c", std::move(script)};
  options.env = {"PATH=/usr/bin:/bin"};
  return options;
}

// Whether a process is there and not a zombie; polls, because a killed orphan's end is seen a moment later.
bool Gone(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    absl::StatusOr<std::string> stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
    if (!stat.ok() || absl::StrContains(*stat, ") Z ")) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

TEST(SubprocessTest, RunsAndCapturesBothStreams) {
  auto result = RunSubprocess(Shell("cat; echo problem >&2"), absl::Seconds(20), "hello");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->stdout_bytes, "hello");
  EXPECT_EQ(result->stderr_tail, "problem\n");
}

TEST(SubprocessTest, LargeInputAndOutputDoNotDeadlock) {
  const std::string data(5 << 20, 'x');
  EXPECT_EQ(RunSubprocess(Shell("cat"), absl::Seconds(20), data).value().stdout_bytes, data);
  EXPECT_TRUE(RunSubprocess(Shell("exit 0"), absl::Seconds(20), data).ok()) << "input left unread; and no SIGPIPE";
}

TEST(SubprocessTest, ExitAndSignalsBecomeStatuses) {
  absl::Status status = RunSubprocess(Shell("echo why >&2; exit 3"), absl::Seconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(status.message(), HasSubstr("exited with code 3"));
  EXPECT_THAT(std::string(status.message()), EndsWith("why\n"));
  status = RunSubprocess(Shell("kill -SEGV $$"), absl::Seconds(20)).status();
  EXPECT_THAT(status.message(), HasSubstr("killed by signal 11 (SIGSEGV)"));
}

TEST(SubprocessTest, ProgramThatIsNotThere) {
  SubprocessOptions options;
  options.argv = {"/no/such/program"};
  absl::Status status = Subprocess::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("execute /no/such/program"));
  options.argv = {"/etc/passwd"};
  EXPECT_EQ(Subprocess::Start(options).status().code(), absl::StatusCode::kPermissionDenied);
  options.argv = {"/bin/true"};
  options.working_directory = "/no/such/directory";
  EXPECT_THAT(Subprocess::Start(options).status().message(), HasSubstr("enter the directory"));
}

TEST(SubprocessTest, TimeoutKillsTheWholeGroup) {
  TempDir dir = TempDir::Create("subprocess_test").value();
  const std::string pid_file = JoinPath(dir.path(), "pid");
  // The grandchild inherits the pipes: a parent that waited for their end would hang.
  const absl::Time start = absl::Now();
  absl::Status status =
      RunSubprocess(Shell(absl::StrCat("sleep 1000 & echo $! > ", pid_file, "; wait")), absl::Seconds(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadFile(pid_file).value()), &pid));
  EXPECT_TRUE(Gone(pid));
}

TEST(SubprocessTest, WhatTheChildLeavesBehindGoesWithIt) {
  const absl::Time start = absl::Now();
  auto result = RunSubprocess(Shell("sleep 1000 & echo $!"), absl::Seconds(20));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(absl::StripAsciiWhitespace(result->stdout_bytes), &pid));
  EXPECT_TRUE(Gone(pid));
}

TEST(SubprocessTest, ADescendantThatLeftTheGroupCannotHoldTheParentUp) {
  // Holds both pipes open in a session of its own.
  const absl::Time start = absl::Now();
  EXPECT_TRUE(RunSubprocess(Shell("setsid sleep 30 & sleep 0.2; exit 0"), absl::Seconds(60)).ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

TEST(SubprocessTest, AGroupTakesTheChildrenThatStayInIt) {
  TempDir dir = TempDir::Create("subprocess_test").value();
  const std::string pid_file = JoinPath(dir.path(), "pid");
  // A process with a child in its group, which has one of its own: all end when the first is killed.
  SubprocessOptions options;
  options.argv = {std::filesystem::read_symlink("/proc/self/exe"), "--gtest_also_run_disabled_tests",
                  "--gtest_filter=*DISABLED_ParentInOneGroup"};
  options.env = {"PID_FILE=" + pid_file};
  auto process = Subprocess::Start(options).value();
  for (int i = 0; i < 2000 && !ReadFile(pid_file).ok(); ++i) absl::SleepFor(absl::Milliseconds(10));
  process->Kill();
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadFile(pid_file).value(), &pid));
  EXPECT_TRUE(Gone(pid));
}

// Not a test: the process that the one above runs.
TEST(SubprocessTest, DISABLED_ParentInOneGroup) {
  const char* pid_file = getenv("PID_FILE");
  ASSERT_NE(pid_file, nullptr);
  SubprocessOptions options =
      Shell(absl::StrCat("sleep 1000 & echo $! > ", pid_file, ".new; mv ", pid_file, ".new ", pid_file, "; wait"));
  options.in_parents_group = true;
  auto process = Subprocess::Start(options).value();
  process->Wait(absl::InfiniteFuture()).IgnoreError();
}

TEST(SubprocessTest, DestructorKills) {
  pid_t pid;
  {
    auto process = Subprocess::Start(Shell("sleep 1000")).value();
    pid = process->pid();
    EXPECT_TRUE(process->running());
    EXPECT_EQ(process->Wait(absl::Now()).code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(Gone(pid));
}

// Not a test: the process that ChildDiesWithItsParent runs, which starts a child from a thread that ends, and then is
// killed.
TEST(SubprocessTest, DISABLED_ParentThatDies) {
  const char* pid_file = getenv("PID_FILE");
  ASSERT_NE(pid_file, nullptr);
  std::unique_ptr<Subprocess> process;
  std::thread([&] { process = Subprocess::Start(Shell("exec sleep 1000")).value(); }).join();
  absl::SleepFor(absl::Milliseconds(200));  // the starting thread's end must not kill it
  ASSERT_TRUE(WriteFileAtomically(pid_file, absl::StrCat(process->running() ? process->pid() : 0)).ok());
  kill(getpid(), SIGKILL);
}

TEST(SubprocessTest, ChildDiesWithItsParentAndNotWithTheThreadThatStartedIt) {
  TempDir dir = TempDir::Create("subprocess_test").value();
  const std::string pid_file = JoinPath(dir.path(), "pid");
  SubprocessOptions options;
  options.argv = {std::filesystem::read_symlink("/proc/self/exe"), "--gtest_also_run_disabled_tests",
                  "--gtest_filter=*DISABLED_ParentThatDies"};
  options.env = {"PID_FILE=" + pid_file};
  EXPECT_THAT(RunSubprocess(options, absl::Seconds(20)).status().message(), HasSubstr("signal 9"));
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadFile(pid_file).value(), &pid));
  ASSERT_GT(pid, 0) << "died with the thread that started it";
  EXPECT_TRUE(Gone(pid));
}

TEST(SubprocessTest, InheritsNoDescriptorAndNoEnvironment) {
  const int leaky = open("/dev/null", O_RDONLY);  // without close-on-exec, as a careless library would
  ASSERT_GE(leaky, 0);
  setenv("INLAY_SECRET", "x", 1);
  auto result = RunSubprocess(Shell("ls /proc/self/fd | tr '\\n' ' '; echo ${INLAY_SECRET-none}"), absl::Seconds(20));
  close(leaky);
  ASSERT_TRUE(result.ok()) << result.status();
  // 3 is ls's own, of the directory.
  EXPECT_EQ(result->stdout_bytes, "0 1 2 3 none\n");
}

TEST(SubprocessTest, LimitsHold) {
  SubprocessOptions options = Shell("ulimit -v; ulimit -f; ulimit -c; ulimit -t");
  options.limits.address_space_bytes = 1 << 30;
  options.limits.file_size_bytes = 1 << 20;
  options.limits.cpu_seconds = 7;
  EXPECT_EQ(RunSubprocess(options, absl::Seconds(20)).value().stdout_bytes, "1048576\n2048\n0\n7\n");
  options.argv[2] = "while :; do :; done";
  options.limits.cpu_seconds = 1;
  EXPECT_THAT(RunSubprocess(options, absl::Seconds(20)).status().message(), HasSubstr("signal"));
}

TEST(SubprocessTest, KeepsTheTailOfStandardError) {
  SubprocessOptions options = Shell("seq 1 100000 >&2");
  options.stderr_tail_bytes = 100;
  size_t seen = 0;
  options.on_stderr = [&](absl::string_view piece) { seen += piece.size(); };
  auto result = RunSubprocess(options, absl::Seconds(20));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->stderr_tail.size(), 100);
  EXPECT_THAT(result->stderr_tail, EndsWith("99999\n100000\n"));
  EXPECT_EQ(seen, 588895);
}

TEST(SubprocessTest, TooMuchOutputIsRefused) {
  EXPECT_EQ(RunSubprocess(Shell("yes"), absl::Seconds(20), "", 1 << 20).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(SubprocessTest, PipesAnswerWhenTheChildDies) {
  SubprocessOptions options = Shell("read x; kill -KILL $$");
  options.pipe_stdin = options.pipe_stdout = true;
  auto process = Subprocess::Start(options).value();
  char byte;
  EXPECT_EQ(process->ReadExactly(&byte, 1, absl::Now() + absl::Milliseconds(50)).code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(process->Write("go\n", absl::InfiniteFuture()).ok());
  EXPECT_EQ(process->ReadExactly(&byte, 1, absl::InfiniteFuture()).code(), absl::StatusCode::kUnavailable);
  // A dying process closes its descriptors one after the other, its input maybe last.
  EXPECT_FALSE(process->Wait(absl::InfiniteFuture()).ok());
  EXPECT_EQ(process->Write("more", absl::InfiniteFuture()).code(), absl::StatusCode::kUnavailable);
}

TEST(SubprocessTest, ManyAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 10; ++i) {
        auto result = RunSubprocess(Shell("cat"), absl::Seconds(60), "x");
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->stdout_bytes, "x");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace inlay
