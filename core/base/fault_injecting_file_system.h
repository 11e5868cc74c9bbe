// A FileSystem over real files that fails when told to, and can lose whatever a power cut would lose. For tests.
//
// Model of a power cut (that of LevelDB's fault injection test): data appended since the last Sync of a file is cut
// off; a file created, or a rename made, since the last SyncDirectory of its directory is undone (a rename's target
// that was overwritten is then gone, the worst case). Removals are kept.
//
// Threads: any. It must see every change: files changed behind its back are not undone.
#ifndef INLAY_CORE_BASE_FAULT_INJECTING_FILE_SYSTEM_H_
#define INLAY_CORE_BASE_FAULT_INJECTING_FILE_SYSTEM_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/file_system.h"

namespace inlay {

class FaultInjectingFileSystem : public FileSystem {
 public:
  explicit FaultInjectingFileSystem(FileSystem* base = FileSystem::Default()) : base_(base) {}

  // Called before each operation ("read", "create", "append", "sync", "close", "rename", "remove", "syncdir", "mkdir",
  // "list", "stat") with its path; an error is what the operation then answers, without doing anything. An "append"
  // that fails has written half of its data, as a full disk does.
  using Hook = std::function<absl::Status(absl::string_view operation, absl::string_view path)>;
  void SetHook(Hook hook);
  // As a power cut and a restart would leave the files.
  absl::Status DropUnsynced();
  int64_t operations() const;  // so far, failed ones included

  absl::StatusOr<FileContents> Read(const std::string& path, int64_t map_above) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path, int mode) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RenameNoReplace(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;

 private:
  friend class FaultInjectingFile;
  struct FileState {
    int64_t size = 0;
    int64_t synced = 0;
    bool entry_synced = false;  // its name, by SyncDirectory
  };

  void Renamed(const std::string& from, const std::string& to);
  absl::Status Before(absl::string_view operation, absl::string_view path);

  FileSystem* const base_;
  mutable absl::Mutex mu_;
  Hook hook_ ABSL_GUARDED_BY(mu_);
  int64_t operations_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<FileState>> files_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay

#endif  // INLAY_CORE_BASE_FAULT_INJECTING_FILE_SYSTEM_H_
