#include "core/cache/disk/disk_table.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file_system.h"
#include "core/base/status_macros.h"

namespace inlay::cache {
namespace {

constexpr int kVersion = 1;
constexpr char kSchema[] =
    "CREATE TABLE rows(tab BLOB, key BLOB, value BLOB, sum BLOB, PRIMARY KEY(tab, key)) WITHOUT ROWID";

std::string Sum(const std::string& table, const Digest& key, absl::string_view value) {
  const Digest digest =
      Hasher().Update(table).Update(absl::string_view("\0", 1)).Update(key.bytes()).Update(value).Finish();
  return std::string(digest.bytes().substr(0, 8));
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenChecked(const std::string& path) {
  INLAY_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db, SqliteDatabase::Open(path, kVersion, kSchema));
  INLAY_RETURN_IF_ERROR(db->QuickCheck());
  return db;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableFile>> TableFile::Open(const Layout& layout) {
  INLAY_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(layout.LockFile()));
  absl::StatusOr<std::unique_ptr<SqliteDatabase>> db = OpenChecked(layout.Tables());
  if (absl::IsDataLoss(db.status())) {
    FileSystem* fs = FileSystem::Default();
    const std::string to = absl::StrCat(layout.Quarantine(), "/tables.db-", absl::ToUnixNanos(absl::Now()));
    INLAY_RETURN_IF_ERROR(fs->Rename(layout.Tables(), to));
    for (const char* suffix : {"-wal", "-shm"}) fs->Remove(layout.Tables() + suffix).IgnoreError();
    db = OpenChecked(layout.Tables());
  }
  INLAY_RETURN_IF_ERROR(Annotate(db.status(), "cache tables"));
  std::unique_ptr<TableFile> file(new TableFile);
  absl::MutexLock mutex_lock(&file->mu_);
  file->db_ = *std::move(db);
  return file;
}

absl::StatusOr<std::string> TableFile::GetLocked(const std::string& table, const Digest& key) {
  std::string value, sum;
  INLAY_RETURN_IF_ERROR(db_->Execute("SELECT value, sum FROM rows WHERE tab = ?1 AND key = ?2",
                                     {absl::string_view(table), key.bytes()}, [&](const auto& row) {
                                       value = std::string(row.Bytes(0));
                                       sum = std::string(row.Bytes(1));
                                       return true;
                                     }));
  if (sum != Sum(table, key, value)) {
    return absl::NotFoundError(absl::StrCat("table ", table, " has no row ", key.hex()));
  }
  return value;
}

absl::StatusOr<std::string> TableFile::Get(const std::string& table, const Digest& key) {
  absl::MutexLock lock(&mu_);
  return GetLocked(table, key);
}

absl::StatusOr<std::string> TableFile::Put(const std::string& table, const Digest& key, absl::string_view value,
                                           bool replace) {
  absl::MutexLock lock(&mu_);
  std::string result(value);
  INLAY_RETURN_IF_ERROR(db_->Transaction([&]() -> absl::Status {
    mu_.AssertHeld();
    if (!replace) {
      absl::StatusOr<std::string> first = GetLocked(table, key);
      if (first.ok()) result = *std::move(first);
      if (!absl::IsNotFound(first.status())) return first.status();
    }
    return db_->Execute("INSERT OR REPLACE INTO rows VALUES(?1, ?2, ?3, ?4)",
                        {absl::string_view(table), key.bytes(), value, absl::string_view(Sum(table, key, value))});
  }));
  return result;
}

absl::StatusOr<int64_t> TableFile::Count(const std::string& table) {
  absl::MutexLock lock(&mu_);
  int64_t count = 0;
  INLAY_RETURN_IF_ERROR(
      db_->Execute("SELECT count(*) FROM rows WHERE tab = ?1", {absl::string_view(table)}, [&](const auto& row) {
        count = row.Int(0);
        return true;
      }));
  return count;
}

}  // namespace inlay::cache
