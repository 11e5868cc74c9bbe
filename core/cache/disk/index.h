// Index: sizes and last uses of the files in a cache directory, in SQLite (FORMAT.md). Knows rows; touches no cache
// file but to walk them in Reconcile.
//
// A damaged database is made anew and reconciled, under its own lock (index.lock), by whichever call finds it; one that
// another process has replaced is opened again. So DATA_LOSS leaves this class only where that fails too.
// Threads: any.
#ifndef INLAY_CORE_CACHE_DISK_INDEX_H_
#define INLAY_CORE_CACHE_DISK_INDEX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/file_system.h"
#include "core/cache/disk/layout.h"
#include "core/cache/disk/sqlite.h"

namespace inlay::cache {

class Index {
 public:
  struct Row {
    EntryKey key;
    int64_t size = 0;      // 4 KiB steps; negative in Use: not known
    int64_t last_use = 0;  // microseconds since 1970
  };
  struct Totals {
    int64_t bytes[2] = {0, 0}, files[2] = {0, 0};  // by EntryKind
    int64_t all_bytes() const { return bytes[0] + bytes[1]; }
  };

  // `boot_id` tells whether the machine has been started since the index was written: then it is checked and
  // reconciled.
  static absl::StatusOr<std::unique_ptr<Index>> Open(const Layout& layout, FileSystem* fs, const std::string& boot_id);

  // A row for a file that is about to be; answers the totals with it.
  absl::StatusOr<Totals> Add(const Row& row);
  absl::Status Remove(const std::vector<EntryKey>& keys);
  // Later uses of entries; makes the row again where it is missing and the size is known.
  absl::Status Use(const std::vector<Row>& rows);
  absl::StatusOr<Totals> GetTotals();
  // The same by adding all rows up, put right where the kept ones were wrong.
  absl::StatusOr<Totals> RecountTotals();
  // From the one used longest ago; `visit` answers false to stop.
  absl::Status ForEachByUse(const std::function<bool(const Row&)>& visit);

  int64_t rebuilds() const;  // since this was opened, that at opening included

 private:
  Index(const Layout& layout, FileSystem* fs, std::string boot_id)
      : layout_(layout), fs_(fs), boot_id_(std::move(boot_id)) {}

  absl::Status OpenDatabase() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Remake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Reconcile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Replaced() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `body` in a transaction, a second time where the database had to be made anew.
  absl::Status Run(const std::function<absl::Status()>& body) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Totals> ReadTotals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Layout layout_;
  FileSystem* const fs_;
  const std::string boot_id_;
  mutable absl::Mutex mu_;
  std::unique_ptr<SqliteDatabase> db_ ABSL_GUARDED_BY(mu_);
  uint64_t inode_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t rebuilds_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_INDEX_H_
