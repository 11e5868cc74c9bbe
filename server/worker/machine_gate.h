// MachineGate: who may use the machine's cores. Compile actions share them; a measurement has them alone, so that no
// compile slows down what is being timed.
//
// First come, first served: a measurement waits for the actions that run, actions that arrive meanwhile wait for it,
// and what waits is let in in the order of arrival, so that neither kind starves.
//
// Threads: any. A Pass is moved, kept and dropped by one at a time; nobody who holds one may ask for another.
#ifndef INLAY_SERVER_WORKER_MACHINE_GATE_H_
#define INLAY_SERVER_WORKER_MACHINE_GATE_H_

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/cancellation.h"

namespace inlay::server {

class MachineGate {
 public:
  enum class Use { kShared, kAlone };

  // Leaves when it is destroyed.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), use_(other.use_) {}
    Pass& operator=(Pass&& other) noexcept {
      std::swap(gate_, other.gate_);
      std::swap(use_, other.use_);
      return *this;
    }
    ~Pass();

   private:
    friend class MachineGate;
    Pass(MachineGate* gate, Use use) : gate_(gate), use_(use) {}
    MachineGate* gate_ = nullptr;
    Use use_ = Use::kShared;
  };

  // Waits for its turn. The token's error where it is cancelled, or its deadline passes, first.
  absl::StatusOr<Pass> Enter(Use use, CancelToken* token);

 private:
  struct Waiter {
    Use use;
    bool entered = false;
    bool cancelled = false;
  };
  void Leave(Use use);
  void LetIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::deque<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  int sharing_ ABSL_GUARDED_BY(mu_) = 0;
  bool alone_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_MACHINE_GATE_H_
