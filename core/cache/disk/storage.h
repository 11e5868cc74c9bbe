// Storage: the files of a cache directory: publishing, reading, setting aside, evicting, as FORMAT.md says. What
// DiskCache's BlobStore and ActionCache have in common; it knows keys and bytes, not what makes them good. Threads:
// any; a Publication by one at a time.
#ifndef INLAY_CORE_CACHE_DISK_STORAGE_H_
#define INLAY_CORE_CACHE_DISK_STORAGE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/cache/disk/disk_cache.h"
#include "core/cache/disk/index.h"
#include "core/cache/disk/layout.h"
#include "core/cache/pin_set.h"

namespace inlay::cache {

class Storage {
 public:
  static absl::StatusOr<std::unique_ptr<Storage>> Open(const DiskCacheOptions& options, metrics::Registry* registry);
  ~Storage();

  // NOT_FOUND, or the file's bytes as they are. A disk that cannot read it answers DATA_LOSS.
  absl::StatusOr<FileContents> Read(const EntryKey& key);
  bool Exists(const EntryKey& key);
  // Notes a use; cheap, written later. `bytes` of the file, or -1 where the caller does not know.
  void Use(const EntryKey& key, int64_t bytes);
  // Makes sure that a file which somebody else published survives a power cut too.
  absl::Status SyncEntry(const EntryKey& key);
  // Moves a file that is not `good` out of the way; false where the file is good now, or gone.
  bool SetAside(const EntryKey& key, const std::function<bool(absl::string_view)>& good);

  // A file being written. Destroyed before a Commit that was OK, it leaves nothing.
  class Publication {
   public:
    ~Publication();
    absl::Status Append(absl::string_view data);
    // ALREADY_EXISTS where the name is taken and not to be replaced: it may then be called again.
    absl::Status Commit(bool replace);

   private:
    friend class Storage;
    Publication(Storage* storage, const EntryKey& key, int64_t bytes) : storage_(storage), key_(key), bytes_(bytes) {}
    Storage* const storage_;
    const EntryKey key_;
    const int64_t bytes_;
    BlobPin pin_;
    std::string path_;
    std::unique_ptr<WritableFile> file_;
    bool synced_ = false, done_ = false;
  };
  // Makes room first: RESOURCE_EXHAUSTED where there is none.
  absl::StatusOr<std::unique_ptr<Publication>> Publish(const EntryKey& key, int64_t bytes);

  PinSet& pins() { return *pins_; }
  const Layout& layout() const { return layout_; }
  absl::Status Flush();

 private:
  Storage(const DiskCacheOptions& options, metrics::Registry* registry);
  absl::Status CreateLayout() ABSL_LOCKS_EXCLUDED(instance_mu_);
  void RemoveDeadInstances();
  absl::Status Reserve(const EntryKey& key, int64_t bytes);
  absl::Status Evict();
  void PruneQuarantine();
  void FlushLoop();
  void UpdateGauges(const Index::Totals& totals);
  std::string InstanceDirectory() const { return layout_.Temporary() + "/" + instance_; }

  const DiskCacheOptions options_;
  FileSystem* const fs_;
  const Layout layout_;
  const std::string instance_;
  const std::shared_ptr<PinSet> pins_;
  std::unique_ptr<Index> index_;
  std::atomic<int64_t> next_file_{0};

  absl::Mutex instance_mu_;
  std::unique_ptr<FileLock> instance_lock_ ABSL_GUARDED_BY(instance_mu_);

  absl::Mutex uses_mu_;
  absl::flat_hash_map<EntryKey, Index::Row> uses_ ABSL_GUARDED_BY(uses_mu_);
  int64_t last_micros_ ABSL_GUARDED_BY(uses_mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(uses_mu_) = false;
  int64_t NextMicros() ABSL_EXCLUSIVE_LOCKS_REQUIRED(uses_mu_);
  std::thread flusher_;

  metrics::Gauge* bytes_[2];
  metrics::Gauge* files_[2];
  metrics::Counter* corrupt_[2];
  metrics::Counter& evicted_;
  metrics::Counter& evicted_bytes_;
  metrics::Counter& index_errors_;
  metrics::Gauge& index_rebuilds_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_STORAGE_H_
