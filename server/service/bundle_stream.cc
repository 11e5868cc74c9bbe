#include "server/service/bundle_stream.h"

#include <algorithm>
#include <string>

#include "core/base/file_system.h"
#include "core/base/status_macros.h"

namespace inlay::server {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

}  // namespace

absl::Status SendBundle(const artifact::LinkToolchain& toolchain, const artifact::BundleRequest& request,
                        grpc::ServerWriter<proto::ExportLibraryChunk>* writer) {
  INLAY_ASSIGN_OR_RETURN(const std::vector<artifact::BundleFile> files, artifact::AssembleBundle(toolchain, request));
  for (const artifact::BundleFile& file : files) {
    INLAY_ASSIGN_OR_RETURN(const FileContents contents, FileSystem::Default()->Read(file.path, kChunkBytes));
    size_t at = 0;
    do {  // an empty file is a chunk too
      proto::ExportLibraryChunk chunk;
      if (at == 0) {
        chunk.set_file(file.name);
        chunk.set_executable(file.executable);
      }
      chunk.set_data(std::string(contents.data.substr(at, kChunkBytes)));
      if (!writer->Write(chunk)) return absl::CancelledError("the client is gone");
      at += kChunkBytes;
    } while (at < contents.data.size());
  }
  return absl::OkStatus();
}

}  // namespace inlay::server
