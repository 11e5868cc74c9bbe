// Clock: where code that expires or times things asks for the time, so that tests can decide it.
// Any thread. FakeClock moves only when it is told to.
#ifndef INLAY_CORE_BASE_CLOCK_H_
#define INLAY_CORE_BASE_CLOCK_H_

#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace inlay {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // The machine's clock; never destroyed.
  static Clock* Real();
};

class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time now = absl::FromUnixSeconds(1000000000)) : nanos_(absl::ToUnixNanos(now)) {}
  absl::Time Now() const override { return absl::FromUnixNanos(nanos_.load()); }
  void Advance(absl::Duration d) { nanos_ += absl::ToInt64Nanoseconds(d); }

 private:
  std::atomic<int64_t> nanos_;
};

inline Clock* Clock::Real() {
  class RealClock : public Clock {
   public:
    absl::Time Now() const override { return absl::Now(); }
  };
  static RealClock* const clock = new RealClock;
  return clock;
}

}  // namespace inlay

#endif  // INLAY_CORE_BASE_CLOCK_H_
