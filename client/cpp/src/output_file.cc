#include "client/cpp/src/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/file_system.h"

namespace inlay {

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "write", path);
  return OutputFile(fd, path);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OutputFile::Write(absl::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", name_);
    data.remove_prefix(written);
    size_ += written;
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Truncate() {
  size_ = 0;
  if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0) return ErrnoStatus(errno, "write", name_);
  return absl::OkStatus();
}

}  // namespace inlay
