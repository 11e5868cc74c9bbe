// BlobReceiver: the blobs of one UploadBlobs stream, into a BlobStore.
#ifndef INLAY_SERVER_SERVICE_BLOB_RECEIVER_H_
#define INLAY_SERVER_SERVICE_BLOB_RECEIVER_H_

#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/cache/blob_store.h"
#include "proto/compile_service.pb.h"

namespace inlay::server {

class BlobReceiver {
 public:
  // The store is not owned.
  explicit BlobReceiver(cache::BlobStore* blobs) : blobs_(blobs) {}

  // Messages in their order. INVALID_ARGUMENT of a blob whose data is not what was announced comes with a later message
  // or from Finish.
  absl::Status Receive(const proto::UploadBlobsRequest& message);
  // Once the stream has ended; then all its blobs are in the store.
  absl::Status Finish();

  int blobs() const { return num_blobs_; }
  int64_t bytes() const { return total_bytes_; }

 private:
  absl::Status Begin(const proto::UploadBlobsRequest& message);
  absl::Status CheckComplete() const;
  absl::Status LeaveCommitting(size_t most);

  cache::BlobStore* blobs_;
  std::unique_ptr<cache::BlobWriter> writer_;
  std::deque<std::future<absl::Status>> committing_;
  bool skipping_ = false;  // this blob is there already (or just became so)
  std::string name_;
  int64_t left_ = 0;
  int num_blobs_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_BLOB_RECEIVER_H_
