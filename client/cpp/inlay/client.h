// Client: a connection to one compile server.
//
// Thread-safe. Calls that find the server full or restarting are retried after the delay that it asks for, as long as
// there is time.
#ifndef INLAY_CLIENT_H_
#define INLAY_CLIENT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "inlay/config.h"
#include "inlay/error.h"

namespace inlay {

// "upload" (bytes), "queued", "normalise", "partition", "compile", "plan".
struct Progress {
  std::string phase;
  int64_t done = 0, total = 0;
  std::string detail;
};

// Stops calls that were given it, from any thread, and all that are given it later. The server stops the work.
class Cancellation {
 public:
  Cancellation();
  ~Cancellation();
  void Cancel();

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct CallOptions {
  absl::Duration timeout = absl::InfiniteDuration();
  std::shared_ptr<Cancellation> cancellation;  // may be null
};

struct ServerInfo {
  struct Backend {
    std::string name, version;
    bool on_request = false;  // used only where a configuration names it
    std::string unusable;     // why it can't compile for the server's own machine; "": it can
  };
  std::string version;
  std::vector<Backend> backends;
  Target host = "llvm";  // the server's own machine
  int num_workers = 0;
  int64_t max_message_bytes = 0;
  int pid = 0;
};

class Client {
 public:
  // `address`: "unix:/path/to/socket" or "host:port"; "": $INLAY_SERVER, else the socket of this user's own daemon
  // (which the command `inlay` starts; this client starts none). The connection is made when first used. `token`, where
  // the server asks for one, is sent with every call. UNAVAILABLE: no address is given and no daemon of this user's
  // runs.
  static absl::StatusOr<std::shared_ptr<Client>> Connect(absl::string_view address = "", absl::string_view token = "");
  ~Client();

  const std::string& address() const;
  // Whether the server is on this machine: it listens on a Unix socket.
  bool is_local() const;

  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options = {});
  // The configuration as the server completes it; the errors that a compile with it would give. No work is done.
  absl::StatusOr<CompilationConfig> CheckConfig(const CompilationConfig& config, const CallOptions& options = {});
  absl::StatusOr<std::map<std::string, double>> Stats(const CallOptions& options = {});

  struct Impl;
  Impl& impl() { return *impl_; }
  explicit Client(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay

#endif  // INLAY_CLIENT_H_
