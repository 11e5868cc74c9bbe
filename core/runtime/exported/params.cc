#include "core/runtime/exported/params.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace inlay::runtime {

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FailedPrecondition("cannot open " + path + ": " + std::strerror(errno));
  struct stat info = {};
  MappedFile file;
  if (fstat(fd, &info) == 0 && info.st_size > 0) {
    void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data != MAP_FAILED) {
      file.data_ = static_cast<const char*>(data);
      file.size_ = info.st_size;
    }
  }
  close(fd);
  if (file.data_ == nullptr) return InvalidArgument("cannot map " + path + ", or it is empty");
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

StatusOr<std::vector<const void*>> FindSafetensors(const std::string& path, const MappedFile& file,
                                                   const std::vector<NamedTensor>& params) {
  auto bad = [&](const std::string& what) { return InvalidArgument(path + ": " + what); };
  uint64_t header_bytes = 0;
  if (file.size() < 8) return bad("not a safetensors file");
  std::memcpy(&header_bytes, file.data(), 8);
  if (header_bytes > file.size() - 8) return bad("not a safetensors file, or cut off");
  const char* data = file.data() + 8 + header_bytes;
  const uint64_t data_bytes = file.size() - 8 - header_bytes;
  std::vector<const void*> addresses;
  try {
    const nlohmann::json header = nlohmann::json::parse(file.data() + 8, data);
    for (const NamedTensor& param : params) {
      const auto it = header.find(param.name);
      if (it == header.end()) return bad("no tensor '" + param.name + "'");
      if (it->at("dtype").get<std::string>() != SafetensorsName(param.type.dtype) ||
          it->at("shape").get<std::vector<int64_t>>() != param.type.shape) {
        return bad("tensor '" + param.name + "' is " + it->at("dtype").get<std::string>() + it->at("shape").dump() +
                   ", the library wants " + param.type.ToString());
      }
      const auto range = it->at("data_offsets").get<std::vector<uint64_t>>();
      if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes ||
          range[1] - range[0] != static_cast<uint64_t>(param.type.NumBytes())) {
        return bad("tensor '" + param.name + "' lies outside the file, or has a wrong size");
      }
      addresses.push_back(data + range[0]);
    }
  } catch (const std::exception& e) {
    return bad(std::string("its header is damaged: ") + e.what());
  }
  return addresses;
}

void DropPages(const void* data, int64_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace inlay::runtime
