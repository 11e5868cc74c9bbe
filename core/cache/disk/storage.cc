#include "core/cache/disk/storage.h"

#include <unistd.h>

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::cache {
namespace {

constexpr char kFormat[] = "inlay-cache 1\n";
constexpr size_t kMaxPendingUses = 4096;
constexpr size_t kMaxQuarantined = 100;
constexpr int64_t kMaxQuarantinedBytes = 16 << 20;

std::string NewInstanceName() {
  std::random_device random;
  return absl::StrCat(getpid(), "-", absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

std::string BootId(const DiskCacheOptions& options) {
  if (!options.boot_id.empty()) return options.boot_id;
  absl::StatusOr<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id");
  // Where there is none, a new one each time: a reconciliation too many does no harm.
  return id.ok() ? std::string(absl::StripAsciiWhitespace(*id)) : NewInstanceName();
}

}  // namespace

Storage::Storage(const DiskCacheOptions& options, metrics::Registry* registry)
    : options_(options),
      fs_(options.file_system),
      layout_(options.directory),
      instance_(NewInstanceName()),
      pins_(PinSet::Create()),
      evicted_(registry->GetCounter("inlay_disk_cache_evicted_total", "Files evicted")),
      evicted_bytes_(registry->GetCounter("inlay_disk_cache_evicted_bytes_total", "Bytes evicted")),
      index_errors_(registry->GetCounter("inlay_disk_cache_index_errors_total", "Index operations that failed")),
      index_rebuilds_(registry->GetGauge("inlay_disk_cache_index_rebuilds", "Times the index was made anew")) {
  for (EntryKind kind : kEntryKinds) {
    const metrics::Labels labels = {{"kind", NameOf(kind)}};
    const int i = static_cast<int>(kind);
    bytes_[i] = &registry->GetGauge("inlay_disk_cache_bytes", "Bytes on disk", labels);
    files_[i] = &registry->GetGauge("inlay_disk_cache_files", "Files on disk", labels);
    corrupt_[i] = &registry->GetCounter("inlay_disk_cache_corrupt_total", "Files found damaged and set aside", labels);
  }
}

absl::StatusOr<std::unique_ptr<Storage>> Storage::Open(const DiskCacheOptions& options, metrics::Registry* registry) {
  std::unique_ptr<Storage> storage(new Storage(options, registry));
  INLAY_RETURN_IF_ERROR(Annotate(storage->CreateLayout(), absl::StrCat("cache directory ", options.directory)));
  INLAY_ASSIGN_OR_RETURN(storage->index_, Index::Open(storage->layout_, storage->fs_, BootId(options)));
  absl::StatusOr<Index::Totals> totals = storage->index_->GetTotals();
  if (totals.ok()) storage->UpdateGauges(*totals);
  storage->flusher_ = std::thread([s = storage.get()] { s->FlushLoop(); });
  return storage;
}

Storage::~Storage() {
  if (flusher_.joinable()) {
    {
      absl::MutexLock lock(&uses_mu_);
      stopping_ = true;
    }
    flusher_.join();
    Flush().IgnoreError();
  }
  fs_->RemoveTree(InstanceDirectory()).IgnoreError();
}

absl::Status Storage::CreateLayout() {
  INLAY_RETURN_IF_ERROR(fs_->CreateDirectories(layout_.root()));
  INLAY_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(layout_.LockFile()));
  absl::StatusOr<std::string> format = inlay::ReadFile(layout_.FormatFile(), fs_);
  if (absl::IsNotFound(format.status())) {
    for (EntryKind kind : kEntryKinds) {
      INLAY_RETURN_IF_ERROR(fs_->CreateDirectories(layout_.Kind(kind)));
    }
    INLAY_RETURN_IF_ERROR(fs_->CreateDirectories(layout_.Quarantine()));
    INLAY_RETURN_IF_ERROR(fs_->CreateDirectories(layout_.Temporary()));
    // Last, and it syncs the root: a directory with FORMAT in it has all the others.
    INLAY_RETURN_IF_ERROR(WriteFileAtomically(layout_.FormatFile(), kFormat, fs_));
  } else {
    INLAY_RETURN_IF_ERROR(format.status());
    if (*format != kFormat) {
      return absl::FailedPreconditionError(absl::StrCat("its FORMAT is \"", absl::StripAsciiWhitespace(*format),
                                                        "\", this program knows \"inlay-cache 1\""));
    }
  }
  RemoveDeadInstances();
  absl::MutexLock instance_lock(&instance_mu_);
  INLAY_RETURN_IF_ERROR(fs_->CreateDirectories(InstanceDirectory()));
  INLAY_ASSIGN_OR_RETURN(FileLock instance, FileLock::TryAcquire(InstanceDirectory() + "/lock"));
  instance_lock_ = std::make_unique<FileLock>(std::move(instance));
  return absl::OkStatus();
}

void Storage::RemoveDeadInstances() {
  absl::StatusOr<std::vector<std::string>> instances = fs_->List(layout_.Temporary());
  if (!instances.ok()) return;
  for (const std::string& instance : *instances) {
    if (instance == instance_) continue;
    const std::string path = JoinPath(layout_.Temporary(), instance);
    if (FileLock::TryAcquire(path + "/lock").ok()) fs_->RemoveTree(path).IgnoreError();
  }
}

absl::StatusOr<FileContents> Storage::Read(const EntryKey& key) {
  absl::StatusOr<FileContents> contents = fs_->Read(layout_.Entry(key), options_.map_above);
  if (contents.ok()) return contents;
  const std::string name = absl::StrCat(NameOf(key.kind), " ", key.digest.hex());
  if (absl::IsNotFound(contents.status())) return absl::NotFoundError(absl::StrCat(name, " is not in the cache"));
  if (absl::IsInternal(contents.status())) {  // an I/O error: as good as damaged
    return absl::DataLossError(absl::StrCat(name, ": ", contents.status().message()));
  }
  return Annotate(contents.status(), name);
}

bool Storage::Exists(const EntryKey& key) { return fs_->Stat(layout_.Entry(key)).ok(); }

int64_t Storage::NextMicros() {
  // Strictly increasing, so that the order of uses within one tick of the clock is kept.
  last_micros_ = std::max(last_micros_ + 1, absl::ToUnixMicros(options_.clock->Now()));
  return last_micros_;
}

void Storage::Use(const EntryKey& key, int64_t bytes) {
  absl::MutexLock lock(&uses_mu_);
  Index::Row& row = uses_[key];
  row.key = key;
  row.last_use = NextMicros();
  row.size = bytes >= 0 ? DiskSize(bytes) : (row.size > 0 ? row.size : -1);
}

absl::Status Storage::SyncEntry(const EntryKey& key) { return fs_->SyncDirectory(layout_.Shard(key)); }

bool Storage::SetAside(const EntryKey& key, const std::function<bool(absl::string_view)>& good) {
  absl::StatusOr<FileLock> lock = FileLock::Acquire(layout_.LockFile());
  if (!lock.ok()) return false;
  absl::StatusOr<FileContents> contents = Read(key);
  if (absl::IsNotFound(contents.status()) || (contents.ok() && good(contents->data))) return false;
  const std::string path = layout_.Entry(key);
  if (contents.ok() && contents->data.size() > kMaxQuarantinedBytes) {
    if (!fs_->Remove(path).ok()) return false;
  } else {
    const std::string to = absl::StrCat(layout_.Quarantine(), "/", NameOf(key.kind), "-", key.digest.hex(), "-",
                                        absl::ToUnixNanos(options_.clock->Now()));
    if (!fs_->Rename(path, to).ok() && !fs_->Remove(path).ok()) return false;
    PruneQuarantine();
  }
  corrupt_[static_cast<int>(key.kind)]->Increment();
  {
    absl::MutexLock uses_lock(&uses_mu_);
    uses_.erase(key);
  }
  if (!index_->Remove({key}).ok()) index_errors_.Increment();
  return true;
}

void Storage::PruneQuarantine() {
  absl::StatusOr<std::vector<std::string>> names = fs_->List(layout_.Quarantine());
  if (!names.ok() || names->size() <= kMaxQuarantined) return;
  auto time_of = [](const std::string& name) { return name.substr(name.rfind('-') + 1); };
  std::sort(names->begin(), names->end(), [&](const auto& a, const auto& b) { return time_of(a) < time_of(b); });
  for (size_t i = 0; i + kMaxQuarantined < names->size(); ++i) {
    fs_->Remove(JoinPath(layout_.Quarantine(), (*names)[i])).IgnoreError();
  }
}

absl::StatusOr<std::unique_ptr<Storage::Publication>> Storage::Publish(const EntryKey& key, int64_t bytes) {
  std::unique_ptr<Publication> publication(new Publication(this, key, bytes));
  publication->pin_ = pins_->Pin({key.digest});
  INLAY_RETURN_IF_ERROR(Reserve(key, bytes));
  publication->path_ = absl::StrCat(InstanceDirectory(), "/", next_file_++);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = fs_->Create(publication->path_, 0444);
  if (absl::IsNotFound(file.status())) {  // somebody removed the directory while it was in use
    INLAY_RETURN_IF_ERROR(CreateLayout());
    file = fs_->Create(publication->path_, 0444);
  }
  INLAY_RETURN_IF_ERROR(file.status());
  publication->file_ = *std::move(file);
  return publication;
}

absl::Status Storage::Reserve(const EntryKey& key, int64_t bytes) {
  const int64_t size = DiskSize(bytes);
  auto full = [&] {
    return absl::ResourceExhaustedError(absl::StrCat(NameOf(key.kind), " ", key.digest.hex(), ": no room for ", bytes,
                                                     " bytes in a cache of ", options_.max_bytes));
  };
  if (size > options_.max_bytes) return full();
  int64_t now;
  {
    absl::MutexLock lock(&uses_mu_);
    now = NextMicros();
  }
  absl::StatusOr<Index::Totals> totals = index_->Add({key, size, now});
  if (absl::IsResourceExhausted(totals.status())) return totals.status();
  if (!totals.ok()) {
    // The files are the truth, the index is not needed to write one: its row is made when the use is flushed.
    index_errors_.Increment();
    return absl::OkStatus();
  }
  UpdateGauges(*totals);
  if (totals->all_bytes() <= options_.max_bytes) return absl::OkStatus();
  const absl::Status status = Evict();
  if (absl::IsResourceExhausted(status)) return full();
  if (!status.ok()) index_errors_.Increment();
  return absl::OkStatus();
}

absl::Status Storage::Evict() {
  Flush().IgnoreError();  // else what was used lately looks old
  INLAY_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(layout_.LockFile()));
  INLAY_ASSIGN_OR_RETURN(Index::Totals totals, index_->RecountTotals());
  int64_t bytes = totals.all_bytes();
  if (bytes <= options_.max_bytes) return absl::OkStatus();  // another process was faster
  const int64_t low_water = options_.max_bytes / 10 * 9;
  std::vector<Index::Row> victims;
  INLAY_RETURN_IF_ERROR(index_->ForEachByUse([&](const Index::Row& row) {
    if (bytes <= low_water) return false;
    if (pins_->Contains(row.key.digest)) return true;
    victims.push_back(row);
    bytes -= row.size;
    return true;
  }));
  if (bytes > options_.max_bytes) return absl::ResourceExhaustedError("cache: what is left is pinned");
  std::vector<EntryKey> removed;
  for (const Index::Row& row : victims) {
    const absl::Status status = fs_->Remove(layout_.Entry(row.key));
    if (!status.ok() && !absl::IsNotFound(status)) continue;  // its row stays: tried again next time
    removed.push_back(row.key);
    if (!status.ok()) continue;  // a row without a file
    evicted_.Increment();
    evicted_bytes_.Increment(row.size);
  }
  {
    absl::MutexLock uses_lock(&uses_mu_);
    for (const EntryKey& key : removed) uses_.erase(key);
  }
  INLAY_RETURN_IF_ERROR(index_->Remove(removed));
  INLAY_ASSIGN_OR_RETURN(totals, index_->GetTotals());
  UpdateGauges(totals);
  return absl::OkStatus();
}

absl::Status Storage::Flush() {
  std::vector<Index::Row> rows;
  {
    absl::MutexLock lock(&uses_mu_);
    rows.reserve(uses_.size());
    for (const auto& [key, row] : uses_) rows.push_back(row);
    uses_.clear();
  }
  // A file that was removed in the meantime (by another process) must not get its row back.
  rows.erase(std::remove_if(rows.begin(), rows.end(), [this](const auto& row) { return !Exists(row.key); }),
             rows.end());
  absl::Status status = index_->Use(rows);
  if (!status.ok()) index_errors_.Increment();
  index_rebuilds_.Set(index_->rebuilds());
  return status;
}

void Storage::FlushLoop() {
  while (true) {
    {
      absl::MutexLock lock(&uses_mu_);
      auto wake = [this]()
                      ABSL_EXCLUSIVE_LOCKS_REQUIRED(uses_mu_) { return stopping_ || uses_.size() >= kMaxPendingUses; };
      uses_mu_.AwaitWithTimeout(absl::Condition(&wake), options_.flush_interval);
      if (stopping_) return;
      if (uses_.empty()) continue;
    }
    Flush().IgnoreError();
  }
}

void Storage::UpdateGauges(const Index::Totals& totals) {
  for (int i = 0; i < 2; ++i) {
    bytes_[i]->Set(totals.bytes[i]);
    files_[i]->Set(totals.files[i]);
  }
  index_rebuilds_.Set(index_->rebuilds());
}

Storage::Publication::~Publication() {
  if (done_) return;
  file_ = nullptr;
  if (!path_.empty()) storage_->fs_->Remove(path_).IgnoreError();
  if (!storage_->Exists(key_) && !storage_->index_->Remove({key_}).ok()) storage_->index_errors_.Increment();
}

absl::Status Storage::Publication::Append(absl::string_view data) { return file_->Append(data); }

absl::Status Storage::Publication::Commit(bool replace) {
  FileSystem* fs = storage_->fs_;
  if (!synced_) {
    INLAY_RETURN_IF_ERROR(file_->Sync());
    INLAY_RETURN_IF_ERROR(file_->Close());
    synced_ = true;
  }
  const std::string to = storage_->layout_.Entry(key_);
  absl::Status status = fs->RenameNoReplace(path_, to);
  if (absl::IsNotFound(status)) {  // the first of its shard
    INLAY_RETURN_IF_ERROR(fs->CreateDirectories(storage_->layout_.Shard(key_)));
    INLAY_RETURN_IF_ERROR(fs->SyncDirectory(storage_->layout_.Kind(key_.kind)));
    status = fs->RenameNoReplace(path_, to);
  }
  if (absl::IsAlreadyExists(status) && replace) {
    INLAY_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(storage_->layout_.LockFile()));
    status = fs->Rename(path_, to);
  }
  INLAY_RETURN_IF_ERROR(status);
  path_.clear();
  INLAY_RETURN_IF_ERROR(storage_->SyncEntry(key_));
  done_ = true;
  storage_->Use(key_, bytes_);
  return absl::OkStatus();
}

}  // namespace inlay::cache
