// Watchdog: calls back once a measuring process has made no step for too long.
#ifndef INLAY_SERVER_MEASURING_WATCHDOG_H_
#define INLAY_SERVER_MEASURING_WATCHDOG_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/measuring/progress_page.h"

namespace inlay::server {

// From its construction to its destruction, which waits for a callback under way. `on_hang` is called at most once, in
// a thread of the watchdog.
class Watchdog {
 public:
  Watchdog(std::string progress_path, absl::Duration limit, std::function<void()> on_hang)
      : thread_([this, path = std::move(progress_path), limit, on_hang = std::move(on_hang)] {
          // Rarely: each look takes some microseconds of a core that the measurement may be using.
          const absl::Duration interval = std::min(limit / 8, absl::Seconds(1));
          uint64_t count = ProgressPage::Read(path).count;
          absl::Time changed = absl::Now();
          while (!done_.WaitForNotificationWithTimeout(interval)) {
            const uint64_t now = ProgressPage::Read(path).count;
            if (now != count) {
              count = now;
              changed = absl::Now();
            } else if (absl::Now() - changed > limit) {
              on_hang();
              return;
            }
          }
        }) {}
  ~Watchdog() {
    done_.Notify();
    thread_.join();
  }

 private:
  absl::Notification done_;
  std::thread thread_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_WATCHDOG_H_
