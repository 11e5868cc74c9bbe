#include "server/service/request_watcher.h"

#include <vector>

#include "absl/time/clock.h"

namespace inlay::server {
namespace {
constexpr absl::Duration kPeriod = absl::Milliseconds(20);
}  // namespace

RequestWatcher::RequestWatcher() : thread_([this] { Loop(); }) {}

RequestWatcher::~RequestWatcher() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

std::unique_ptr<RequestWatcher::Watch> RequestWatcher::Add(grpc::ServerContext* context, CancelToken* token,
                                                           absl::Duration stall_limit) {
  absl::MutexLock lock(&mutex_);
  const int64_t id = next_id_++;
  entries_[id] = {context, token, stall_limit, absl::Now()};
  return std::make_unique<Watch>(this, id);
}

void RequestWatcher::Watch::Touch() { watcher_->Touch(id_); }

void RequestWatcher::Touch(int64_t id) {
  absl::MutexLock lock(&mutex_);
  entries_.at(id).last_progress = absl::Now();
}

void RequestWatcher::Remove(int64_t id) {
  absl::MutexLock lock(&mutex_);
  entries_.erase(id);
}

void RequestWatcher::Loop() {
  absl::MutexLock lock(&mutex_);
  while (!stop_) {
    auto wake = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stop_; };
    mutex_.AwaitWithTimeout(absl::Condition(&wake), kPeriod);
    if (!stop_) CheckAll();
  }
}

// Holds the mutex throughout, so that no Watch ends (and takes context and token along) meanwhile. Cancelling runs the
// token's callbacks here; they only wake or kill, and never touch this watcher.
void RequestWatcher::CheckAll() {
  mutex_.AssertHeld();
  const absl::Time now = absl::Now();
  for (auto& [id, entry] : entries_) {
    const bool is_late = std::chrono::system_clock::now() >= entry.context->deadline();
    // gRPC ends late calls by itself; a stream that it did not end would wait for its client until it is said to stall.
    if (is_late || now - entry.last_progress > entry.stall_limit) entry.context->TryCancel();
    if (entry.token == nullptr || !entry.context->IsCancelled()) continue;
    if (is_late) {
      entry.token->Cancel(absl::DeadlineExceededError("the request's deadline has passed"));
    } else {
      entry.token->Cancel(absl::CancelledError("the client cancelled, or went away"));
    }
  }
}

}  // namespace inlay::server
