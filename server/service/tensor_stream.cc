#include "server/service/tensor_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace inlay::server {

AlignedBuffer::AlignedBuffer(int64_t bytes)
    : size_(bytes), data_(static_cast<char*>(std::aligned_alloc(64, (std::max<int64_t>(bytes, 1) + 63) / 64 * 64))) {}

InputCollector::InputCollector(const std::vector<runtime::NamedTensor>& signature, const runtime::OpenShapes& shapes)
    : signature_(signature), shapes_(shapes), buffers_(signature.size()), filled_(signature.size(), 0) {
  for (const runtime::NamedTensor& tensor : signature) types_.push_back(tensor.type);
}

std::string InputCollector::Name(int index) const {
  return absl::StrCat("input ", index, " ('", signature_[index].name, "', ", shapes_.ToString(signature_[index].type),
                      ")");
}

// The first chunk of an input: its open extents become what the client says, the rest is as the model has it.
absl::Status InputCollector::Begin(int index, const proto::TensorType& given) {
  runtime::TensorType& type = types_[index];
  const bool open = type.is_open();
  if (open && given.dims_size() == static_cast<int>(type.shape.size())) {
    for (int i = 0; i < given.dims_size(); ++i) {
      if (type.shape[i] < 0) type.shape[i] = given.dims(i).value();
    }
  }
  if (given.SerializeAsString() != ToProto(type, shapes_).SerializeAsString()) {
    return absl::InvalidArgumentError(absl::StrCat(Name(index), " was given as ", given.ShortDebugString()));
  }
  const int64_t bytes = type.NumBytes();
  if (open) {
    if (bytes < 0 || bytes > kMaxOpenInputBytes - open_bytes_) {
      return absl::InvalidArgumentError(absl::StrCat(Name(index), " was given as ", type.ToString(),
                                                     "; the inputs of a run may have ", kMaxOpenInputBytes, " bytes"));
    }
    open_bytes_ += bytes;
  }
  buffers_[index] = std::make_unique<AlignedBuffer>(bytes);
  if (buffers_[index]->data() == nullptr) return absl::ResourceExhaustedError("no memory for the inputs");
  return absl::OkStatus();
}

absl::Status InputCollector::Add(const proto::TensorChunk& chunk) {
  const int index = chunk.index();
  if (index < 0 || index >= static_cast<int>(signature_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor index ", index, ": the model has ", signature_.size(), " inputs"));
  }
  if (chunk.has_type()) {
    if (buffers_[index] != nullptr) return absl::InvalidArgumentError(absl::StrCat(Name(index), " was sent twice"));
    if (absl::Status status = Begin(index, chunk.type()); !status.ok()) return status;
  }
  if (buffers_[index] == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(Name(index), ": its first chunk lacks the type"));
  }
  const int64_t bytes = static_cast<int64_t>(chunk.data().size());
  if (bytes > buffers_[index]->size() - filled_[index]) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(index), " has ", buffers_[index]->size(), " bytes; more were sent"));
  }
  std::memcpy(buffers_[index]->data() + filled_[index], chunk.data().data(), bytes);
  filled_[index] += bytes;
  return absl::OkStatus();
}

absl::Status InputCollector::Finish() const {
  for (size_t i = 0; i < signature_.size(); ++i) {
    if (buffers_[i] == nullptr) return absl::InvalidArgumentError(absl::StrCat(Name(i), " is missing"));
    const int64_t needed = buffers_[i]->size();
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

proto::TensorType ToProto(const runtime::TensorType& type, const runtime::OpenShapes& shapes) {
  proto::TensorType result;
  result.set_dtype(static_cast<proto::DType>(type.dtype));
  for (int64_t extent : type.shape) {
    if (extent < 0 && shapes.Knows(type)) {
      result.add_dims()->set_symbol(shapes.extents[-1 - extent].name);
    } else {
      result.add_dims()->set_value(extent);
    }
  }
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
