// The names in a cache directory (FORMAT.md), and its lock. Plain values; any thread.
#ifndef INLAY_CORE_CACHE_DISK_LAYOUT_H_
#define INLAY_CORE_CACHE_DISK_LAYOUT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/digest.h"

namespace inlay::cache {

enum class EntryKind : int { kBlob = 0, kAction = 1 };
inline constexpr EntryKind kEntryKinds[] = {EntryKind::kBlob, EntryKind::kAction};

struct EntryKey {
  EntryKind kind;
  Digest digest;
  bool operator==(const EntryKey& o) const { return kind == o.kind && digest == o.digest; }
  template <typename H>
  friend H AbslHashValue(H h, const EntryKey& k) {
    return H::combine(std::move(h), static_cast<int>(k.kind), k.digest);
  }
};

const char* NameOf(EntryKind kind);       // "blob": for messages and metrics
const char* DirectoryOf(EntryKind kind);  // "blobs"
// What a file of so many bytes takes.
inline int64_t DiskSize(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

class Layout {
 public:
  explicit Layout(std::string root) : root_(std::move(root)) {}
  const std::string& root() const { return root_; }
  std::string FormatFile() const { return root_ + "/FORMAT"; }
  std::string LockFile() const { return root_ + "/lock"; }
  std::string Index() const { return root_ + "/index.db"; }
  std::string Tables() const { return root_ + "/tables.db"; }
  std::string Temporary() const { return root_ + "/tmp"; }
  std::string Quarantine() const { return root_ + "/quarantine"; }
  std::string Kind(EntryKind kind) const { return root_ + "/" + DirectoryOf(kind); }
  std::string Shard(const EntryKey& key) const { return Kind(key.kind) + "/" + key.digest.hex().substr(0, 2); }
  std::string Entry(const EntryKey& key) const;

 private:
  std::string root_;
};

// An exclusive flock, released on destruction. Excludes other threads as well as other processes.
class FileLock {
 public:
  static absl::StatusOr<FileLock> Acquire(const std::string& path);
  // UNAVAILABLE where somebody has it.
  static absl::StatusOr<FileLock> TryAcquire(const std::string& path);
  FileLock(FileLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  static absl::StatusOr<FileLock> Take(const std::string& path, int operation);
  int fd_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_LAYOUT_H_
