// A BlobStore with a smaller and faster one in front of it: memory before disk, disk before a remote cache.
//
// `slow` is the truth (as in Buildbarn's read-caching): puts and FindMissing go to it, so that what is acknowledged is
// durable; `fast` only ever holds copies, its failures are ignored, and its hits are told to `slow` (Touch).
// Blobs larger than max_fast_bytes pass by the fast store.
#ifndef INLAY_CORE_CACHE_TIERED_BLOB_STORE_H_
#define INLAY_CORE_CACHE_TIERED_BLOB_STORE_H_

#include "core/cache/blob_store.h"

namespace inlay::cache {

class TieredBlobStore : public BlobStore {
 public:
  // Neither is owned; both outlive this.
  TieredBlobStore(BlobStore* fast, BlobStore* slow, int64_t max_fast_bytes = 1 << 20)
      : fast_(fast), slow_(slow), max_fast_bytes_(max_fast_bytes) {}

  absl::StatusOr<std::vector<Digest>> FindMissing(absl::Span<const Digest> digests) override {
    return slow_->FindMissing(digests);
  }
  absl::StatusOr<Blob> Get(const Digest& digest) override;
  absl::StatusOr<std::unique_ptr<BlobWriter>> NewWriter(const Digest& digest, int64_t size) override {
    return slow_->NewWriter(digest, size);
  }
  void Touch(absl::Span<const Digest> digests) override { slow_->Touch(digests); }
  BlobPin Pin(absl::Span<const Digest> digests) override { return slow_->Pin(digests); }

 protected:
  absl::Status DoPut(const Digest& digest, absl::string_view data) override;

 private:
  BlobStore* const fast_;
  BlobStore* const slow_;
  const int64_t max_fast_bytes_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_TIERED_BLOB_STORE_H_
