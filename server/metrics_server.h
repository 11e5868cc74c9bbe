// The page that Prometheus reads: GET /metrics over plain HTTP on a loopback address; GET /healthz says "ok".
#ifndef INLAY_SERVER_METRICS_SERVER_H_
#define INLAY_SERVER_METRICS_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/metrics/registry.h"

namespace inlay::server {

class MetricsServer {
 public:
  // "127.0.0.1:port" (port 0: any; see address()). UNAVAILABLE where it can't be bound. `registry` outlives the server.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              const metrics::Registry* registry);
  ~MetricsServer();
  const std::string& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_METRICS_SERVER_H_
