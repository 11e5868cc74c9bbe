// Reads Executables, their libraries and their parameters out of the BlobStore, for export and for the JIT.
// Every digest is verified on the way (by the store on each read from disk), and only what a Pipeline on this cache
// published is taken: clients may upload any blob, and none of their code is to be loaded. Thread-safe.
#ifndef INLAY_SERVER_SERVICE_EXECUTABLE_STORE_H_
#define INLAY_SERVER_SERVICE_EXECUTABLE_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/artifact/param_source.h"
#include "core/cache/blob_store.h"
#include "core/cache/key_value_table.h"
#include "proto/artifact.pb.h"

namespace inlay::server {

struct LoadedExecutable {
  Digest digest;
  proto::Executable executable;
  std::vector<proto::StaticLibrary> libraries;
  cache::BlobPin pin;  // keeps its blobs from eviction while this lives

  std::vector<const proto::StaticLibrary*> library_pointers() const;
  int64_t param_bytes = 0;
};

class ExecutableStore {
 public:
  ExecutableStore(cache::BlobStore* blobs, cache::KeyValueTable* published) : blobs_(blobs), published_(published) {}

  // INVALID_ARGUMENT: not a digest. NOT_FOUND: this server compiled no such Executable (compile again).
  // FAILED_PRECONDITION: a library or a parameter of it is gone; names it.
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(const std::string& digest_bytes) const;
  absl::StatusOr<cache::Blob> Param(const Digest& digest) const;
  artifact::ParamSource param_source() const;

 private:
  cache::BlobStore* blobs_;
  cache::KeyValueTable* published_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_EXECUTABLE_STORE_H_
