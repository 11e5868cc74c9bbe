// The gRPC service of proto/compile_service.proto: checks and moves data, and leaves the work to core.
//
// Synchronous: gRPC's threads run the calls, and every method may be called from several at once. Nothing that a client
// sends is executed: it names code (by digest) that this server's workers made.
#ifndef INLAY_SERVER_SERVICE_COMPILE_SERVICE_H_
#define INLAY_SERVER_SERVICE_COMPILE_SERVICE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/artifact/linker.h"
#include "core/cache/blob_store.h"
#include "core/compiler/pipeline.h"
#include "proto/compile_service.grpc.pb.h"
#include "server/service/executable_store.h"
#include "server/service/handle_table.h"
#include "server/service/request_watcher.h"

namespace inlay::server {

class CompileServiceImpl final : public proto::CompileService::Service {
 public:
  // What the service works with; main owns all of it, and it outlives the service.
  struct Dependencies {
    compiler::Pipeline* pipeline = nullptr;
    cache::BlobStore* blobs = nullptr;
    cache::KeyValueTable* published = nullptr;  // the pipeline's (PipelineTables)
    HandleTable* handles = nullptr;
    const artifact::LinkToolchain* toolchain = nullptr;  // null: ExportLibrary is UNIMPLEMENTED on this server
    std::string run_program;                             // for bundles; "": there is none
    std::function<std::map<std::string, double>()> stats;
    std::function<void()> drain;  // begins a graceful stop; returns at once
    proto::GetServerInfoResponse info;
    std::string scratch_dir;  // exists
    int queue_limit = 128;
    bool jit_enabled = true;
    bool trust_client_kernels = false;
  };

  explicit CompileServiceImpl(Dependencies dependencies);

  // From now on Compile, ExportLibrary and Jit answer UNAVAILABLE; what runs goes on.
  void StopAccepting() { draining_ = true; }
  int in_flight() const { return in_flight_; }
  absl::Time last_request() const { return absl::FromUnixNanos(last_request_ns_.load()); }

  grpc::Status GetServerInfo(grpc::ServerContext*, const proto::GetServerInfoRequest*,
                             proto::GetServerInfoResponse*) override;
  grpc::Status CheckConfig(grpc::ServerContext*, const proto::CheckConfigRequest*,
                           proto::CheckConfigResponse*) override;
  grpc::Status FindMissingBlobs(grpc::ServerContext*, const proto::FindMissingBlobsRequest*,
                                proto::FindMissingBlobsResponse*) override;
  grpc::Status UploadBlobs(grpc::ServerContext*, grpc::ServerReader<proto::UploadBlobsRequest>*,
                           proto::UploadBlobsResponse*) override;
  grpc::Status Compile(grpc::ServerContext*, const proto::CompileRequest*,
                       grpc::ServerWriter<proto::CompileEvent>*) override;
  grpc::Status ExportLibrary(grpc::ServerContext*, const proto::ExportLibraryRequest*,
                             grpc::ServerWriter<proto::ExportLibraryChunk>*) override;
  grpc::Status Jit(grpc::ServerContext*, const proto::JitRequest*, proto::JitResponse*) override;
  grpc::Status Run(grpc::ServerContext*, grpc::ServerReaderWriter<proto::RunResponse, proto::RunRequest>*) override;
  grpc::Status Unload(grpc::ServerContext*, const proto::UnloadRequest*, proto::UnloadResponse*) override;
  grpc::Status ListHandles(grpc::ServerContext*, const proto::ListHandlesRequest*,
                           proto::ListHandlesResponse*) override;
  grpc::Status GetStats(grpc::ServerContext*, const proto::GetStatsRequest*, proto::GetStatsResponse*) override;
  grpc::Status Drain(grpc::ServerContext*, const proto::DrainRequest*, proto::DrainResponse*) override;

 private:
  // Runtime crt: a tar in place of a library.
  grpc::Status ExportModelLibrary(const LoadedExecutable& loaded, const proto::ExportLibraryRequest& request,
                                  grpc::ServerWriter<proto::ExportLibraryChunk>* writer);

  class Admission;  // counts a call that does work; refuses past the limit and while draining

  Dependencies deps_;
  ExecutableStore executables_;
  RequestWatcher watcher_;
  std::atomic<bool> draining_{false};
  std::atomic<int> in_flight_{0};
  std::atomic<int64_t> last_request_ns_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_COMPILE_SERVICE_H_
