// Tensors in chunks, for Run: collects the inputs of a stream, sends outputs. Bounded by the model's own signature: a
// client can't make the server hold more than the module's inputs take; where these are open, than kMaxOpenInputBytes,
// and memory is taken only for what has come.
#ifndef INLAY_SERVER_SERVICE_TENSOR_STREAM_H_
#define INLAY_SERVER_SERVICE_TENSOR_STREAM_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/runtime/plan.h"
#include "proto/compile_service.pb.h"

namespace inlay::server {

inline constexpr int64_t kChunkBytes = 1 << 20;
inline constexpr int64_t kMaxOpenInputBytes = int64_t{4} << 30;  // all inputs of a run together

// 64-byte aligned, as kernels like their arguments best.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(int64_t bytes);
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* p) const { ::free(p); }
  };
  int64_t size_;
  std::unique_ptr<char, Free> data_;
};

class InputCollector {
 public:
  // `shapes`: what of the signature is open. Both must outlive this.
  InputCollector(const std::vector<runtime::NamedTensor>& signature, const runtime::OpenShapes& shapes);
  // INVALID_ARGUMENT naming the input: no such index, another type than the model's, more or less data than it has.
  absl::Status Add(const proto::TensorChunk& chunk);
  // All inputs are complete, or INVALID_ARGUMENT naming the first that is not.
  absl::Status Finish() const;
  std::vector<const void*> pointers() const;
  const std::vector<runtime::TensorType>& types() const { return types_; }  // of complete inputs: as they came

 private:
  std::string Name(int index) const;
  absl::Status Begin(int index, const proto::TensorType& given);

  const std::vector<runtime::NamedTensor>& signature_;
  const runtime::OpenShapes& shapes_;
  std::vector<runtime::TensorType> types_;
  int64_t open_bytes_ = 0;
  std::vector<std::unique_ptr<AlignedBuffer>> buffers_;
  std::vector<int64_t> filled_;
};

// An open extent is a symbol.
proto::TensorType ToProto(const runtime::TensorType& type, const runtime::OpenShapes& shapes = {});

// Calls `send` with chunks of at most kChunkBytes, the type in the first, `last` in the last; stops where it returns
// false.
bool SendTensor(int index, const runtime::TensorType& type, const char* data,
                const std::function<bool(proto::TensorChunk chunk)>& send);

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_TENSOR_STREAM_H_
