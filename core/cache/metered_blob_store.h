// A BlobStore that counts what passes through it:
//   inlay_blob_store_requests_total{store, op, code}  op: get put find_missing commit; code: an absl code ("OK")
//   inlay_blob_store_bytes_total{store, op}           op: get put
//   inlay_blob_store_seconds{store, op}
#ifndef INLAY_CORE_CACHE_METERED_BLOB_STORE_H_
#define INLAY_CORE_CACHE_METERED_BLOB_STORE_H_

#include <string>

#include "core/cache/blob_store.h"
#include "core/cache/request_meter.h"
#include "core/metrics/registry.h"

namespace inlay::cache {

class MeteredBlobStore : public BlobStore {
 public:
  // `name` is the label "store". Neither pointer is owned; both outlive this.
  MeteredBlobStore(BlobStore* base, metrics::Registry* registry, const std::string& name);

  absl::StatusOr<std::vector<Digest>> FindMissing(absl::Span<const Digest> digests) override;
  absl::StatusOr<Blob> Get(const Digest& digest) override;
  absl::StatusOr<std::unique_ptr<BlobWriter>> NewWriter(const Digest& digest, int64_t size) override;
  void Touch(absl::Span<const Digest> digests) override { base_->Touch(digests); }
  BlobPin Pin(absl::Span<const Digest> digests) override { return base_->Pin(digests); }

 protected:
  absl::Status DoPut(const Digest& digest, absl::string_view data) override;

 private:
  BlobStore* const base_;
  RequestMeter get_, put_, find_missing_, commit_;
  metrics::Counter& bytes_read_;
  metrics::Counter& bytes_written_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_METERED_BLOB_STORE_H_
