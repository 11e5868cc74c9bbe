// A bundle (core/artifact/bundle.h) as chunks of ExportLibrary.
#ifndef INLAY_SERVER_SERVICE_BUNDLE_STREAM_H_
#define INLAY_SERVER_SERVICE_BUNDLE_STREAM_H_

#include <grpcpp/grpcpp.h>

#include "core/artifact/bundle.h"
#include "proto/compile_service.grpc.pb.h"

namespace inlay::server {

// Assembles and sends it. CANCELLED where nobody listens any more; AssembleBundle's errors.
absl::Status SendBundle(const artifact::LinkToolchain& toolchain, const artifact::BundleRequest& request,
                        grpc::ServerWriter<proto::ExportLibraryChunk>* writer);

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_BUNDLE_STREAM_H_
