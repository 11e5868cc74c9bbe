#include "core/cache/disk/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "core/base/file_system.h"

namespace inlay::cache {

const char* NameOf(EntryKind kind) { return kind == EntryKind::kBlob ? "blob" : "action"; }
const char* DirectoryOf(EntryKind kind) { return kind == EntryKind::kBlob ? "blobs" : "actions"; }

std::string Layout::Entry(const EntryKey& key) const {
  const std::string hex = key.digest.hex();
  return absl::StrCat(root_, "/", DirectoryOf(key.kind), "/", hex.substr(0, 2), "/", hex);
}

absl::StatusOr<FileLock> FileLock::Take(const std::string& path, int operation) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  FileLock lock(fd);
  while (flock(fd, operation) != 0) {
    if (errno == EWOULDBLOCK) return absl::UnavailableError(absl::StrCat(path, " is locked"));
    if (errno != EINTR) return ErrnoStatus(errno, "lock", path);
  }
  return lock;
}

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) { return Take(path, LOCK_EX); }
absl::StatusOr<FileLock> FileLock::TryAcquire(const std::string& path) { return Take(path, LOCK_EX | LOCK_NB); }

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace inlay::cache
