#include "core/cache/tiered_blob_store.h"

#include "core/base/status_macros.h"

namespace inlay::cache {

absl::StatusOr<Blob> TieredBlobStore::Get(const Digest& digest) {
  absl::StatusOr<Blob> blob = fast_->Get(digest);
  if (blob.ok()) {
    slow_->Touch({digest});
    return blob;
  }
  INLAY_ASSIGN_OR_RETURN(blob, slow_->Get(digest));
  if (static_cast<int64_t>(blob->size()) <= max_fast_bytes_) {
    ForwardPut(*fast_, digest, blob->view()).IgnoreError();
  }
  return blob;
}

absl::Status TieredBlobStore::DoPut(const Digest& digest, absl::string_view data) {
  INLAY_RETURN_IF_ERROR(ForwardPut(*slow_, digest, data));
  if (static_cast<int64_t>(data.size()) <= max_fast_bytes_) ForwardPut(*fast_, digest, data).IgnoreError();
  return absl::OkStatus();
}

}  // namespace inlay::cache
