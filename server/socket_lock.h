// Which daemon owns a Unix socket path. A lock file beside the socket is held for as long as the daemon lives (the
// kernel lets go of it when the process dies, however), so a socket file whose lock is free is a dead daemon's and is
// removed.
#ifndef INLAY_SERVER_SOCKET_LOCK_H_
#define INLAY_SERVER_SOCKET_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace inlay::server {

class SocketLock {
 public:
  // UNAVAILABLE: a live daemon has it. Makes the directory (mode 0700 where it was not there).
  static absl::StatusOr<std::unique_ptr<SocketLock>> Acquire(const std::string& socket_path);
  ~SocketLock();  // removes the socket file

 private:
  SocketLock(std::string socket_path, int fd) : socket_path_(std::move(socket_path)), fd_(fd) {}
  std::string socket_path_;
  int fd_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_SOCKET_LOCK_H_
