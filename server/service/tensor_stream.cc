#include "server/service/tensor_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace inlay::server {

AlignedBuffer::AlignedBuffer(int64_t bytes)
    : size_(bytes), data_(static_cast<char*>(std::aligned_alloc(64, (std::max<int64_t>(bytes, 1) + 63) / 64 * 64))) {}

InputCollector::InputCollector(const std::vector<runtime::NamedTensor>& signature)
    : signature_(signature), buffers_(signature.size()), filled_(signature.size(), 0) {}

std::string InputCollector::Name(int index) const {
  return absl::StrCat("input ", index, " ('", signature_[index].name, "', ", signature_[index].type.ToString(), ")");
}

absl::Status InputCollector::Add(const proto::TensorChunk& chunk) {
  const int index = chunk.index();
  if (index < 0 || index >= static_cast<int>(signature_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor index ", index, ": the model has ", signature_.size(), " inputs"));
  }
  const runtime::TensorType& type = signature_[index].type;
  if (chunk.has_type()) {
    proto::TensorType expected = ToProto(type);
    if (chunk.type().SerializeAsString() != expected.SerializeAsString()) {
      return absl::InvalidArgumentError(absl::StrCat(Name(index), " was given as ", chunk.type().ShortDebugString()));
    }
    if (buffers_[index] != nullptr) return absl::InvalidArgumentError(absl::StrCat(Name(index), " was sent twice"));
    buffers_[index] = std::make_unique<AlignedBuffer>(type.NumBytes());
    if (buffers_[index]->data() == nullptr) return absl::ResourceExhaustedError("no memory for the inputs");
  }
  if (buffers_[index] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(Name(index), ": its first chunk lacks the type"));
  }
  const int64_t bytes = static_cast<int64_t>(chunk.data().size());
  if (bytes > buffers_[index]->size() - filled_[index]) {
    return absl::InvalidArgumentError(absl::StrCat(Name(index), " has ", type.NumBytes(), " bytes; more were sent"));
  }
  std::memcpy(buffers_[index]->data() + filled_[index], chunk.data().data(), bytes);
  filled_[index] += bytes;
  return absl::OkStatus();
}

absl::Status InputCollector::Finish() const {
  for (size_t i = 0; i < signature_.size(); ++i) {
    const int64_t needed = signature_[i].type.NumBytes();
    if (buffers_[i] == nullptr) return absl::InvalidArgumentError(absl::StrCat(Name(i), " is missing"));
    if (filled_[i] != needed) {
      return absl::InvalidArgumentError(absl::StrCat(Name(i), " has ", needed, " bytes; ", filled_[i], " were sent"));
    }
  }
  return absl::OkStatus();
}

std::vector<const void*> InputCollector::pointers() const {
  std::vector<const void*> pointers;
  for (const auto& buffer : buffers_) pointers.push_back(buffer->data());
  return pointers;
}

proto::TensorType ToProto(const runtime::TensorType& type) {
  proto::TensorType result;
  result.set_dtype(static_cast<proto::DType>(type.dtype));
  for (int64_t extent : type.shape) result.add_dims()->set_value(extent);
  return result;
}

bool SendTensor(int index, const runtime::TensorType& type, const char* data,
                const std::function<bool(proto::TensorChunk chunk)>& send) {
  const int64_t total = type.NumBytes();
  int64_t sent = 0;
  do {
    proto::TensorChunk chunk;
    chunk.set_index(index);
    if (sent == 0) *chunk.mutable_type() = ToProto(type);
    const int64_t bytes = std::min(kChunkBytes, total - sent);
    chunk.set_data(data + sent, bytes);
    sent += bytes;
    chunk.set_last(sent == total);
    if (!send(std::move(chunk))) return false;
  } while (sent < total);
  return true;
}

}  // namespace inlay::server
