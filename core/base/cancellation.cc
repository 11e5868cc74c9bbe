#include "core/base/cancellation.h"

#include <utility>

#include "absl/time/clock.h"

namespace inlay {

void CancelToken::Cancel(absl::Status reason) {
  absl::MutexLock running(&callback_mutex_);
  std::map<int64_t, std::function<void()>> callbacks;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    reason_ = std::move(reason);
    callbacks.swap(callbacks_);
  }
  for (auto& [id, callback] : callbacks) callback();
}

absl::Status CancelToken::status() const {
  absl::MutexLock lock(&mutex_);
  if (cancelled_) return reason_;
  if (deadline_ != absl::InfiniteFuture() && absl::Now() >= deadline_) {
    return absl::DeadlineExceededError("the request's deadline has passed");
  }
  return absl::OkStatus();
}

std::unique_ptr<CancelToken::Registration> CancelToken::OnCancel(std::function<void()> callback) {
  int64_t id;
  bool now;
  {
    absl::MutexLock lock(&mutex_);
    id = next_id_++;
    now = cancelled_;
    if (!now) callbacks_[id] = std::move(callback);
  }
  if (now) callback();
  return std::make_unique<Registration>(this, id);
}

CancelToken::Registration::~Registration() {
  {
    absl::MutexLock lock(&token_->mutex_);
    if (token_->callbacks_.erase(id_) == 1 || !token_->cancelled_) return;
  }
  // Cancelled: the callback has run, or runs right now in another thread. Wait until that is over.
  absl::MutexLock wait(&token_->callback_mutex_);
}

}  // namespace inlay
