// WorkerProcess: one worker (worker_main.h) as its parent sees it: start it, ask it, kill it.
//
// One request at a time, by one thread; Kill by any. Nothing blocks past its deadline, whatever the worker does. The
// first error of a call other than the worker's own answer (a death, a timeout, bytes that are no answer) ends the
// process: it is then `broken` and of no more use.
#ifndef INLAY_SERVER_WORKER_WORKER_PROCESS_H_
#define INLAY_SERVER_WORKER_WORKER_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/subprocess.h"
#include "proto/worker.pb.h"

namespace inlay::server {

struct WorkerProcessOptions {
  std::string binary;
  std::string scratch_dir;         // of this process alone; made here, removed with the WorkerProcess
  int64_t memory_bytes = 0;        // over what the worker has when it begins; 0: no limit
  std::vector<std::string> flags;  // more of them
  std::function<void(absl::string_view)> on_stderr;
};

class WorkerProcess {
 public:
  // Returns as soon as the program is executed.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const WorkerProcessOptions& options);
  ~WorkerProcess();

  // The worker's answer, whatever its code; or UNAVAILABLE with how it died, DEADLINE_EXCEEDED, DATA_LOSS (no answer of
  // ours), each with the tail of its standard error.
  absl::StatusOr<proto::WorkerResponse> Exchange(proto::WorkerRequest request, absl::Time deadline);
  bool broken() const { return broken_ || !process_->running(); }
  void Kill() { process_->Kill(); }
  pid_t pid() const { return process_->pid(); }
  // Whether it has answered something: then what it needed to begin is behind it.
  bool has_answered() const { return has_answered_; }

 private:
  WorkerProcess(std::unique_ptr<Subprocess> process, std::string scratch_dir)
      : process_(std::move(process)), scratch_dir_(std::move(scratch_dir)) {}
  absl::StatusOr<proto::WorkerResponse> TryExchange(const proto::WorkerRequest& request, absl::Time deadline);
  absl::Status Explain(absl::Status status);

  const std::unique_ptr<Subprocess> process_;
  const std::string scratch_dir_;
  uint64_t next_id_ = 1;
  bool broken_ = false;
  bool has_answered_ = false;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_WORKER_PROCESS_H_
