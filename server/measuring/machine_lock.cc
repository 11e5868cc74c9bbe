#include "server/measuring/machine_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"

namespace inlay::server {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(10);
// After a wait in vain.
constexpr absl::Duration kNoWaiting = absl::Minutes(10);

// Read-only, which is enough to lock it: a file of another user's serves as well. Made where it is not there. No link
// is followed and nothing but a file with one name is locked, so that nobody makes a daemon touch a file of its user's.
absl::StatusOr<int> OpenFile(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = -1;
  // Not both in one: the kernel refuses O_CREAT for others' files in /tmp. Twice, for another may make it in between.
  for (int i = 0; i < 2 && fd < 0; ++i) {
    fd = open(path.c_str(), kFlags);
    if (fd < 0 && errno == ENOENT) fd = open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0644);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink != 1) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a plain file with one name"));
  }
  return fd;
}

// False: not by `deadline`, or cancelled.
bool LockBy(int fd, absl::Time deadline, CancelToken* token) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (!token->status().ok() || absl::Now() >= deadline) return false;
    absl::SleepFor(kPoll);
  }
  return true;
}

}  // namespace

MachineLock::Hold::Hold(Hold&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

MachineLock::Hold& MachineLock::Hold::operator=(Hold&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

MachineLock::Hold::~Hold() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<MachineLock::Turn> MachineLock::Wait(CancelToken* token) {
  Turn turn;
  if (path_ == "none") return turn;
  const absl::StatusOr<int> queue = OpenFile(absl::StrCat(path_, ".next"));
  const absl::StatusOr<int> file = OpenFile(path_);
  const Hold in_line(queue.value_or(-1));
  Hold hold(file.value_or(-1));
  if (!queue.ok() || !file.ok()) {
    turn.note = absl::StrCat("measured without asking other daemons of this machine: ",
                             (file.ok() ? queue : file).status().message());
    return turn;
  }
  const absl::Time now = absl::Now();
  const absl::Time deadline = now - gave_up_ < kNoWaiting ? now : now + patience_;
  if (LockBy(*queue, deadline, token) && LockBy(*file, deadline, token)) {
    gave_up_ = absl::InfinitePast();
    turn.hold = std::move(hold);
    return turn;
  }
  INLAY_RETURN_IF_ERROR(token->status());
  if (deadline > now) gave_up_ = absl::Now();
  turn.note = absl::StrCat("measured beside another daemon of this machine, which held ", path_, " for more than ",
                           absl::FormatDuration(patience_), ": times may be off");
  return turn;
}

}  // namespace inlay::server
