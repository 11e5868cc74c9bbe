#include "core/base/fault_injecting_file_system.h"

#include <unistd.h>

#include <cerrno>

#include "core/base/status_macros.h"

namespace inlay {

class FaultInjectingFile : public WritableFile {
 public:
  FaultInjectingFile(FaultInjectingFileSystem* fs, std::string path, std::unique_ptr<WritableFile> base,
                     std::shared_ptr<FaultInjectingFileSystem::FileState> state)
      : fs_(fs), path_(std::move(path)), base_(std::move(base)), state_(std::move(state)) {}

  absl::Status Append(absl::string_view data) override {
    absl::Status injected = fs_->Before("append", path_);
    if (!injected.ok()) data = data.substr(0, data.size() / 2);
    INLAY_RETURN_IF_ERROR(base_->Append(data));
    absl::MutexLock lock(&fs_->mu_);
    state_->size += data.size();
    return injected;
  }

  absl::Status Sync() override {
    INLAY_RETURN_IF_ERROR(fs_->Before("sync", path_));
    absl::MutexLock lock(&fs_->mu_);
    state_->synced = state_->size;
    return absl::OkStatus();  // the machine does not really crash: no need to wait for the disk
  }

  absl::Status Close() override {
    INLAY_RETURN_IF_ERROR(fs_->Before("close", path_));
    return base_->Close();
  }

 private:
  FaultInjectingFileSystem* const fs_;
  const std::string path_;
  const std::unique_ptr<WritableFile> base_;
  const std::shared_ptr<FaultInjectingFileSystem::FileState> state_;
};

void FaultInjectingFileSystem::SetHook(Hook hook) {
  absl::MutexLock lock(&mu_);
  hook_ = std::move(hook);
}

int64_t FaultInjectingFileSystem::operations() const {
  absl::MutexLock lock(&mu_);
  return operations_;
}

absl::Status FaultInjectingFileSystem::Before(absl::string_view operation, absl::string_view path) {
  Hook hook;
  {
    absl::MutexLock lock(&mu_);
    ++operations_;
    hook = hook_;
  }
  return hook ? hook(operation, path) : absl::OkStatus();
}

absl::Status FaultInjectingFileSystem::DropUnsynced() {
  absl::MutexLock lock(&mu_);
  for (auto it = files_.begin(); it != files_.end();) {
    const FileState& state = *it->second;
    if (!state.entry_synced) {
      base_->Remove(it->first).IgnoreError();
      it = files_.erase(it);
      continue;
    }
    if (state.synced < state.size && truncate(it->first.c_str(), state.synced) != 0) {
      return ErrnoStatus(errno, "truncate", it->first);
    }
    it->second->size = state.synced;
    ++it;
  }
  return absl::OkStatus();
}

absl::StatusOr<FileContents> FaultInjectingFileSystem::Read(const std::string& path, int64_t map_above) {
  INLAY_RETURN_IF_ERROR(Before("read", path));
  return base_->Read(path, map_above);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultInjectingFileSystem::Create(const std::string& path, int mode) {
  INLAY_RETURN_IF_ERROR(Before("create", path));
  // Owner-writable whatever was asked for: DropUnsynced truncates.
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_->Create(path, mode | 0200));
  auto state = std::make_shared<FileState>();
  {
    absl::MutexLock lock(&mu_);
    files_[path] = state;
  }
  return std::make_unique<FaultInjectingFile>(this, path, std::move(file), std::move(state));
}

absl::Status FaultInjectingFileSystem::Rename(const std::string& from, const std::string& to) {
  INLAY_RETURN_IF_ERROR(Before("rename", from));
  INLAY_RETURN_IF_ERROR(base_->Rename(from, to));
  Renamed(from, to);
  return absl::OkStatus();
}

absl::Status FaultInjectingFileSystem::RenameNoReplace(const std::string& from, const std::string& to) {
  INLAY_RETURN_IF_ERROR(Before("rename", from));
  INLAY_RETURN_IF_ERROR(base_->RenameNoReplace(from, to));
  Renamed(from, to);
  return absl::OkStatus();
}

void FaultInjectingFileSystem::Renamed(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&mu_);
  files_.erase(to);
  auto it = files_.find(from);
  if (it == files_.end()) return;  // made before this object: taken as durable
  it->second->entry_synced = false;
  files_[to] = std::move(it->second);
  files_.erase(from);
}

absl::Status FaultInjectingFileSystem::Remove(const std::string& path) {
  INLAY_RETURN_IF_ERROR(Before("remove", path));
  INLAY_RETURN_IF_ERROR(base_->Remove(path));
  absl::MutexLock lock(&mu_);
  files_.erase(path);
  return absl::OkStatus();
}

absl::Status FaultInjectingFileSystem::SyncDirectory(const std::string& path) {
  INLAY_RETURN_IF_ERROR(Before("syncdir", path));
  absl::MutexLock lock(&mu_);
  for (auto& [name, state] : files_) {
    if (DirName(name) == path) state->entry_synced = true;
  }
  return absl::OkStatus();
}

absl::Status FaultInjectingFileSystem::CreateDirectories(const std::string& path) {
  INLAY_RETURN_IF_ERROR(Before("mkdir", path));
  return base_->CreateDirectories(path);
}

absl::Status FaultInjectingFileSystem::RemoveTree(const std::string& path) {
  INLAY_RETURN_IF_ERROR(Before("remove", path));
  return base_->RemoveTree(path);
}

absl::StatusOr<std::vector<std::string>> FaultInjectingFileSystem::List(const std::string& directory) {
  INLAY_RETURN_IF_ERROR(Before("list", directory));
  return base_->List(directory);
}

absl::StatusOr<FileInfo> FaultInjectingFileSystem::Stat(const std::string& path) {
  INLAY_RETURN_IF_ERROR(Before("stat", path));
  return base_->Stat(path);
}

}  // namespace inlay
