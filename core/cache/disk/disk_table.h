// TableFile: tables.db of a cache directory (FORMAT.md), and the KeyValueTables in it. Threads: any.
#ifndef INLAY_CORE_CACHE_DISK_DISK_TABLE_H_
#define INLAY_CORE_CACHE_DISK_DISK_TABLE_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/cache/disk/layout.h"
#include "core/cache/disk/sqlite.h"
#include "core/cache/key_value_table.h"

namespace inlay::cache {

class TableFile {
 public:
  // A damaged file is moved to the quarantine and begun anew.
  static absl::StatusOr<std::unique_ptr<TableFile>> Open(const Layout& layout);

  absl::StatusOr<std::string> Get(const std::string& table, const Digest& key);
  // Where `replace` is not set and there is a good row, answers that.
  absl::StatusOr<std::string> Put(const std::string& table, const Digest& key, absl::string_view value, bool replace);
  absl::StatusOr<int64_t> Count(const std::string& table);

 private:
  TableFile() = default;
  absl::StatusOr<std::string> GetLocked(const std::string& table, const Digest& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::unique_ptr<SqliteDatabase> db_ ABSL_GUARDED_BY(mu_);
};

class DiskKeyValueTable : public KeyValueTable {
 public:
  DiskKeyValueTable(TableFile* file, std::string name) : file_(file), name_(std::move(name)) {}
  absl::StatusOr<std::string> Get(const Digest& key) override { return file_->Get(name_, key); }
  absl::StatusOr<std::string> PutIfAbsent(const Digest& key, absl::string_view value) override {
    return file_->Put(name_, key, value, /*replace=*/false);
  }
  absl::Status Put(const Digest& key, absl::string_view value) override {
    return file_->Put(name_, key, value, /*replace=*/true).status();
  }
  absl::StatusOr<int64_t> Count() override { return file_->Count(name_); }

 private:
  TableFile* const file_;
  const std::string name_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_DISK_TABLE_H_
