// Worker: one worker process and the conversation with it. Used by one thread at a time (Kill by any).
//
// After any error but one that the action itself answered, the process is in an unknown state: the owner drops it.
#ifndef INLAY_SERVER_WORKER_WORKER_H_
#define INLAY_SERVER_WORKER_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/file_system.h"
#include "core/base/subprocess.h"
#include "proto/worker.pb.h"

namespace inlay::server {

struct WorkerOptions {
  std::string binary;
  std::string scratch_dir;   // the worker gets a directory of its own in it, gone with the worker
  int64_t memory_bytes = 0;  // over what it has mapped when it starts; 0: no limit
};

class Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options);

  // UNAVAILABLE: it died (the message has how, and the end of its standard error); DEADLINE_EXCEEDED: no answer by
  // then; DATA_LOSS: nonsense in its answer. What the action itself answered is in the response.
  absl::StatusOr<proto::WorkerResponse> Call(const proto::WorkerRequest& request, absl::Time deadline);
  void Kill() { process_->Kill(); }
  pid_t pid() const { return process_->pid(); }

 private:
  Worker(TempDir directory, std::unique_ptr<Subprocess> process)
      : directory_(std::move(directory)), process_(std::move(process)) {}
  absl::Status Died(const absl::Status& how);

  TempDir directory_;
  std::unique_ptr<Subprocess> process_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_WORKER_H_
