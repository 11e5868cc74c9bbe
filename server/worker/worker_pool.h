// WorkerPool: compile actions on worker processes.
//
// A worker that dies or runs past the time limit costs the action that it had: that is tried once more on a fresh
// worker and then fails, naming backend and partition. Workers are kept between actions. Waiting callers are served in
// order of arrival. Thread-safe; must outlive its callers.
#ifndef INLAY_SERVER_WORKER_WORKER_POOL_H_
#define INLAY_SERVER_WORKER_WORKER_POOL_H_

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/compiler/partition_compiler.h"
#include "core/metrics/registry.h"
#include "proto/worker.pb.h"
#include "server/worker/worker.h"

namespace inlay::server {

struct WorkerPoolOptions {
  std::string worker_binary;
  std::string scratch_dir;
  int num_workers = 1;
  int64_t memory_bytes = int64_t{4} << 30;
  absl::Duration action_timeout = absl::Minutes(5);
};

class WorkerPool : public compiler::PartitionCompiler {
 public:
  // Starts one worker and asks it for its backends; the others start when they are needed. `registry` outlives the
  // pool.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Start(const WorkerPoolOptions& options,
                                                           metrics::Registry* registry);
  ~WorkerPool() override;

  // What the action answered, or INTERNAL (crashed twice), DEADLINE_EXCEEDED (twice past the limit), the token's
  // status.
  absl::StatusOr<proto::StaticLibrary> Compile(const proto::CompileAction& action, CancelToken* token) override;
  int parallelism() const override { return options_.num_workers; }
  absl::StatusOr<std::string> BackendVersion(const std::string& backend) override;
  const std::vector<proto::BackendInfo>& backends() const { return backends_; }

  // Of the workers that live now: for tests that kill them.
  std::vector<pid_t> pids();

 private:
  struct Slot {
    std::shared_ptr<Worker> worker;  // null: not started, or dropped; set and cleared by the slot's user under mutex_
    bool busy = false;
  };

  WorkerPool(const WorkerPoolOptions& options, metrics::Registry* registry);
  absl::StatusOr<int> Acquire(CancelToken* token);
  void Release(int slot);
  absl::StatusOr<std::shared_ptr<Worker>> WorkerOf(int slot);
  void Drop(int slot);
  absl::StatusOr<proto::WorkerResponse> CallOn(int slot, const proto::WorkerRequest& request, CancelToken* token);
  absl::StatusOr<proto::WorkerResponse> CallWithRetry(int slot, const proto::WorkerRequest& request,
                                                      CancelToken* token);

  const WorkerPoolOptions options_;
  std::vector<proto::BackendInfo> backends_;
  std::atomic<uint64_t> next_id_{1};
  absl::Mutex mutex_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::deque<uint64_t> waiting_ ABSL_GUARDED_BY(mutex_);  // tickets, in order of arrival

  metrics::Histogram& seconds_;
  metrics::Counter& crashes_;
  metrics::Counter& timeouts_;
  metrics::Counter& retries_;
  metrics::Counter& started_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_WORKER_POOL_H_
