#include "core/cache/disk/disk_cache.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cache/disk/action_file.h"
#include "core/cache/disk/disk_table.h"
#include "core/cache/disk/storage.h"

namespace inlay::cache {

class DiskCache::Impl {
 public:
  std::unique_ptr<Storage> storage;
  std::unique_ptr<TableFile> tables;
};

class DiskCache::Blobs : public BlobStore {
 public:
  explicit Blobs(Storage* storage) : storage_(storage) {}

  absl::StatusOr<std::vector<Digest>> FindMissing(absl::Span<const Digest> digests) override {
    std::vector<Digest> missing;
    absl::flat_hash_set<Digest> seen;
    for (const Digest& digest : digests) {
      if (!seen.insert(digest).second) continue;
      if (storage_->Exists(KeyOf(digest))) {
        storage_->Use(KeyOf(digest), -1);
      } else {
        missing.push_back(digest);
      }
    }
    return missing;
  }

  absl::StatusOr<Blob> Get(const Digest& digest) override {
    absl::StatusOr<Blob> blob = ReadVerified(digest);
    if (!absl::IsDataLoss(blob.status())) return blob;
    auto good = [&](absl::string_view data) { return Digest::Of(data) == digest; };
    if (storage_->SetAside(KeyOf(digest), good)) return blob;
    return ReadVerified(digest);  // somebody has put a good one, or removed the bad one
  }

  absl::StatusOr<std::unique_ptr<BlobWriter>> NewWriter(const Digest& digest, int64_t size) override {
    if (size < 0) return absl::InvalidArgumentError(absl::StrCat("blob ", digest.hex(), ": size ", size));
    INLAY_ASSIGN_OR_RETURN(auto publication, storage_->Publish(KeyOf(digest), size));
    return std::make_unique<Writer>(this, digest, size, std::move(publication));
  }

  void Touch(absl::Span<const Digest> digests) override {
    for (const Digest& digest : digests) storage_->Use(KeyOf(digest), -1);
  }

  BlobPin Pin(absl::Span<const Digest> digests) override {
    Touch(digests);  // all that other processes see of it
    return storage_->pins().Pin(digests);
  }

 protected:
  absl::Status DoPut(const Digest& digest, absl::string_view data) override {
    absl::Status status = AcknowledgeExisting(digest);
    if (!absl::IsNotFound(status)) return status;
    INLAY_ASSIGN_OR_RETURN(auto publication, storage_->Publish(KeyOf(digest), data.size()));
    INLAY_RETURN_IF_ERROR(publication->Append(data));
    return CommitNew(digest, publication.get());
  }

 private:
  class Writer : public BlobWriter {
   public:
    Writer(Blobs* blobs, const Digest& digest, int64_t size, std::unique_ptr<Storage::Publication> publication)
        : blobs_(blobs), digest_(digest), size_(size), publication_(std::move(publication)) {}

    absl::Status Append(absl::string_view data) override {
      INLAY_RETURN_IF_ERROR(status_);
      if (static_cast<int64_t>(data.size()) > size_ - written_) {
        status_ = absl::InvalidArgumentError(
            absl::StrCat("blob ", digest_.hex(), ": more than the ", size_, " bytes announced"));
        return status_;
      }
      hasher_.Update(data);
      written_ += data.size();
      status_ = publication_->Append(data);
      return status_;
    }

    absl::Status Commit() override {
      INLAY_RETURN_IF_ERROR(status_);
      status_ = absl::FailedPreconditionError(absl::StrCat("blob ", digest_.hex(), ": committed before"));
      if (written_ != size_) {
        return absl::InvalidArgumentError(
            absl::StrCat("blob ", digest_.hex(), ": ", written_, " bytes of the ", size_, " announced"));
      }
      const Digest actual = hasher_.Finish();
      if (actual != digest_) {
        return absl::InvalidArgumentError(
            absl::StrCat("blob ", digest_.hex(), ": its ", size_, " bytes have the SHA-256 ", actual.hex()));
      }
      return blobs_->CommitNew(digest_, publication_.get());
    }

   private:
    Blobs* const blobs_;
    const Digest digest_;
    const int64_t size_;
    int64_t written_ = 0;
    absl::Status status_;  // once not OK, what every later call answers
    Hasher hasher_;
    const std::unique_ptr<Storage::Publication> publication_;
  };

  static EntryKey KeyOf(const Digest& digest) { return {EntryKind::kBlob, digest}; }

  absl::StatusOr<Blob> ReadVerified(const Digest& digest) {
    INLAY_ASSIGN_OR_RETURN(FileContents contents, storage_->Read(KeyOf(digest)));
    const Digest actual = Digest::Of(contents.data);
    if (actual != digest) {
      return absl::DataLossError(absl::StrCat("blob ", digest.hex(), ": its ", contents.data.size(),
                                              " bytes on disk have the SHA-256 ", actual.hex()));
    }
    storage_->Use(KeyOf(digest), contents.data.size());
    return Blob(contents.data, std::move(contents.owner));
  }

  // OK where the blob is there, whole and durable; NOT_FOUND where it has to be written. Not just presence: else a Put
  // would acknowledge what a later Get finds damaged.
  absl::Status AcknowledgeExisting(const Digest& digest) {
    absl::Status status = Get(digest).status();
    if (status.ok()) return storage_->SyncEntry(KeyOf(digest));
    return absl::IsDataLoss(status) ? absl::NotFoundError("") : status;
  }

  absl::Status CommitNew(const Digest& digest, Storage::Publication* publication) {
    // Twice at most but for a race with evictions: whoever took the name put good bytes there, or bad ones that
    // AcknowledgeExisting has set aside.
    for (int attempt = 0; attempt < 10; ++attempt) {
      absl::Status status = publication->Commit(/*replace=*/false);
      if (!absl::IsAlreadyExists(status)) return status;
      status = AcknowledgeExisting(digest);
      if (!absl::IsNotFound(status)) return status;
    }
    return absl::UnavailableError(absl::StrCat("blob ", digest.hex(), ": comes and goes"));
  }

  Storage* const storage_;
};

class DiskCache::Actions : public ActionCache {
 public:
  explicit Actions(Storage* storage) : storage_(storage) {}

  absl::StatusOr<ActionResult> Lookup(const Digest& action) override {
    absl::StatusOr<ActionResult> result = ReadVerified(action);
    if (!absl::IsDataLoss(result.status())) return result;
    auto good = [&](absl::string_view data) { return DecodeActionFile(action, data).ok(); };
    if (storage_->SetAside(KeyOf(action), good)) return result;
    return ReadVerified(action);
  }

  absl::Status Update(const Digest& action, const ActionResult& result) override {
    const std::string file = EncodeActionFile(action, result);
    INLAY_ASSIGN_OR_RETURN(auto publication, storage_->Publish(KeyOf(action), file.size()));
    INLAY_RETURN_IF_ERROR(publication->Append(file));
    return publication->Commit(/*replace=*/true);
  }

 private:
  static EntryKey KeyOf(const Digest& action) { return {EntryKind::kAction, action}; }

  absl::StatusOr<ActionResult> ReadVerified(const Digest& action) {
    INLAY_ASSIGN_OR_RETURN(FileContents contents, storage_->Read(KeyOf(action)));
    INLAY_ASSIGN_OR_RETURN(ActionResult result, DecodeActionFile(action, contents.data));
    storage_->Use(KeyOf(action), contents.data.size());
    return result;
  }

  Storage* const storage_;
};

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Open(const DiskCacheOptions& options,
                                                           metrics::Registry* registry) {
  auto impl = std::make_unique<Impl>();
  INLAY_ASSIGN_OR_RETURN(impl->storage, Storage::Open(options, registry));
  INLAY_ASSIGN_OR_RETURN(impl->tables, TableFile::Open(impl->storage->layout()));
  return std::unique_ptr<DiskCache>(new DiskCache(std::move(impl)));
}

DiskCache::DiskCache(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)),
      blobs_(std::make_unique<Blobs>(impl_->storage.get())),
      actions_(std::make_unique<Actions>(impl_->storage.get())) {}
DiskCache::~DiskCache() = default;

BlobStore& DiskCache::blobs() { return *blobs_; }
ActionCache& DiskCache::actions() { return *actions_; }
std::unique_ptr<KeyValueTable> DiskCache::Table(const std::string& name) {
  return std::make_unique<DiskKeyValueTable>(impl_->tables.get(), name);
}
absl::Status DiskCache::Flush() { return impl_->storage->Flush(); }

}  // namespace inlay::cache
