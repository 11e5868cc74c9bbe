// MachineLock: daemons of one machine take turns to measure. An advisory lock (flock) on a file that all of them open:
// the kernel lets go of it when its holder dies, however. The file is neither read nor written.
//
// Who waits holds a second lock, so that the holder, when it wants to measure again, lines up behind: daemons that
// measure much alternate.
//
// In /tmp anyone may hold the lock: so a wait is bounded, and after one that was in vain nobody waits for a while.
// Threads: one at a time.
#ifndef INLAY_SERVER_MEASURING_MACHINE_LOCK_H_
#define INLAY_SERVER_MEASURING_MACHINE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/cancellation.h"

namespace inlay::server {

class MachineLock {
 public:
  // An open file; closing it lets go of the lock.
  class Hold {
   public:
    Hold() = default;
    explicit Hold(int fd) : fd_(fd) {}
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;
    ~Hold();
    bool held() const { return fd_ >= 0; }

   private:
    int fd_ = -1;
  };
  struct Turn {
    Hold hold;
    std::string note;  // why there is no lock: held by somebody for too long, or a file that is none to lock
  };

  // `path`: "none" means that nobody is waited for.
  MachineLock(std::string path, absl::Duration patience) : path_(std::move(path)), patience_(patience) {}

  // Waits for its turn; goes on without one, and says so, where that does not come in time. An error only where the
  // token was cancelled meanwhile.
  absl::StatusOr<Turn> Wait(CancelToken* token);

 private:
  const std::string path_;
  const absl::Duration patience_;
  absl::Time gave_up_ = absl::InfinitePast();
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_MACHINE_LOCK_H_
