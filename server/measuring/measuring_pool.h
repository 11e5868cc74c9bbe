// MeasuringPool: the daemon's Measurer. Measures in a process of its own (measurer_main.h), which is started when first
// needed and stays, one measurement at a time, with the machine's cores to itself (server/worker/machine_gate.h) and in
// turns with other daemons (machine_lock.h).
//
// Where the process dies, or a load or a run takes longer than the time limit, all is measured again from the start by
// a fresh process. The second time that it happens to the same subject, that one is excluded with the reason (INTERNAL,
// DEADLINE_EXCEEDED; UNAVAILABLE where it was killed by SIGKILL, someone's or the kernel's for memory, which need not
// be its fault), and the others go on among themselves. A subject that could not be measured for want of memory or the
// like is tried once more, with the reference, by a fresh process. What went wrong before it went right is the timing's
// note.
//
// Threads: any; every call must have returned before the destructor.
#ifndef INLAY_SERVER_MEASURING_MEASURING_POOL_H_
#define INLAY_SERVER_MEASURING_MEASURING_POOL_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/compiler/measurer.h"
#include "core/metrics/registry.h"
#include "server/measuring/machine_lock.h"
#include "server/measuring/progress_page.h"
#include "server/worker/machine_gate.h"
#include "server/worker/worker_process.h"

namespace inlay::server {

struct MeasuringPoolOptions {
  std::string measurer_binary;
  int64_t memory_bytes = 0;  // all subjects of a measurement together, over what the process begins with; 0: no limit
  absl::Duration step_timeout = absl::Seconds(30);   // of one load or one run of one subject
  absl::Duration start_timeout = absl::Seconds(60);  // until a fresh process answers
  std::string machine_lock = "none";                 // MachineLock's path
  absl::Duration machine_lock_wait = absl::Seconds(30);
  std::string scratch_dir;                           // must exist; each process has a directory of its own in it
  std::function<void(absl::string_view)> on_stderr;  // any thread
};

class MeasuringPool : public compiler::Measurer {
 public:
  // Starts nothing. `gate` and `registry` outlive it.
  MeasuringPool(const MeasuringPoolOptions& options, MachineGate* gate, metrics::Registry* registry);
  ~MeasuringPool() override;

  absl::StatusOr<proto::MeasureResult> Measure(const proto::MeasureAction& action, CancelToken* token) override;
  std::string device() const override { return device_; }

  pid_t pid() const;  // 0: no process runs

 private:
  struct Attempt {
    absl::StatusOr<proto::WorkerResponse> response = absl::UnknownError("");
    bool hung = false;
    MeasureStep step;  // where it was, if there is no response
  };

  absl::StatusOr<proto::MeasureResult> MeasureAlone(const proto::MeasureAction& action, CancelToken* token);
  absl::StatusOr<proto::MeasureResult> MeasureWithRetries(const proto::MeasureAction& action, CancelToken* token);
  absl::Status EnsureReady(CancelToken* token);
  Attempt TryMeasure(const proto::MeasureAction& action, CancelToken* token);
  void StopProcess();
  metrics::Counter& Results(const char* result);

  const MeasuringPoolOptions options_;
  MachineGate* const gate_;
  metrics::Registry* const registry_;
  metrics::Histogram& seconds_;
  metrics::Histogram& wait_seconds_;
  metrics::Histogram& lock_wait_seconds_;
  metrics::Counter& starts_;
  metrics::Counter& subjects_;
  metrics::Counter& crashes_;
  const std::string device_;

  // Of whoever is alone in the gate.
  MachineLock lock_;
  std::unique_ptr<WorkerProcess> process_;
  std::string process_dir_;
  int64_t rss_at_start_ = 0;
  int num_starts_ = 0;

  mutable absl::Mutex mu_;
  pid_t pid_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_MEASURING_POOL_H_
