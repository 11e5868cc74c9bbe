// Frames: how messages travel over the pipe between the daemon and a worker: a length (4 bytes, little-endian), then so
// many bytes of a serialized message.
#ifndef INLAY_SERVER_WORKER_FRAME_H_
#define INLAY_SERVER_WORKER_FRAME_H_

#include <cstdint>
#include <string>

#include "absl/base/internal/endian.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message_lite.h"

namespace inlay::server {

inline constexpr size_t kFrameHeader = 4;
// A length beyond this is a stream out of step, or a worker gone mad: never allocated for.
inline constexpr uint32_t kMaxFrame = 1u << 30;

inline absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxFrame) return absl::ResourceExhaustedError(absl::StrCat("a message of ", size, " bytes"));
  std::string frame(kFrameHeader, '\0');
  absl::little_endian::Store32(&frame[0], static_cast<uint32_t>(size));
  if (!message.AppendToString(&frame)) return absl::InternalError("a message that cannot be serialized");
  return frame;
}

// Of the body that follows.
inline absl::StatusOr<uint32_t> DecodeFrameHeader(const char* header) {
  const uint32_t size = absl::little_endian::Load32(header);
  if (size > kMaxFrame) return absl::DataLossError(absl::StrCat("a frame of ", size, " bytes"));
  return size;
}

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_FRAME_H_
