#include "core/base/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "core/base/spawn.h"
#include "core/base/status_macros.h"

namespace inlay {
namespace {

// Milliseconds for poll, rounded up so that it never spins; -1 for ever.
int PollTimeout(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return -1;
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 30));
}

// While it lives, this thread's writes to a closed pipe answer EPIPE instead of raising SIGPIPE; the process's handling
// of the signal is not touched.
class SigPipeBlocker {
 public:
  SigPipeBlocker() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &old_);
  }
  ~SigPipeBlocker() {
    if (!was_pending_) {
      const struct timespec zero = {0, 0};
      while (sigtimedwait(&pipe_, nullptr, &zero) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }

 private:
  sigset_t pipe_, old_;
  bool was_pending_;
};

absl::Status ExitStatus(const std::string& program, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  if (WIFEXITED(status)) return absl::AbortedError(absl::StrCat(program, " exited with code ", WEXITSTATUS(status)));
  const int number = WTERMSIG(status);
  const char* name = sigabbrev_np(number);
  return absl::AbortedError(
      absl::StrCat(program, " was killed by signal ", number, " (SIG", name == nullptr ? "?" : name, ")"));
}

}  // namespace

struct Subprocess::State {
  SubprocessOptions options;
  internal::SpawnedChild child;
  std::thread monitor;

  mutable absl::Mutex mu;
  bool reaped ABSL_GUARDED_BY(mu) = false;
  bool finished ABSL_GUARDED_BY(mu) = false;  // reaped, and its standard error read
  int exit_status ABSL_GUARDED_BY(mu) = 0;
  std::string stderr_tail ABSL_GUARDED_BY(mu);

  ~State() {
    for (int fd : {child.pidfd, child.stdin_fd, child.stdout_fd, child.stderr_fd}) {
      if (fd >= 0) close(fd);
    }
  }

  pid_t KillTarget() const { return options.in_parents_group ? child.pid : -child.pid; }

  void Kill() {
    absl::MutexLock lock(&mu);
    // Not after the reaping: the number may be somebody else's by then.
    if (!reaped) kill(KillTarget(), SIGKILL);
  }

  // False at the end of standard error.
  bool ReadStderr() {
    char buffer[16384];
    while (true) {
      const ssize_t n = read(child.stderr_fd, buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN;
      if (n == 0) return false;
      const absl::string_view piece(buffer, n);
      if (options.on_stderr) options.on_stderr(piece);
      absl::MutexLock lock(&mu);
      stderr_tail.append(buffer, n);
      if (stderr_tail.size() > 2 * options.stderr_tail_bytes) {
        stderr_tail.erase(0, stderr_tail.size() - options.stderr_tail_bytes);
      }
    }
  }

  // Reads standard error until the child exits, then ends its group, reaps it, and reads what there still is. Does not
  // wait for the end of the stream: a descendant that left the group may hold it open for ever.
  void Monitor() {
    bool open = true;
    while (true) {
      pollfd fds[2] = {{child.pidfd, POLLIN, 0}, {open ? child.stderr_fd : -1, POLLIN, 0}};
      if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
      if (fds[1].revents != 0) open = ReadStderr();
      if (fds[0].revents != 0) break;
    }
    {
      absl::MutexLock lock(&mu);
      kill(KillTarget(), SIGKILL);  // before the reaping, while the number is still the group's
      while (waitpid(child.pid, &exit_status, 0) < 0 && errno == EINTR) {
      }
      reaped = true;
    }
    if (open) ReadStderr();
    absl::MutexLock lock(&mu);
    finished = true;
  }

  // OK once fd is ready; UNAVAILABLE where the child has died and the pipe will give no more.
  absl::Status WaitFor(int fd, short events, absl::Time deadline) {
    while (true) {
      pollfd fds[2] = {{fd, events, 0}, {child.pidfd, POLLIN, 0}};
      const int n = poll(fds, 2, PollTimeout(deadline));
      if (n < 0 && errno != EINTR) return ErrnoStatus(errno, "poll", options.argv[0]);
      if (n > 0 && fds[0].revents != 0) return absl::OkStatus();
      if (n > 0) return absl::UnavailableError(absl::StrCat(options.argv[0], " has died"));
      if (n == 0 && absl::Now() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat(options.argv[0], " did not answer in time"));
      }
    }
  }
};

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Start(const SubprocessOptions& options) {
  if (options.argv.empty()) return absl::InvalidArgumentError("a subprocess without a program");
  auto state = std::make_shared<State>();
  state->options = options;
  INLAY_ASSIGN_OR_RETURN(state->child, internal::Spawn(options));
  state->monitor = std::thread([s = state.get()] { s->Monitor(); });
  return std::unique_ptr<Subprocess>(new Subprocess(std::move(state)));
}

Subprocess::~Subprocess() {
  Kill();
  state_->monitor.join();
}

pid_t Subprocess::pid() const { return state_->child.pid; }
int Subprocess::stdin_fd() const { return state_->child.stdin_fd; }
int Subprocess::stdout_fd() const { return state_->child.stdout_fd; }
void Subprocess::Kill() { state_->Kill(); }

void Subprocess::CloseStdin() {
  if (state_->child.stdin_fd >= 0) close(state_->child.stdin_fd);
  state_->child.stdin_fd = -1;
}

absl::Status Subprocess::Write(absl::string_view data, absl::Time deadline) {
  SigPipeBlocker blocker;
  while (!data.empty()) {
    const ssize_t n = write(stdin_fd(), data.data(), data.size());
    if (n >= 0) {
      data.remove_prefix(n);
    } else if (errno == EAGAIN) {
      INLAY_RETURN_IF_ERROR(state_->WaitFor(stdin_fd(), POLLOUT, deadline));
    } else if (errno == EPIPE) {
      return absl::UnavailableError(absl::StrCat(state_->options.argv[0], " has closed its standard input"));
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "write to", state_->options.argv[0]);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> Subprocess::ReadSome(char* data, size_t size, absl::Time deadline) {
  while (true) {
    const ssize_t n = read(stdout_fd(), data, size);
    if (n >= 0) return n;
    if (errno == EAGAIN) {
      INLAY_RETURN_IF_ERROR(state_->WaitFor(stdout_fd(), POLLIN, deadline));
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "read from", state_->options.argv[0]);
    }
  }
}

absl::Status Subprocess::ReadExactly(char* data, size_t size, absl::Time deadline) {
  while (size > 0) {
    INLAY_ASSIGN_OR_RETURN(size_t n, ReadSome(data, size, deadline));
    if (n == 0) return absl::UnavailableError(absl::StrCat(state_->options.argv[0], " has closed its standard output"));
    data += n;
    size -= n;
  }
  return absl::OkStatus();
}

absl::Status Subprocess::Wait(absl::Time deadline) {
  absl::MutexLock lock(&state_->mu);
  if (!state_->mu.AwaitWithDeadline(absl::Condition(&state_->finished), deadline)) {
    return absl::DeadlineExceededError(absl::StrCat(state_->options.argv[0], " is still running"));
  }
  return ExitStatus(state_->options.argv[0], state_->exit_status);
}

bool Subprocess::running() const {
  absl::MutexLock lock(&state_->mu);
  return !state_->finished;
}

std::string Subprocess::StderrTail() const {
  absl::MutexLock lock(&state_->mu);
  const size_t size = std::min(state_->stderr_tail.size(), state_->options.stderr_tail_bytes);
  return state_->stderr_tail.substr(state_->stderr_tail.size() - size);
}

absl::StatusOr<SubprocessResult> RunSubprocess(SubprocessOptions options, absl::Duration timeout,
                                               absl::string_view stdin_bytes, int64_t max_stdout_bytes) {
  const absl::Time deadline = absl::Now() + timeout;
  options.pipe_stdout = true;
  options.pipe_stdin = !stdin_bytes.empty();
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<Subprocess> process, Subprocess::Start(options));
  std::thread writer;
  if (options.pipe_stdin) {
    writer = std::thread([&] {
      process->Write(stdin_bytes, deadline).IgnoreError();  // a child may leave its input unread
      process->CloseStdin();
    });
  }
  SubprocessResult result;
  absl::Status status = [&]() -> absl::Status {
    char buffer[65536];
    while (true) {
      absl::StatusOr<size_t> n = process->ReadSome(buffer, sizeof(buffer), deadline);
      if (absl::IsUnavailable(n.status())) break;  // dead: its exit status says more
      INLAY_RETURN_IF_ERROR(n.status());
      if (*n == 0) break;
      result.stdout_bytes.append(buffer, *n);
      if (static_cast<int64_t>(result.stdout_bytes.size()) > max_stdout_bytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat(options.argv[0], " wrote more than ", max_stdout_bytes, " bytes"));
      }
    }
    return process->Wait(deadline);
  }();
  if (!status.ok()) process->Kill();
  if (writer.joinable()) writer.join();
  process->Wait(absl::Now() + absl::Seconds(5)).IgnoreError();  // for the tail
  result.stderr_tail = process->StderrTail();
  if (status.ok()) return result;
  if (absl::IsDeadlineExceeded(status)) {
    status =
        absl::DeadlineExceededError(absl::StrCat(options.argv[0], " took longer than ", absl::FormatDuration(timeout)));
  }
  if (result.stderr_tail.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; its standard error ends:\n", result.stderr_tail));
}

}  // namespace inlay
