#include "core/base/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

int OpenRetrying(const std::string& path, int flags, int mode = 0) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Append(absl::string_view data) override {
    while (!data.empty()) {
      ssize_t n = write(fd_, data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "write", path_);
      data.remove_prefix(n);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    // Size is the only metadata that a reader of the new file needs, and fdatasync covers it.
    if (fdatasync(fd_) != 0) return ErrnoStatus(errno, "fsync", path_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0 && errno != EINTR) return ErrnoStatus(errno, "close", path_);
    return absl::OkStatus();
  }

 private:
  int fd_;
  std::string path_;
};

absl::StatusOr<FileContents> ReadToHeap(int fd, int64_t size, const std::string& path) {
  auto bytes = std::make_shared<std::string>();
  // Not resize(size): a file that grew or shrank since fstat is read to its end all the same.
  bytes->resize(size + 1);
  size_t used = 0;
  while (true) {
    if (used == bytes->size()) bytes->resize(bytes->size() * 2);
    ssize_t n = read(fd, &(*bytes)[used], bytes->size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path);
    if (n == 0) break;
    used += n;
  }
  bytes->resize(used);
  absl::string_view view = *bytes;
  return FileContents{view, std::move(bytes)};
}

absl::StatusOr<FileContents> Map(int fd, int64_t size, const std::string& path) {
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "mmap", path);
  madvise(address, size, MADV_SEQUENTIAL);
  std::shared_ptr<const void> owner(address, [size](const void* p) { munmap(const_cast<void*>(p), size); });
  return FileContents{{static_cast<const char*>(address), static_cast<size_t>(size)}, std::move(owner)};
}

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<FileContents> Read(const std::string& path, int64_t map_above) override {
    FileDescriptor fd(OpenRetrying(path, O_RDONLY));
    if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
    struct stat st;
    if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat", path);
    if (S_ISDIR(st.st_mode)) return ErrnoStatus(EISDIR, "read", path);
    if (st.st_size > 0 && st.st_size >= map_above) return Map(fd.get(), st.st_size, path);
    return ReadToHeap(fd.get(), st.st_size, path);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path, int mode) override {
    int fd = OpenRetrying(path, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (fd < 0) return ErrnoStatus(errno, "create", path);
    return std::make_unique<PosixWritableFile>(fd, path);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "rename", absl::StrCat(from, " to ", to));
    return absl::OkStatus();
  }

  absl::Status RenameNoReplace(const std::string& from, const std::string& to) override {
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return absl::OkStatus();
    if (errno == EINVAL || errno == ENOSYS) {  // a file system without the flag: a second name, then drop the first
      if (link(from.c_str(), to.c_str()) == 0) return Remove(from);
    }
    return ErrnoStatus(errno, "rename", absl::StrCat(from, " to ", to));
  }

  absl::Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, "remove", path);
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    FileDescriptor fd(OpenRetrying(path, O_RDONLY | O_DIRECTORY));
    if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
    if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "fsync", path);
    return absl::OkStatus();
  }

  absl::Status CreateDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return ErrnoStatus(error.value(), "create directory", path);
    return absl::OkStatus();
  }

  absl::Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoStatus(error.value(), "remove", path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    DIR* dir = opendir(directory.c_str());
    if (dir == nullptr) return ErrnoStatus(errno, "list", directory);
    std::vector<std::string> names;
    while (const dirent* entry = readdir(dir)) {
      absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    closedir(dir);
    return names;
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) return ErrnoStatus(errno, "stat", path);
    FileInfo info;
    info.size = st.st_size;
    info.inode = st.st_ino;
    info.modified = absl::TimeFromTimespec(st.st_mtim);
    info.is_directory = S_ISDIR(st.st_mode);
    return info;
  }
};

}  // namespace

FileSystem* FileSystem::Default() {
  static PosixFileSystem* const fs = new PosixFileSystem;
  return fs;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, FileSystem* fs) {
  INLAY_ASSIGN_OR_RETURN(FileContents contents, fs->Read(path));
  return std::string(contents.data);
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view data, FileSystem* fs) {
  static std::atomic<uint64_t> counter{0};
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid(), ".", counter++);
  auto write = [&]() -> absl::Status {
    INLAY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs->Create(temporary));
    INLAY_RETURN_IF_ERROR(file->Append(data));
    INLAY_RETURN_IF_ERROR(file->Sync());
    INLAY_RETURN_IF_ERROR(file->Close());
    return fs->Rename(temporary, path);
  };
  absl::Status status = write();
  if (!status.ok()) {
    fs->Remove(temporary).IgnoreError();
    return status;
  }
  return fs->SyncDirectory(DirName(path));
}

std::string DirName(absl::string_view path) {
  size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string JoinPath(absl::string_view a, absl::string_view b) {
  if (a.empty()) return std::string(b);
  return a.back() == '/' ? absl::StrCat(a, b) : absl::StrCat(a, "/", b);
}

absl::Status ErrnoStatus(int error, absl::string_view operation, absl::string_view path) {
  char buffer[128];
  std::string message = absl::StrCat(operation, " ", path, ": ", strerror_r(error, buffer, sizeof(buffer)));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<TempDir> TempDir::Create(absl::string_view prefix, const std::string& parent) {
  std::string base = parent;
  if (base.empty()) {
    const char* tmpdir = getenv("TMPDIR");
    base = tmpdir != nullptr && *tmpdir != '\0' ? tmpdir : "/tmp";
  }
  std::string path = JoinPath(base, absl::StrCat(prefix, ".XXXXXX"));
  if (mkdtemp(&path[0]) == nullptr) return ErrnoStatus(errno, "create directory", path);
  return TempDir(std::move(path));
}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempDir::~TempDir() {
  if (!path_.empty()) FileSystem::Default()->RemoveTree(path_).IgnoreError();
}

}  // namespace inlay
