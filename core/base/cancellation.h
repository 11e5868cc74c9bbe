// Cancellation: how a request that nobody waits for any more, or whose deadline has passed, stops the work under it.
//
// A CancelToken is shared (shared_ptr) between whoever may cancel and whoever works; every method may be called from
// any thread. Work either polls `status()` between steps or registers a callback (to kill a worker, to wake a wait).
#ifndef INLAY_CORE_BASE_CANCELLATION_H_
#define INLAY_CORE_BASE_CANCELLATION_H_

#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace inlay {

class CancelToken {
 public:
  explicit CancelToken(absl::Time deadline = absl::InfiniteFuture()) : deadline_(deadline) {}

  // The first call decides the reason (CANCELLED or DEADLINE_EXCEEDED as a rule) and runs the callbacks in its thread.
  void Cancel(absl::Status reason = absl::CancelledError("cancelled"));

  // OK, the reason, or DEADLINE_EXCEEDED once the deadline has passed.
  absl::Status status() const;
  absl::Time deadline() const { return deadline_; }

  // Runs `callback` when cancelled (at once, here, if that has happened). It is not called after the returned object is
  // destroyed, which waits for a callback that is running. A deadline alone calls nothing: bound your waits by
  // deadline().
  class Registration {
   public:
    Registration(CancelToken* token, int64_t id) : token_(token), id_(id) {}
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    CancelToken* token_;
    int64_t id_;
  };
  [[nodiscard]] std::unique_ptr<Registration> OnCancel(std::function<void()> callback);

 private:
  const absl::Time deadline_;
  mutable absl::Mutex mutex_;
  absl::Mutex callback_mutex_;  // held while callbacks run; taken before mutex_
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace inlay

#endif  // INLAY_CORE_BASE_CANCELLATION_H_
