#include "core/cache/metered_blob_store.h"

namespace inlay::cache {
namespace {

constexpr char kPrefix[] = "inlay_blob_store";

metrics::Counter& Bytes(metrics::Registry* registry, const std::string& store, const std::string& op) {
  return registry->GetCounter("inlay_blob_store_bytes_total", "Bytes of blobs read or written",
                              {{"store", store}, {"op", op}});
}

class MeteredBlobWriter : public BlobWriter {
 public:
  MeteredBlobWriter(std::unique_ptr<BlobWriter> base, RequestMeter* commit, metrics::Counter* bytes)
      : base_(std::move(base)), commit_(commit), bytes_(bytes) {}

  absl::Status Append(absl::string_view data) override {
    absl::Status status = base_->Append(data);
    if (status.ok()) appended_ += data.size();
    return status;
  }
  absl::Status Commit() override {
    const absl::Time start = absl::Now();
    absl::Status status = base_->Commit();
    commit_->Record(status.code(), start);
    if (status.ok()) bytes_->Increment(appended_);
    return status;
  }

 private:
  const std::unique_ptr<BlobWriter> base_;
  RequestMeter* const commit_;
  metrics::Counter* const bytes_;
  int64_t appended_ = 0;
};

}  // namespace

MeteredBlobStore::MeteredBlobStore(BlobStore* base, metrics::Registry* registry, const std::string& name)
    : base_(base),
      get_(registry, kPrefix, name, "get"),
      put_(registry, kPrefix, name, "put"),
      find_missing_(registry, kPrefix, name, "find_missing"),
      commit_(registry, kPrefix, name, "commit"),
      bytes_read_(Bytes(registry, name, "get")),
      bytes_written_(Bytes(registry, name, "put")) {}

absl::StatusOr<std::vector<Digest>> MeteredBlobStore::FindMissing(absl::Span<const Digest> digests) {
  const absl::Time start = absl::Now();
  absl::StatusOr<std::vector<Digest>> missing = base_->FindMissing(digests);
  find_missing_.Record(missing.status().code(), start);
  return missing;
}

absl::StatusOr<Blob> MeteredBlobStore::Get(const Digest& digest) {
  const absl::Time start = absl::Now();
  absl::StatusOr<Blob> blob = base_->Get(digest);
  get_.Record(blob.status().code(), start);
  if (blob.ok()) bytes_read_.Increment(blob->size());
  return blob;
}

absl::Status MeteredBlobStore::DoPut(const Digest& digest, absl::string_view data) {
  const absl::Time start = absl::Now();
  absl::Status status = ForwardPut(*base_, digest, data);
  put_.Record(status.code(), start);
  if (status.ok()) bytes_written_.Increment(data.size());
  return status;
}

absl::StatusOr<std::unique_ptr<BlobWriter>> MeteredBlobStore::NewWriter(const Digest& digest, int64_t size) {
  absl::StatusOr<std::unique_ptr<BlobWriter>> writer = base_->NewWriter(digest, size);
  if (!writer.ok()) return writer.status();
  return std::make_unique<MeteredBlobWriter>(*std::move(writer), &commit_, &bytes_written_);
}

}  // namespace inlay::cache
