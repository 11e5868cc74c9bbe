// Daemon: everything of one inlayd process, wired. Main makes one; tests may too.
#ifndef INLAY_SERVER_DAEMON_H_
#define INLAY_SERVER_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/server_config.pb.h"

namespace inlay::server {

class Daemon {
 public:
  struct Paths {
    // Empty: beside this executable, as deploy/setup.sh installs them, then where Bazel builds them.
    std::string worker_binary;
    std::string measurer_binary;
    std::vector<std::string> runtime_dirs;
    std::vector<std::string> library_dirs;
  };

  // Opens the cache, starts workers and asks them for their backends, binds every address. The daemon then serves.
  // UNAVAILABLE: an address is taken (by a live daemon, where it is a socket; a dead one's socket file is replaced).
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const proto::ServerConfig& config, Paths paths);
  ~Daemon();

  const std::vector<std::string>& addresses() const;

  // Serves until a stop signal, Drain, or idle_exit_s; then refuses new work, finishes what is under way (for at most a
  // minute) and returns.
  void RunUntilStopped();

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_DAEMON_H_
