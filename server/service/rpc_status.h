// absl::Status to grpc::Status at the edge of the RPC, and back-pressure that says when to come again.
#ifndef INLAY_SERVER_SERVICE_RPC_STATUS_H_
#define INLAY_SERVER_SERVICE_RPC_STATUS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace inlay::server {

// gRPC puts the message into a header block that peers bound to 8 KiB: longer ones are cut, and say so.
inline constexpr size_t kMaxStatusMessage = 4096;

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxStatusMessage) {
    message.resize(kMaxStatusMessage - 16);
    message += " ... (cut)";
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

// RESOURCE_EXHAUSTED or UNAVAILABLE, with the trailing metadata "retry-delay-ms".
inline grpc::Status RetryLater(grpc::ServerContext* context, const absl::Status& status, int delay_ms) {
  context->AddTrailingMetadata("retry-delay-ms", std::to_string(delay_ms));
  return ToGrpc(status);
}

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_RPC_STATUS_H_
