// Reads Executables, their libraries and their parameters out of the BlobStore, for export and for the JIT.
// Every digest is verified on the way (by the store on each read from disk). Thread-safe.
#ifndef INLAY_SERVER_SERVICE_EXECUTABLE_STORE_H_
#define INLAY_SERVER_SERVICE_EXECUTABLE_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/artifact/param_source.h"
#include "core/cache/blob_store.h"
#include "proto/artifact.pb.h"

namespace inlay::server {

struct LoadedExecutable {
  Digest digest;
  proto::Executable executable;
  std::vector<proto::StaticLibrary> libraries;
  cache::BlobPin pin;  // keeps its blobs from eviction while this lives

  std::vector<const proto::StaticLibrary*> library_pointers() const;
  int64_t param_bytes() const;
};

class ExecutableStore {
 public:
  explicit ExecutableStore(cache::BlobStore* blobs) : blobs_(blobs) {}

  // INVALID_ARGUMENT: not a digest. NOT_FOUND: no such Executable here (compile again). FAILED_PRECONDITION: a library
  // or a parameter of it is gone; names it.
  absl::StatusOr<std::unique_ptr<LoadedExecutable>> Load(const std::string& digest_bytes) const;
  absl::StatusOr<cache::Blob> Param(const Digest& digest) const;
  artifact::ParamSource param_source() const;

 private:
  cache::BlobStore* blobs_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_EXECUTABLE_STORE_H_
