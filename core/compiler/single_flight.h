// SingleFlight: identical work under way at once is done once.
//
// The first caller of a key does the work in its own thread; those who come while it runs wait for the same result. The
// work gets a token of its own, cancelled only when every caller's token is: one client that goes away takes nothing
// from the others. A result is kept no longer than its flight. Thread-safe; outlives its callers.
#ifndef INLAY_CORE_COMPILER_SINGLE_FLIGHT_H_
#define INLAY_CORE_COMPILER_SINGLE_FLIGHT_H_

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/cancellation.h"
#include "core/base/digest.h"

namespace inlay::compiler {

template <typename T>
class SingleFlight {
 public:
  using Work = std::function<absl::StatusOr<T>(CancelToken* token)>;

  struct Result {
    absl::StatusOr<T> value;
    bool shared = false;  // somebody else did the work
  };

  Result Do(const Digest& key, CancelToken* caller, const Work& work) {
    std::shared_ptr<Flight> flight;
    bool leader = false;
    {
      absl::MutexLock lock(&mutex_);
      std::shared_ptr<Flight>& slot = flights_[key];
      // A flight that everybody has left is dying: its result would be CANCELLED.
      leader = slot == nullptr || slot->Abandoned();
      if (leader) slot = std::make_shared<Flight>();
      flight = slot;
      flight->Join();
    }
    // Copies of the pointer: the callback may outlive this call's interest in the flight, never the flight itself.
    auto on_cancel = caller->OnCancel([flight] { flight->Leave(); });
    if (leader) {
      absl::StatusOr<T> value = work(&flight->token);
      {
        absl::MutexLock lock(&mutex_);
        auto found = flights_.find(key);
        if (found != flights_.end() && found->second == flight) flights_.erase(found);
      }
      flight->Finish(value);
      return {std::move(value), false};
    }
    return {flight->Wait(caller), true};
  }

 private:
  struct Flight {
    CancelToken token;

    void Join() {
      absl::MutexLock lock(&mutex);
      ++waiting;
    }
    void Leave() {
      bool last;
      {
        absl::MutexLock lock(&mutex);
        last = --waiting == 0 && !value.has_value();
      }
      if (last) token.Cancel(absl::CancelledError("nobody waits for this result any more"));
    }
    bool Abandoned() {
      absl::MutexLock lock(&mutex);
      return waiting == 0;
    }
    void Finish(const absl::StatusOr<T>& result) {
      absl::MutexLock lock(&mutex);
      value.emplace(result);
    }
    // Wakes at the caller's cancellation too: its Leave() changes `waiting`, and the condition looks at its status.
    absl::StatusOr<T> Wait(CancelToken* caller) {
      absl::MutexLock lock(&mutex);
      auto ready = [&] { return value.has_value() || !caller->status().ok(); };
      while (!ready()) {
        absl::Time poll = absl::Now() + absl::Milliseconds(50);
        mutex.AwaitWithDeadline(absl::Condition(&ready), poll);
      }
      if (value.has_value()) return *value;
      return caller->status();
    }

    absl::Mutex mutex;
    int waiting ABSL_GUARDED_BY(mutex) = 0;
    std::optional<absl::StatusOr<T>> value ABSL_GUARDED_BY(mutex);
  };

  absl::Mutex mutex_;
  std::unordered_map<Digest, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_SINGLE_FLIGHT_H_
