// A file that arrives in pieces: on a disk, or in memory.
#ifndef INLAY_CLIENT_CPP_SRC_OUTPUT_FILE_H_
#define INLAY_CLIENT_CPP_SRC_OUTPUT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay {

// A file that is written from its beginning. Closed when destroyed.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(const std::string& path);
  explicit OutputFile(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)), size_(other.size_) {}
  OutputFile& operator=(OutputFile&&) = delete;

  absl::Status Write(absl::string_view data);
  absl::Status Truncate();  // forgets what was written
  int fd() const { return fd_; }
  int64_t size() const { return size_; }

 private:
  int fd_;
  std::string name_;
  int64_t size_ = 0;
};

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_OUTPUT_FILE_H_
