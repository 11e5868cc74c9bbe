#include "core/base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"
#include "core/base/subprocess.h"

namespace inlay::internal {
namespace {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

// Above 2, so that the child's dup2 onto 0, 1 and 2 cannot overwrite one that it still needs.
absl::StatusOr<Fd> AboveStandard(Fd fd) {
  if (fd.get() > 2) return fd;
  Fd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  if (moved.get() < 0) return ErrnoStatus(errno, "duplicate", "a descriptor");
  return moved;
}

struct Pipe {
  Fd read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "create", "a pipe");
  Pipe pipe{Fd(fds[0]), Fd(fds[1])};
  INLAY_ASSIGN_OR_RETURN(pipe.read, AboveStandard(std::move(pipe.read)));
  INLAY_ASSIGN_OR_RETURN(pipe.write, AboveStandard(std::move(pipe.write)));
  return pipe;
}

// What the child needs, all made before vfork: after it, the child borrows this process's memory and may do nothing but
// system calls.
struct Plan {
  const char* path;
  char* const* argv;
  char* const* envp;
  const char* directory;  // or null
  int fds[3];
  ResourceLimits limits;
  pid_t parent;
  bool in_parents_group;
  volatile int error = 0;               // the child's errno where it could not execute
  const char* volatile step = nullptr;  // and what it was doing
};

void Limit(int resource, int64_t value) {
  if (value <= 0) return;
  struct rlimit limit = {static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

[[noreturn]] void RunChild(Plan* plan) {
  auto fail = [plan](const char* step) {
    plan->step = step;
    plan->error = errno;
    _exit(127);
  };
  if (!plan->in_parents_group) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan->parent) _exit(127);  // it died before the line above took effect
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  Limit(RLIMIT_AS, plan->limits.address_space_bytes);
  Limit(RLIMIT_CPU, plan->limits.cpu_seconds);
  Limit(RLIMIT_FSIZE, plan->limits.file_size_bytes);
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  for (int i = 0; i < 3; ++i) {
    if (dup2(plan->fds[i], i) < 0) fail("redirect the output of");
  }
  // Also those of libraries that did not ask for close-on-exec.
  if (syscall(SYS_close_range, 3, ~0U, 0) != 0) {
    for (int fd = 3; fd < 65536; ++fd) close(fd);  // a kernel before 5.9
  }
  if (plan->directory != nullptr && chdir(plan->directory) != 0) fail("enter the directory of");
  execve(plan->path, plan->argv, plan->envp);
  fail("execute");
  __builtin_unreachable();
}

__attribute__((noinline)) pid_t VforkAndRun(Plan* plan) {
  const pid_t pid = vfork();
  if (pid == 0) RunChild(plan);
  return pid;
}

// Runs everything on one thread that lasts as long as the process (see subprocess.h on PDEATHSIG).
void RunOnSpawner(const std::function<void()>& work) {
  struct Spawner {
    absl::Mutex mu;
    std::deque<std::function<void()>> queue ABSL_GUARDED_BY(mu);
    void Loop() {
      while (true) {
        std::function<void()> next;
        {
          absl::MutexLock lock(&mu);
          mu.Await(absl::Condition(+[](std::deque<std::function<void()>>* q) { return !q->empty(); }, &queue));
          next = std::move(queue.front());
          queue.pop_front();
        }
        next();
      }
    }
  };
  static Spawner* const spawner = [] {
    auto* s = new Spawner;
    std::thread([s] { s->Loop(); }).detach();
    return s;
  }();
  absl::Notification done;
  {
    absl::MutexLock lock(&spawner->mu);
    spawner->queue.push_back([&] {
      work();
      done.Notify();
    });
  }
  done.WaitForNotification();
}

std::vector<char*> CStrings(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

absl::Status SetNonBlocking(int fd) {
  if (fd >= 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "set non-blocking", "a pipe");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SpawnedChild> Spawn(const SubprocessOptions& options) {
  INLAY_ASSIGN_OR_RETURN(Fd null, AboveStandard(Fd(open("/dev/null", O_RDWR | O_CLOEXEC))));
  Pipe in, out;
  if (options.pipe_stdin) {
    INLAY_ASSIGN_OR_RETURN(in, MakePipe());
  }
  if (options.pipe_stdout) {
    INLAY_ASSIGN_OR_RETURN(out, MakePipe());
  }
  INLAY_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  for (int fd : {in.write.get(), out.read.get(), err.read.get()}) INLAY_RETURN_IF_ERROR(SetNonBlocking(fd));

  const std::vector<char*> argv = CStrings(options.argv);
  const std::vector<char*> envp = CStrings(options.env);
  Plan plan;
  plan.path = options.argv[0].c_str();
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.directory = options.working_directory.empty() ? nullptr : options.working_directory.c_str();
  plan.fds[0] = options.pipe_stdin ? in.read.get() : null.get();
  plan.fds[1] = options.pipe_stdout ? out.write.get() : null.get();
  plan.fds[2] = err.write.get();
  plan.limits = options.limits;
  plan.in_parents_group = options.in_parents_group;
  plan.parent = getpid();

  SpawnedChild child;
  int fork_error = 0;
  RunOnSpawner([&] {
    // No handler of this process may run in the child while it borrows the memory.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    child.pid = VforkAndRun(&plan);
    fork_error = errno;
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  });
  if (child.pid < 0) return ErrnoStatus(fork_error, "fork for", options.argv[0]);
  if (plan.error == 0) child.pidfd = static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0));
  if (child.pidfd < 0) {
    const absl::Status status = plan.error != 0 ? ErrnoStatus(plan.error, plan.step, options.argv[0])
                                                : ErrnoStatus(errno, "open the pidfd of", options.argv[0]);
    kill(options.in_parents_group ? child.pid : -child.pid, SIGKILL);
    while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return status;
  }
  child.stdin_fd = in.write.release();
  child.stdout_fd = out.read.release();
  child.stderr_fd = err.read.release();
  return child;
}

}  // namespace inlay::internal
