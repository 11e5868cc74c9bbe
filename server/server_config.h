// The daemon's configuration: defaults, then the file of --config, then flags (proto/server_config.proto).
#ifndef INLAY_SERVER_SERVER_CONFIG_H_
#define INLAY_SERVER_SERVER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/server_config.pb.h"

namespace inlay::server {

// Every field is set in the result. INVALID_ARGUMENT names the field, or the line of the file. `num_cores` is the
// default of `workers`.
absl::StatusOr<proto::ServerConfig> CompleteServerConfig(proto::ServerConfig config, int num_cores);

// Text format. NOT_FOUND: no such file.
absl::StatusOr<proto::ServerConfig> ReadServerConfig(const std::string& path);

// Sets what was given on the command line (absl::ParseCommandLine has run).
void ApplyFlags(proto::ServerConfig* config);

// Whether an address may be bound without TLS and without a token: a Unix socket or a loopback address with a port.
absl::Status CheckListenAddress(const std::string& address);

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVER_CONFIG_H_
