// The RPCs behind Client. gRPC's headers stay in client.cc.
#ifndef INLAY_CLIENT_CPP_SRC_CLIENT_IMPL_H_
#define INLAY_CLIENT_CPP_SRC_CLIENT_IMPL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/src/ir_module_impl.h"
#include "client/cpp/src/module_objects.h"
#include "core/base/cancellation.h"
#include "inlay/client.h"
#include "inlay/executable.h"
#include "proto/compile_service.pb.h"

namespace inlay {

struct Cancellation::Impl {
  CancelToken token;
};

// One call of the user's: all RPCs under it end at the deadline, or when it is cancelled.
struct CallContext {
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<Cancellation> cancellation;

  CallContext() = default;
  CallContext(const CallOptions& options)  // NOLINT
      : deadline(absl::Now() + options.timeout), cancellation(options.cancellation) {}
};

struct Client::Impl {
  class Connection;  // the channel

  using OnProgress = std::function<void(const Progress&)>;
  using OnPass = std::function<void(const proto::PassTrace&)>;
  using OnChunk = std::function<absl::Status(const proto::ExportLibraryChunk&)>;

  Impl(std::string address, std::string token);
  ~Impl();

  // Asked once.
  absl::StatusOr<proto::GetServerInfoResponse> Info(const CallContext& context);
  absl::StatusOr<proto::CompilationConfig> Check(const proto::CompilationConfig& config, const CallContext& context);
  absl::StatusOr<std::map<std::string, double>> Stats(const CallContext& context);
  // How many bytes the server lacked. The configuration is checked before the first of them is sent.
  absl::StatusOr<int64_t> Upload(const IRModule::Impl& module, const OnProgress& progress, const CallContext& context);
  // Uploads first.
  absl::StatusOr<proto::CompileEvent::Result> Compile(const IRModule::Impl& module, const OnProgress& progress,
                                                      const OnPass& on_pass, int64_t* uploaded,
                                                      const CallContext& context);
  absl::Status Export(const proto::ExportLibraryRequest& request, const OnChunk& on_chunk, const CallContext& context);
  absl::StatusOr<proto::JitResponse> Jit(const proto::JitRequest& request, const CallContext& context);
  absl::StatusOr<std::vector<Tensor>> Run(const std::string& handle, const std::vector<Tensor>& inputs,
                                          size_t num_outputs, const CallContext& context);
  void Unload(const std::string& handle);

  const std::string address;
  const std::unique_ptr<Connection> connection;
};

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_CLIENT_IMPL_H_
