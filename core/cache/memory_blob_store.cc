#include "core/cache/memory_blob_store.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::cache {
namespace {

class MemoryBlobWriter : public BlobWriter {
 public:
  MemoryBlobWriter(MemoryBlobStore* store, const Digest& digest, int64_t size)
      : store_(store), digest_(digest), size_(size) {}

  absl::Status Append(absl::string_view data) override {
    if (static_cast<int64_t>(bytes_.size() + data.size()) > size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("blob ", digest_.hex(), ": more than the ", size_, " bytes announced"));
    }
    bytes_.append(data.data(), data.size());
    return absl::OkStatus();
  }

  absl::Status Commit() override {
    if (static_cast<int64_t>(bytes_.size()) != size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("blob ", digest_.hex(), ": ", bytes_.size(), " bytes of the ", size_, " announced"));
    }
    return store_->Put(digest_, bytes_);
  }

 private:
  MemoryBlobStore* const store_;
  const Digest digest_;
  const int64_t size_;
  std::string bytes_;
};

}  // namespace

absl::StatusOr<std::vector<Digest>> MemoryBlobStore::FindMissing(absl::Span<const Digest> digests) {
  std::vector<Digest> missing;
  absl::flat_hash_set<Digest> seen;
  absl::MutexLock lock(&mu_);
  for (const Digest& digest : digests) {
    if (blobs_.Find(digest) == nullptr && seen.insert(digest).second) missing.push_back(digest);
  }
  return missing;
}

absl::StatusOr<Blob> MemoryBlobStore::Get(const Digest& digest) {
  absl::MutexLock lock(&mu_);
  const Blob* blob = blobs_.Find(digest);
  if (blob == nullptr) return absl::NotFoundError(absl::StrCat("blob ", digest.hex(), " is not in memory"));
  return *blob;
}

absl::Status MemoryBlobStore::DoPut(const Digest& digest, absl::string_view data) {
  return PutVerified(digest, Blob(std::string(data)));
}

absl::Status MemoryBlobStore::PutVerified(const Digest& digest, Blob blob) {
  const int64_t size = blob.size();
  absl::MutexLock lock(&mu_);
  auto pinned = [this](const Digest& d) { return pins_->Contains(d); };
  if (blobs_.Find(digest) != nullptr) return absl::OkStatus();
  if (!blobs_.Insert(digest, std::move(blob), size, pinned)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("blob ", digest.hex(), ": no room in memory for ", size, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlobWriter>> MemoryBlobStore::NewWriter(const Digest& digest, int64_t size) {
  if (size < 0) return absl::InvalidArgumentError(absl::StrCat("blob ", digest.hex(), ": size ", size));
  return std::make_unique<MemoryBlobWriter>(this, digest, size);
}

int64_t MemoryBlobStore::bytes() const {
  absl::MutexLock lock(&mu_);
  return blobs_.bytes();
}

int64_t MemoryBlobStore::count() const {
  absl::MutexLock lock(&mu_);
  return blobs_.count();
}

}  // namespace inlay::cache
