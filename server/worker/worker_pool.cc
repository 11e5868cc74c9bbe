#include "server/worker/worker_pool.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"

namespace inlay::server {
namespace {

constexpr int kAttempts = 2;

std::string NameOf(const proto::CompileAction& action) {
  std::vector<std::string> functions;
  for (const auto& [name, function] : action.module().functions()) functions.push_back(name);
  std::sort(functions.begin(), functions.end());
  return absl::StrCat("backend ", action.backend(), ", partition ", absl::StrJoin(functions, "+"));
}

}  // namespace

WorkerPool::WorkerPool(const WorkerPoolOptions& options, metrics::Registry* registry)
    : options_(options),
      registry_(registry),
      starts_(registry->GetCounter("inlay_worker_starts_total", "Worker processes started")),
      retries_(registry->GetCounter("inlay_worker_retries_total", "Actions run again after their worker failed")),
      seconds_(registry->GetHistogram("inlay_worker_action_seconds", "Seconds an action took in its worker")),
      queue_seconds_(registry->GetHistogram("inlay_worker_queue_seconds", "Seconds an action waited for a worker")),
      busy_(registry->GetGauge("inlay_workers_busy", "Workers that run an action")),
      waiting_gauge_(registry->GetGauge("inlay_worker_queue_length", "Actions that wait for a worker")),
      peak_rss_(registry->GetGauge("inlay_worker_peak_rss_bytes", "Of the worker that answered last")) {}

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Start(const WorkerPoolOptions& options,
                                                              metrics::Registry* registry) {
  if (options.num_workers < 1) return absl::InvalidArgumentError("a worker pool without workers");
  std::unique_ptr<WorkerPool> pool(new WorkerPool(options, registry));
  pool->pids_.resize(options.num_workers);
  for (int i = 0; i < options.num_workers; ++i) {
    pool->slots_.push_back(std::make_unique<Slot>());
    pool->slots_.back()->index = i;
    INLAY_RETURN_IF_ERROR(pool->Spawn(pool->slots_.back().get()));  // all of them begin at once ...
  }
  CancelToken token;
  for (auto& slot : pool->slots_) {
    INLAY_RETURN_IF_ERROR(pool->EnsureReady(slot.get(), &token));  // ... and are asked afterwards
    pool->Release(slot.get());
  }
  return pool;
}

WorkerPool::~WorkerPool() = default;

metrics::Counter& WorkerPool::Results(const char* result) {
  return registry_->GetCounter("inlay_worker_actions_total", "Actions by what became of them", {{"result", result}});
}

std::vector<proto::BackendInfo> WorkerPool::backends() const {
  absl::MutexLock lock(&mu_);
  return backends_;
}

std::vector<pid_t> WorkerPool::pids() const {
  absl::MutexLock lock(&mu_);
  std::vector<pid_t> pids;
  for (pid_t pid : pids_) {
    if (pid > 0) pids.push_back(pid);
  }
  return pids;
}

absl::StatusOr<std::string> WorkerPool::BackendVersion(const std::string& backend) {
  absl::MutexLock lock(&mu_);
  for (const proto::BackendInfo& info : backends_) {
    if (info.name() == backend) return info.version();
  }
  return absl::NotFoundError(absl::StrCat("no worker has a backend '", backend, "'"));
}

absl::Status WorkerPool::Spawn(Slot* slot) {
  slot->process = nullptr;  // removes its scratch directory
  {
    absl::MutexLock lock(&mu_);
    pids_[slot->index] = 0;
  }
  WorkerProcessOptions options;
  options.binary = options_.worker_binary;
  options.scratch_dir = absl::StrCat(options_.scratch_dir, "/worker", slot->index, ".", ++slot->starts);
  options.memory_bytes = options_.memory_bytes;
  options.flags = options_.flags;
  options.on_stderr = options_.on_stderr;
  INLAY_ASSIGN_OR_RETURN(slot->process, WorkerProcess::Start(options));
  starts_.Increment();
  absl::MutexLock lock(&mu_);
  pids_[slot->index] = slot->process->pid();
  return absl::OkStatus();
}

absl::Status WorkerPool::EnsureReady(Slot* slot, CancelToken* token) {
  if (slot->process == nullptr || slot->process->broken()) INLAY_RETURN_IF_ERROR(Spawn(slot));
  if (slot->process->has_answered()) return absl::OkStatus();
  proto::WorkerRequest ping;
  ping.mutable_ping();
  const absl::Time deadline = std::min(absl::Now() + options_.start_timeout, token->deadline());
  auto on_cancel = token->OnCancel([process = slot->process.get()] { process->Kill(); });
  absl::StatusOr<proto::WorkerResponse> response = slot->process->Exchange(std::move(ping), deadline);
  INLAY_RETURN_IF_ERROR(Annotate(response.status(), "a worker's first answer"));
  if (response->code() != 0) return absl::InternalError(absl::StrCat("a worker's first answer: ", response->message()));
  slot->rss_at_start = response->peak_rss_bytes();
  absl::MutexLock lock(&mu_);
  backends_.assign(response->backends().begin(), response->backends().end());
  return absl::OkStatus();
}

absl::StatusOr<WorkerPool::Slot*> WorkerPool::Acquire(CancelToken* token) {
  const absl::Time start = absl::Now();
  Waiter waiter;
  // Before the lock: the callback may run at once, and takes it.
  auto on_cancel = token->OnCancel([&] {
    absl::MutexLock lock(&mu_);
    waiter.cancelled = true;
  });
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    if (waiters_.empty() && !idle_.empty()) {
      waiter.slot = idle_.back();
      idle_.pop_back();
    } else if (static_cast<int>(waiters_.size()) >= max_waiting()) {
      status = absl::ResourceExhaustedError(absl::StrCat(waiters_.size(), " actions wait for a worker already"));
    } else {
      waiters_.push_back(&waiter);
      waiting_gauge_.Set(waiters_.size());
      auto done = [&waiter] { return waiter.slot != nullptr || waiter.cancelled; };
      mu_.AwaitWithDeadline(absl::Condition(&done), token->deadline());
      if (waiter.slot == nullptr) waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
      waiting_gauge_.Set(waiters_.size());
    }
  }
  on_cancel = nullptr;
  INLAY_RETURN_IF_ERROR(status);
  if (waiter.slot == nullptr) {
    status = token->status();
    return status.ok() ? absl::DeadlineExceededError("no worker became free in time") : status;
  }
  queue_seconds_.Observe(absl::ToDoubleSeconds(absl::Now() - start));
  busy_.Increment();
  return waiter.slot;
}

void WorkerPool::Release(Slot* slot) {
  absl::MutexLock lock(&mu_);
  if (waiters_.empty()) {
    idle_.push_back(slot);
    return;
  }
  waiters_.front()->slot = slot;
  waiters_.pop_front();
}

absl::StatusOr<proto::WorkerResponse> WorkerPool::RunOnce(Slot* slot, const proto::CompileAction& action,
                                                          CancelToken* token) {
  absl::StatusOr<proto::WorkerResponse> response = absl::UnknownError("");
  absl::Status ready = EnsureReady(slot, token);
  if (ready.ok()) {
    proto::WorkerRequest request;
    *request.mutable_compile() = action;
    const absl::Time limit = absl::Now() + options_.action_timeout;
    auto on_cancel = token->OnCancel([process = slot->process.get()] { process->Kill(); });
    response = slot->process->Exchange(std::move(request), std::min(limit, token->deadline()));
  } else {
    response = ready;
  }
  if (response.ok()) {
    // A worker that has grown is retired between actions rather than left to hit its limit within one.
    const int64_t growth = response->peak_rss_bytes() - slot->rss_at_start;
    const bool grown = options_.memory_bytes > 0 && growth > options_.memory_bytes / 2;
    if (grown) Spawn(slot).IgnoreError();
    peak_rss_.Set(response->peak_rss_bytes());
    return response;
  }
  // At once, so that the next action finds it started; if that fails, EnsureReady tries again and says why.
  Spawn(slot).IgnoreError();
  if (absl::IsDeadlineExceeded(response.status()) && ready.ok()) {
    const absl::string_view message = response.status().message();
    return absl::DeadlineExceededError(
        absl::StrCat("took longer than ", absl::FormatDuration(options_.action_timeout), ": ", message));
  }
  return response;
}

absl::StatusOr<proto::StaticLibrary> WorkerPool::Compile(const proto::CompileAction& action, CancelToken* token) {
  INLAY_RETURN_IF_ERROR(token->status());
  INLAY_ASSIGN_OR_RETURN(Slot * slot, Acquire(token));
  MachineGate::Pass pass;
  absl::Status status = token->status();  // cancelled just now: spare the worker
  if (status.ok() && options_.gate != nullptr) {
    absl::StatusOr<MachineGate::Pass> entered = options_.gate->Enter(MachineGate::Use::kShared, token);
    status = entered.status();
    if (status.ok()) pass = *std::move(entered);
  }
  if (!status.ok()) {
    busy_.Decrement();
    Release(slot);
    return status;
  }
  const absl::Time start = absl::Now();
  absl::StatusOr<proto::WorkerResponse> response = absl::UnknownError("");
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    response = RunOnce(slot, action, token);
    if (response.ok() || !token->status().ok()) break;
    if (attempt < kAttempts) retries_.Increment();
  }
  busy_.Decrement();
  Release(slot);
  seconds_.Observe(absl::ToDoubleSeconds(absl::Now() - start));

  if (!response.ok()) {
    absl::Status cancelled = token->status();
    if (!cancelled.ok()) {
      Results("cancelled").Increment();
      return cancelled;
    }
    Results("worker_failed").Increment();
    return absl::InternalError(
        absl::StrCat(NameOf(action), ": its worker failed ", kAttempts, " times: ", response.status().message()));
  }
  if (response->code() != 0) {
    Results("error").Increment();
    return absl::Status(static_cast<absl::StatusCode>(response->code()), response->message());
  }
  Results("ok").Increment();
  return std::move(*response->mutable_library());
}

}  // namespace inlay::server
