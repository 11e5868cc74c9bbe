// Subprocess: a child process that cannot hang its parent, outlive it, inherit what it should not, or use more than it
// may.
//
// The child
//   - is the leader of its own process group (in_parents_group: is not), and the whole group is killed (SIGKILL) by
//     Kill, by a timeout, when the child itself exits (whatever it left behind), and by the destructor;
//   - is killed when this process dies (PDEATHSIG; all children are started by one thread that never ends, because the
//     kernel ties that signal to the thread that forked);
//   - has descriptors 0, 1 and 2 and no other, default signal handlers, and no core dumps;
//   - has its standard error read all the time: the last bytes are kept for messages, all of it is shown to
//   `on_stderr`.
// It is started with vfork, so that the cost does not grow with the memory of this process.
//
// Threads: any, at once. Nothing here blocks for longer than its deadline, whatever the child or its children do.
#ifndef INLAY_CORE_BASE_SUBPROCESS_H_
#define INLAY_CORE_BASE_SUBPROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace inlay {

// 0 = as this process.
struct ResourceLimits {
  int64_t address_space_bytes = 0;  // RLIMIT_AS: allocation fails over it
  int64_t cpu_seconds = 0;          // RLIMIT_CPU: SIGXCPU over it
  int64_t file_size_bytes = 0;      // RLIMIT_FSIZE: SIGXFSZ over it
};

struct SubprocessOptions {
  std::vector<std::string> argv;  // argv[0] is the program's path; PATH is not searched
  std::vector<std::string> env;   // "NAME=value", all of it: nothing is inherited
  std::string working_directory;  // empty: this process's
  ResourceLimits limits;
  // The child stays in this process's group: for a program that starts others (gcc), inside a process that is itself
  // killed by its group. Kill and the end of the child then leave those others to that.
  bool in_parents_group = false;
  bool pipe_stdin = false;   // else /dev/null
  bool pipe_stdout = false;  // else /dev/null
  size_t stderr_tail_bytes = 16 << 10;
  std::function<void(absl::string_view)> on_stderr;  // from a thread of the Subprocess
};

class Subprocess {
 public:
  // NOT_FOUND, PERMISSION_DENIED and so on where the program cannot be executed.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Start(const SubprocessOptions& options);
  ~Subprocess();  // kills, reaps
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const;
  // This process's ends of the pipes, non-blocking, or -1. Owned by the Subprocess.
  int stdin_fd() const;
  int stdout_fd() const;
  void CloseStdin();

  // Writes all / reads exactly `size` bytes, or fails: DEADLINE_EXCEEDED, or UNAVAILABLE where the child has closed its
  // end or has died. One writer and one reader at a time.
  absl::Status Write(absl::string_view data, absl::Time deadline);
  absl::Status ReadExactly(char* data, size_t size, absl::Time deadline);
  // At least one byte, or 0 at the end of the child's output.
  absl::StatusOr<size_t> ReadSome(char* data, size_t size, absl::Time deadline);

  // OK for exit code 0; ABORTED with "exited with code N" or "killed by signal N (name)"; DEADLINE_EXCEEDED where the
  // child still runs then (it goes on running: Kill it).
  absl::Status Wait(absl::Time deadline);
  bool running() const;
  void Kill();

  // The last bytes of its standard error so far; all of them once Wait has answered.
  std::string StderrTail() const;

 private:
  struct State;
  explicit Subprocess(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State> state_;
};

struct SubprocessResult {
  std::string stdout_bytes;
  std::string stderr_tail;
};

// Runs to the end. Errors as Wait's, with the tail of standard error in the message; DEADLINE_EXCEEDED kills.
// RESOURCE_EXHAUSTED where standard output exceeds `max_stdout_bytes`.
absl::StatusOr<SubprocessResult> RunSubprocess(SubprocessOptions options, absl::Duration timeout,
                                               absl::string_view stdin_bytes = "", int64_t max_stdout_bytes = 64 << 20);

}  // namespace inlay

#endif  // INLAY_CORE_BASE_SUBPROCESS_H_
