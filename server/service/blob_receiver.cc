#include "server/service/blob_receiver.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/digest.h"
#include "core/base/status_macros.h"

namespace inlay::server {
namespace {

constexpr int64_t kMaxBlobBytes = int64_t{1} << 40;
// Blobs whose data has come and which wait for the disk, while the next ones come: a file system writes the journal of
// several at once.
constexpr size_t kMostCommitting = 8;

}  // namespace

absl::Status BlobReceiver::Receive(const proto::UploadBlobsRequest& message) {
  if (!message.digest().empty()) INLAY_RETURN_IF_ERROR(Begin(message));
  if (writer_ == nullptr && !skipping_) {
    return absl::InvalidArgumentError("an upload begins with a digest and a size");
  }
  total_bytes_ += static_cast<int64_t>(message.data().size());
  left_ -= static_cast<int64_t>(message.data().size());
  if (left_ < 0) return absl::InvalidArgumentError(absl::StrCat("blob ", name_, ": more data than its size"));
  if (skipping_) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(Annotate(writer_->Append(message.data()), absl::StrCat("blob ", name_)));
  if (left_ > 0) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(LeaveCommitting(kMostCommitting - 1));
  committing_.push_back(std::async(std::launch::async, [writer = std::move(writer_), name = name_] {
    return Annotate(writer->Commit(), absl::StrCat("blob ", name));
  }));
  skipping_ = true;  // complete: nothing may follow but the next blob
  return absl::OkStatus();
}

absl::Status BlobReceiver::Finish() {
  INLAY_RETURN_IF_ERROR(CheckComplete());
  return LeaveCommitting(0);
}

absl::Status BlobReceiver::Begin(const proto::UploadBlobsRequest& message) {
  INLAY_RETURN_IF_ERROR(CheckComplete());
  INLAY_ASSIGN_OR_RETURN(Digest digest, Digest::FromBytes(message.digest()));
  name_ = digest.short_hex();
  if (message.size() < 0 || message.size() > kMaxBlobBytes) {
    return absl::InvalidArgumentError(absl::StrCat("blob ", name_, ": size ", message.size()));
  }
  left_ = message.size();
  ++num_blobs_;
  INLAY_ASSIGN_OR_RETURN(std::vector<Digest> missing, blobs_->FindMissing({digest}));
  skipping_ = missing.empty();
  writer_ = nullptr;
  if (!skipping_) {
    INLAY_ASSIGN_OR_RETURN(writer_, blobs_->NewWriter(digest, message.size()));
  }
  return absl::OkStatus();
}

absl::Status BlobReceiver::CheckComplete() const {
  if (left_ > 0) return absl::InvalidArgumentError(absl::StrCat("blob ", name_, " ends ", left_, " bytes early"));
  return absl::OkStatus();
}

absl::Status BlobReceiver::LeaveCommitting(size_t most) {
  while (committing_.size() > most) {
    const absl::Status status = committing_.front().get();
    committing_.pop_front();
    INLAY_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace inlay::server
