// WorkerPool: compiles partitions in worker processes, so that a crash, a runaway or a leak of a code generator costs
// one action and never the daemon.
//
// An action whose worker dies or exceeds the time limit is run once more, on a fresh worker; then INTERNAL, which names
// the backend and the partition and ends with the worker's standard error. An answer of the code generator itself (its
// INVALID_ARGUMENT, UNIMPLEMENTED, ...) is passed on as it is and never repeated.
// Cancelling a token, or its deadline, kills the worker that runs its action (callers who share an action share a
// token: core/compiler/single_flight.h); a fresh one takes its place.
//
// Calls wait in one queue, first come first served. A request keeps at most parallelism() calls in it, so requests take
// turns whatever their sizes. Over max_waiting calls: RESOURCE_EXHAUSTED. An action that has its worker waits once more
// where a measurement has the cores (machine_gate.h); no limit on its time runs meanwhile.
//
// Threads: any, except that every call must have returned before the destructor. A call runs its exchange in its own
// thread.
#ifndef INLAY_SERVER_WORKER_WORKER_POOL_H_
#define INLAY_SERVER_WORKER_WORKER_POOL_H_

#include <deque>
#include <functional>
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
#include "server/worker/machine_gate.h"
#include "server/worker/worker_process.h"

namespace inlay::server {

struct WorkerPoolOptions {
  std::string worker_binary;
  int num_workers = 1;
  int64_t memory_bytes = 0;        // an action may take, over what a worker begins with; 0: no limit
  std::vector<std::string> flags;  // more of them, for every worker
  absl::Duration action_timeout = absl::Minutes(5);
  absl::Duration start_timeout = absl::Seconds(60);  // until a fresh worker answers its first ping
  std::string scratch_dir;                           // must exist; each worker has a directory of its own in it
  int max_waiting = 0;  // 0: 256 a worker, for the daemon's 128 requests of at most parallelism() calls each
  std::function<void(absl::string_view)> on_stderr;  // of every worker; any thread
  MachineGate* gate = nullptr;  // what actions share the cores by with measurements; null: nothing is measured
};

class WorkerPool : public compiler::PartitionCompiler {
 public:
  // Starts all workers and asks them for their backends.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Start(const WorkerPoolOptions& options,
                                                           metrics::Registry* registry);
  ~WorkerPool() override;

  absl::StatusOr<proto::StaticLibrary> Compile(const proto::CompileAction& action, CancelToken* token) override;
  int parallelism() const override { return options_.num_workers; }
  absl::StatusOr<std::string> BackendVersion(const std::string& backend) override;

  // Of the worker that answered last: they change where the binary is replaced while the daemon runs.
  std::vector<proto::BackendInfo> backends() const;
  std::vector<pid_t> pids() const;  // of those that run

 private:
  struct Slot {
    int index = 0;
    int starts = 0;
    int64_t rss_at_start = 0;
    std::unique_ptr<WorkerProcess> process;  // of the thread that holds the slot
  };
  struct Waiter {
    Slot* slot = nullptr;
    bool cancelled = false;
  };

  WorkerPool(const WorkerPoolOptions& options, metrics::Registry* registry);
  int max_waiting() const { return options_.max_waiting > 0 ? options_.max_waiting : 256 * options_.num_workers; }
  absl::StatusOr<Slot*> Acquire(CancelToken* token);
  void Release(Slot* slot);
  absl::Status Spawn(Slot* slot);
  absl::Status EnsureReady(Slot* slot, CancelToken* token);
  // The worker's answer, or why there is none; the slot then has a fresh worker, where one could be started.
  absl::StatusOr<proto::WorkerResponse> RunOnce(Slot* slot, const proto::CompileAction& action, CancelToken* token);
  metrics::Counter& Results(const char* result);

  const WorkerPoolOptions options_;
  metrics::Registry* const registry_;
  metrics::Counter& starts_;
  metrics::Counter& retries_;
  metrics::Histogram& seconds_;
  metrics::Histogram& queue_seconds_;
  metrics::Gauge& busy_;
  metrics::Gauge& waiting_gauge_;
  metrics::Gauge& peak_rss_;

  mutable absl::Mutex mu_;
  std::vector<std::unique_ptr<Slot>> slots_;  // fixed after Start; a slot belongs to whoever took it from idle_
  std::vector<Slot*> idle_ ABSL_GUARDED_BY(mu_);
  std::deque<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  std::vector<proto::BackendInfo> backends_ ABSL_GUARDED_BY(mu_);
  std::vector<pid_t> pids_ ABSL_GUARDED_BY(mu_);  // by slot; 0: none
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_WORKER_POOL_H_
