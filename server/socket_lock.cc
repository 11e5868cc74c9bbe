#include "server/socket_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "core/base/file_system.h"

namespace inlay::server {

absl::StatusOr<std::unique_ptr<SocketLock>> SocketLock::Acquire(const std::string& socket_path) {
  const std::string directory = DirName(socket_path);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    absl::Status made = FileSystem::Default()->CreateDirectories(directory);
    if (!made.ok()) return made;
  }
  const std::string lock_path = absl::StrCat(socket_path, ".lock");
  const int fd = open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, "open", lock_path);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::UnavailableError(absl::StrCat("another inlayd listens on ", socket_path));
  }
  unlink(socket_path.c_str());
  return std::unique_ptr<SocketLock>(new SocketLock(socket_path, fd));
}

SocketLock::~SocketLock() {
  unlink(socket_path_.c_str());
  close(fd_);  // the lock file stays: removing it would let two daemons lock two files of one name
}

}  // namespace inlay::server
