// Tensors in chunks, for Run: collects the inputs of a stream, sends outputs. Bounded by the model's own signature: a
// client can't make the server hold more than the module's inputs take.
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
  explicit InputCollector(const std::vector<runtime::NamedTensor>& signature);
  // INVALID_ARGUMENT naming the input: no such index, another type than the model's, more or less data than it has.
  absl::Status Add(const proto::TensorChunk& chunk);
  // All inputs are complete, or INVALID_ARGUMENT naming the first that is not.
  absl::Status Finish() const;
  std::vector<const void*> pointers() const;

 private:
  std::string Name(int index) const;

  const std::vector<runtime::NamedTensor>& signature_;
  std::vector<std::unique_ptr<AlignedBuffer>> buffers_;
  std::vector<int64_t> filled_;
};

proto::TensorType ToProto(const runtime::TensorType& type);

// Calls `send` with chunks of at most kChunkBytes, the type in the first, `last` in the last; stops where it returns
// false.
bool SendTensor(int index, const runtime::TensorType& type, const char* data,
                const std::function<bool(proto::TensorChunk chunk)>& send);

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_TENSOR_STREAM_H_
