// BlobStore (CAS): bytes under their SHA-256. One interface for the disk, memory, a remote cache, and the decorators
// (tiered, metered) that wrap another store.
//
// Errors, the same for every store:
//   NOT_FOUND           the store has no such blob
//   DATA_LOSS           it had, but what it holds is not what was put: set aside, and NOT_FOUND from now on.
//                       Whoever can make the blob again treats both as a miss.
//   INVALID_ARGUMENT    data is not what its digest or size says
//   RESOURCE_EXHAUSTED  no room (disk full, or more than the bound of the store); what was there is unharmed
//   UNAVAILABLE         the store cannot be reached
// OK from Put or Commit means that the blob survives the death of the process and, in a store that is durable, of the
// machine.
//
// Threads: a BlobStore may be used by any; a BlobWriter by one at a time.
// To add a store: derive, and instantiate testing/blob_store_suite.h for it.
#ifndef INLAY_CORE_CACHE_BLOB_STORE_H_
#define INLAY_CORE_CACHE_BLOB_STORE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/digest.h"
#include "core/cache/blob.h"

namespace inlay::cache {

// A blob that arrives in pieces, in bounded memory. Destroying it before Commit leaves no trace.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  // INVALID_ARGUMENT as soon as more comes than was announced.
  virtual absl::Status Append(absl::string_view data) = 0;
  // INVALID_ARGUMENT where the data is not that of the digest. Nothing may follow.
  virtual absl::Status Commit() = 0;
};

// While it lives, the store does not evict the blobs that it was made for.
using BlobPin = std::shared_ptr<const void>;

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Those that the store has not, in the order asked, each once. Presence only: the bytes are verified when they are
  // read. Counts as a use of those that are there.
  virtual absl::StatusOr<std::vector<Digest>> FindMissing(absl::Span<const Digest> digests) = 0;
  absl::StatusOr<bool> Contains(const Digest& digest);

  virtual absl::StatusOr<Blob> Get(const Digest& digest) = 0;

  absl::StatusOr<Digest> Put(absl::string_view data);
  // For data that came with a digest: INVALID_ARGUMENT unless it fits.
  absl::Status Put(const Digest& digest, absl::string_view data);

  virtual absl::StatusOr<std::unique_ptr<BlobWriter>> NewWriter(const Digest& digest, int64_t size) = 0;

  // Says that somebody used them, for eviction's order: what a tier before this store does at its own hits, so that the
  // hottest blobs are not the first to go. Cheap; no answer.
  virtual void Touch(absl::Span<const Digest> digests) {}

  // Present or not yet: a pinned digest is not evicted once it is put. A store that never evicts answers null.
  virtual BlobPin Pin(absl::Span<const Digest> digests) { return nullptr; }

 protected:
  // `digest` is that of `data`, already checked.
  virtual absl::Status DoPut(const Digest& digest, absl::string_view data) = 0;
  // For decorators: DoPut of another store.
  static absl::Status ForwardPut(BlobStore& store, const Digest& digest, absl::string_view data) {
    return store.DoPut(digest, data);
  }
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_BLOB_STORE_H_
