#include "core/cache/blob_store.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::cache {

absl::StatusOr<bool> BlobStore::Contains(const Digest& digest) {
  INLAY_ASSIGN_OR_RETURN(std::vector<Digest> missing, FindMissing({digest}));
  return missing.empty();
}

absl::StatusOr<Digest> BlobStore::Put(absl::string_view data) {
  Digest digest = Digest::Of(data);
  INLAY_RETURN_IF_ERROR(DoPut(digest, data));
  return digest;
}

absl::Status BlobStore::Put(const Digest& digest, absl::string_view data) {
  Digest actual = Digest::Of(data);
  if (actual != digest) {
    return absl::InvalidArgumentError(
        absl::StrCat("blob ", digest.hex(), ": its ", data.size(), " bytes have the SHA-256 ", actual.hex()));
  }
  return DoPut(digest, data);
}

}  // namespace inlay::cache
