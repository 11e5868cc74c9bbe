#include "server/metrics_server.h"

#include <httplib.h>

#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace inlay::server {

struct MetricsServer::Impl {
  httplib::Server http;
  std::thread thread;
  std::string address;
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() {
  impl_->http.stop();
  impl_->thread.join();
}

const std::string& MetricsServer::address() const { return impl_->address; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    const metrics::Registry* registry) {
  auto impl = std::make_unique<Impl>();
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat("metrics address '", address, "' is not HOST:PORT"));
  }
  const std::string host = address.substr(0, colon);
  impl->http.Get("/metrics", [registry](const httplib::Request&, httplib::Response& response) {
    response.set_content(registry->PrometheusText(), "text/plain; version=0.0.4");
  });
  impl->http.Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("ok\n", "text/plain");
  });
  if (port == 0) {
    port = impl->http.bind_to_any_port(host);
  } else if (!impl->http.bind_to_port(host, port)) {
    port = -1;
  }
  if (port < 0) return absl::UnavailableError(absl::StrCat("metrics: cannot listen on ", address));
  impl->address = absl::StrCat(host, ":", port);
  impl->thread = std::thread([server = &impl->http] { server->listen_after_bind(); });
  while (!impl->http.is_running()) std::this_thread::yield();  // else stop() before the loop began is lost
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

}  // namespace inlay::server
