#include "server/worker/machine_gate.h"

#include <algorithm>

namespace inlay::server {

MachineGate::Pass::~Pass() {
  if (gate_ != nullptr) gate_->Leave(use_);
}

absl::StatusOr<MachineGate::Pass> MachineGate::Enter(Use use, CancelToken* token) {
  Waiter waiter{use};
  // Before the lock: the callback may run at once, and takes it.
  auto on_cancel = token->OnCancel([&] {
    absl::MutexLock lock(&mu_);
    waiter.cancelled = true;
  });
  {
    absl::MutexLock lock(&mu_);
    waiters_.push_back(&waiter);
    LetIn();
    auto done = [&waiter] { return waiter.entered || waiter.cancelled; };
    mu_.AwaitWithDeadline(absl::Condition(&done), token->deadline());
    if (!waiter.entered) {
      waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
      LetIn();  // whoever waited behind it
    }
  }
  on_cancel = nullptr;
  if (waiter.entered) return Pass(this, use);
  absl::Status status = token->status();
  return status.ok() ? absl::DeadlineExceededError("the machine's cores did not become free in time") : status;
}

void MachineGate::Leave(Use use) {
  absl::MutexLock lock(&mu_);
  if (use == Use::kAlone) {
    alone_ = false;
  } else {
    --sharing_;
  }
  LetIn();
}

void MachineGate::LetIn() {
  while (!waiters_.empty() && !alone_) {
    Waiter* const next = waiters_.front();
    if (next->use == Use::kAlone) {
      if (sharing_ > 0) return;
      alone_ = true;
    } else {
      ++sharing_;
    }
    next->entered = true;
    waiters_.pop_front();
  }
}

}  // namespace inlay::server
