// BlobStore in memory, bounded, least recently used out first. For tests, and as the fast tier before a disk.
//
// Bytes are hashed once, when they come in (BlobStore::Put, BlobWriter::Commit), and shared afterwards as immutable
// Blobs; "verified on every read" is about media that lose or change bits, and memory of this process is trusted.
#ifndef INLAY_CORE_CACHE_MEMORY_BLOB_STORE_H_
#define INLAY_CORE_CACHE_MEMORY_BLOB_STORE_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/cache/blob_store.h"
#include "core/cache/lru_map.h"
#include "core/cache/pin_set.h"

namespace inlay::cache {

class MemoryBlobStore : public BlobStore {
 public:
  explicit MemoryBlobStore(int64_t max_bytes = INT64_MAX) : pins_(PinSet::Create()), blobs_(max_bytes) {}

  absl::StatusOr<std::vector<Digest>> FindMissing(absl::Span<const Digest> digests) override;
  absl::StatusOr<Blob> Get(const Digest& digest) override;
  absl::StatusOr<std::unique_ptr<BlobWriter>> NewWriter(const Digest& digest, int64_t size) override;
  BlobPin Pin(absl::Span<const Digest> digests) override { return pins_->Pin(digests); }
  // Without a copy, for bytes that were verified already (read from another store).
  absl::Status PutVerified(const Digest& digest, Blob blob);

  int64_t bytes() const;
  int64_t count() const;

 protected:
  absl::Status DoPut(const Digest& digest, absl::string_view data) override;

 private:
  const std::shared_ptr<PinSet> pins_;
  mutable absl::Mutex mu_;
  LruMap<Digest, Blob> blobs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_MEMORY_BLOB_STORE_H_
