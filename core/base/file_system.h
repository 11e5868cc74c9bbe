// FileSystem: the few file operations that must be right under crashes, behind an interface so that tests can make them
// fail or lose what was not synced (fault_injecting_file_system.h).
//
// Errors: NOT_FOUND (ENOENT), ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED (disk or quota full, no descriptors
// left), else INTERNAL; each message names the operation and the path.
// Threads: a FileSystem may be used by any; a WritableFile by one at a time.
#ifndef INLAY_CORE_BASE_FILE_SYSTEM_H_
#define INLAY_CORE_BASE_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace inlay {

// Bytes of a file, on the heap or mapped; they stay for as long as a copy of this does, also after the file is removed.
struct FileContents {
  absl::string_view data;
  std::shared_ptr<const void> owner;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; data that was not synced may be lost in a crash of the machine
  virtual absl::Status Append(absl::string_view data) = 0;
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

struct FileInfo {
  int64_t size = 0;
  uint64_t inode = 0;
  absl::Time modified;
  bool is_directory = false;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  static FileSystem* Default();  // POSIX; never destroyed

  // Files of `map_above` bytes or more are mapped (private, read-only), smaller ones are copied: a mapped file that
  // someone truncates in place raises SIGBUS, so map only files that nothing ever changes.
  virtual absl::StatusOr<FileContents> Read(const std::string& path, int64_t map_above = INT64_MAX) = 0;
  // A new file; ALREADY_EXISTS where there is one. Mode before umask.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path, int mode = 0644) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // ALREADY_EXISTS where `to` is there, whoever made it and when: of several that race one wins.
  virtual absl::Status RenameNoReplace(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // Makes creations, renames and removals in a directory durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // With its parents; OK where it is there.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  virtual absl::Status RemoveTree(const std::string& path) = 0;
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;  // names, unordered
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) = 0;
};

// The whole file as a string.
absl::StatusOr<std::string> ReadFile(const std::string& path, FileSystem* fs = FileSystem::Default());

// Replaces `path` so that any reader, and any crash, sees the old contents or the new, never a mixture; when it returns
// OK the new contents survive a power loss. The temporary file lies in the same directory.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view data,
                                 FileSystem* fs = FileSystem::Default());

std::string DirName(absl::string_view path);
std::string JoinPath(absl::string_view a, absl::string_view b);

// A status for errno `error`; see the codes above.
absl::Status ErrnoStatus(int error, absl::string_view operation, absl::string_view path);

// A fresh private directory (mode 0700), removed with all that is in it on destruction.
class TempDir {
 public:
  // Below `parent`, or $TMPDIR or /tmp where that is empty.
  static absl::StatusOr<TempDir> Create(absl::string_view prefix, const std::string& parent = "");
  TempDir(TempDir&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  explicit TempDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace inlay

#endif  // INLAY_CORE_BASE_FILE_SYSTEM_H_
