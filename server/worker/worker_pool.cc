#include "server/worker/worker_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"

namespace inlay::server {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(60);
// How often a waiting caller looks at its token's deadline; cancellation wakes it at once by the same look.
constexpr absl::Duration kPoll = absl::Milliseconds(50);

std::string NameOf(const proto::CompileAction& action) {
  std::vector<std::string> names;
  for (const auto& [name, function] : action.module().functions()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return absl::StrCat("backend ", action.backend(), ", partition ", absl::StrJoin(names, ", "));
}

}  // namespace

WorkerPool::WorkerPool(const WorkerPoolOptions& options, metrics::Registry* registry)
    : options_(options),
      slots_(options.num_workers),
      seconds_(registry->GetHistogram("inlay_action_seconds", "Seconds a compile action took on its worker")),
      crashes_(registry->GetCounter("inlay_worker_crashes_total", "Workers that died in the middle of an action")),
      timeouts_(registry->GetCounter("inlay_worker_timeouts_total", "Actions past their time limit")),
      retries_(registry->GetCounter("inlay_action_retries_total", "Actions tried a second time")),
      started_(registry->GetCounter("inlay_workers_started_total", "Worker processes started")) {}

WorkerPool::~WorkerPool() = default;  // a Worker's destructor kills its process

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Start(const WorkerPoolOptions& options,
                                                              metrics::Registry* registry) {
  std::unique_ptr<WorkerPool> pool(new WorkerPool(options, registry));
  INLAY_ASSIGN_OR_RETURN(std::shared_ptr<Worker> worker, pool->WorkerOf(0));
  proto::WorkerRequest ping;
  ping.mutable_ping();
  absl::StatusOr<proto::WorkerResponse> answer = worker->Call(ping, absl::Now() + kStartTimeout);
  if (!answer.ok()) return Annotate(answer.status(), absl::StrCat("starting ", options.worker_binary));
  pool->backends_.assign(answer->backends().begin(), answer->backends().end());
  return pool;
}

absl::StatusOr<std::string> WorkerPool::BackendVersion(const std::string& backend) {
  for (const proto::BackendInfo& info : backends_) {
    if (info.name() == backend) return info.version();
  }
  return absl::NotFoundError(absl::StrCat("no worker has code generation of backend '", backend, "'"));
}

std::vector<pid_t> WorkerPool::pids() {
  absl::MutexLock lock(&mutex_);
  std::vector<pid_t> pids;
  for (const Slot& slot : slots_) {
    if (slot.worker != nullptr) pids.push_back(slot.worker->pid());
  }
  return pids;
}

absl::StatusOr<int> WorkerPool::Acquire(CancelToken* token) {
  const uint64_t ticket = next_id_++;
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(ticket);
  auto leave = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), ticket));
  };
  auto my_turn = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return waiting_.front() == ticket &&
           std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.busy; });
  };
  while (!my_turn()) {
    if (absl::Status status = token->status(); !status.ok()) {
      leave();
      return status;
    }
    mutex_.AwaitWithTimeout(absl::Condition(&my_turn), kPoll);
  }
  leave();
  // A slot whose worker lives is better than one that must start it.
  int chosen = -1;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    if (slots_[i].busy) continue;
    if (chosen < 0 || (slots_[i].worker != nullptr && slots_[chosen].worker == nullptr)) chosen = i;
  }
  slots_[chosen].busy = true;
  return chosen;
}

void WorkerPool::Release(int slot) {
  absl::MutexLock lock(&mutex_);
  slots_[slot].busy = false;
}

absl::StatusOr<std::shared_ptr<Worker>> WorkerPool::WorkerOf(int slot) {
  {
    absl::MutexLock lock(&mutex_);
    if (slots_[slot].worker != nullptr) return slots_[slot].worker;
  }
  WorkerOptions options{options_.worker_binary, options_.scratch_dir, options_.memory_bytes};
  INLAY_ASSIGN_OR_RETURN(std::shared_ptr<Worker> worker, Worker::Start(options));
  started_.Increment();
  absl::MutexLock lock(&mutex_);
  slots_[slot].worker = worker;
  return worker;
}

void WorkerPool::Drop(int slot) {
  std::shared_ptr<Worker> dropped;  // killed and reaped after the lock is released
  absl::MutexLock lock(&mutex_);
  dropped = std::move(slots_[slot].worker);
  slots_[slot].worker = nullptr;
}

absl::StatusOr<proto::WorkerResponse> WorkerPool::CallOn(int slot, const proto::WorkerRequest& request,
                                                         CancelToken* token) {
  INLAY_ASSIGN_OR_RETURN(std::shared_ptr<Worker> worker, WorkerOf(slot));
  const absl::Time start = absl::Now();
  const absl::Time limit = start + options_.action_timeout;
  absl::StatusOr<proto::WorkerResponse> response = absl::UnknownError("");
  {
    auto kill = token->OnCancel([worker] { worker->Kill(); });
    response = worker->Call(request, std::min(limit, token->deadline()));
  }
  seconds_.Observe(absl::ToDoubleSeconds(absl::Now() - start));
  if (!response.ok()) Drop(slot);
  if (absl::Status cancelled = token->status(); !cancelled.ok() && !response.ok()) return cancelled;
  if (absl::IsDeadlineExceeded(response.status())) {
    timeouts_.Increment();
    return absl::DeadlineExceededError(
        absl::StrCat("no result within ", absl::FormatDuration(options_.action_timeout), " (action_timeout_s)"));
  }
  if (!response.ok()) crashes_.Increment();
  return response;
}

absl::StatusOr<proto::WorkerResponse> WorkerPool::CallWithRetry(int slot, const proto::WorkerRequest& request,
                                                                CancelToken* token) {
  absl::StatusOr<proto::WorkerResponse> response = CallOn(slot, request, token);
  if (response.ok() || !token->status().ok()) return response;
  retries_.Increment();
  return CallOn(slot, request, token);
}

absl::StatusOr<proto::StaticLibrary> WorkerPool::Compile(const proto::CompileAction& action, CancelToken* token) {
  proto::WorkerRequest request;
  request.set_id(next_id_++);
  *request.mutable_compile() = action;
  INLAY_ASSIGN_OR_RETURN(int slot, Acquire(token));
  absl::StatusOr<proto::WorkerResponse> response = CallWithRetry(slot, request, token);
  Release(slot);
  if (!response.ok()) {
    if (!token->status().ok()) return token->status();
    const bool slow = absl::IsDeadlineExceeded(response.status());
    return absl::Status(slow ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kInternal,
                        absl::StrCat(NameOf(action), " failed twice: ", response.status().message()));
  }
  if (response->code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(response->code()), response->message());
  }
  return std::move(*response->mutable_library());
}

}  // namespace inlay::server
