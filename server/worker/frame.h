// What goes over a worker's pipes: each message as its length (4 bytes, little-endian) and its bytes.
#ifndef INLAY_SERVER_WORKER_FRAME_H_
#define INLAY_SERVER_WORKER_FRAME_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace inlay::server {

inline constexpr uint32_t kMaxFrameBytes = 1u << 30;
inline constexpr size_t kFrameHeaderBytes = 4;

inline std::string Frame(absl::string_view message) {
  const uint32_t size = static_cast<uint32_t>(message.size());
  std::string frame;
  frame.reserve(kFrameHeaderBytes + message.size());
  for (int shift = 0; shift < 32; shift += 8) frame.push_back(static_cast<char>(size >> shift));
  frame.append(message.data(), message.size());
  return frame;
}

// Of the 4 bytes at `header`. DATA_LOSS: no length that Frame would write.
inline absl::StatusOr<uint32_t> FrameSize(const char* header) {
  uint32_t size = 0;
  for (int i = 0; i < 4; ++i) size |= static_cast<uint32_t>(static_cast<unsigned char>(header[i])) << (8 * i);
  if (size > kMaxFrameBytes) return absl::DataLossError(absl::StrCat("a message of ", size, " bytes"));
  return size;
}

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_FRAME_H_
