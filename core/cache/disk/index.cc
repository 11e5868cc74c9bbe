#include "core/cache/disk/index.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::cache {
namespace {

constexpr int kVersion = 1;
constexpr char kSchema[] = R"(
CREATE TABLE entries(kind INTEGER, digest BLOB, size INTEGER, last_use INTEGER, PRIMARY KEY(kind, digest)) WITHOUT ROWID;
CREATE INDEX by_use ON entries(last_use);
CREATE TABLE totals(kind INTEGER PRIMARY KEY, bytes INTEGER, files INTEGER);
INSERT INTO totals VALUES(0, 0, 0), (1, 0, 0);
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
  UPDATE totals SET bytes = bytes + new.size, files = files + 1 WHERE kind = new.kind;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
  UPDATE totals SET bytes = bytes - old.size, files = files - 1 WHERE kind = old.kind;
END;
CREATE TRIGGER resized AFTER UPDATE OF size ON entries BEGIN
  UPDATE totals SET bytes = bytes + new.size - old.size WHERE kind = new.kind;
END
)";
constexpr char kUpsert[] =
    "INSERT INTO entries VALUES(?1, ?2, ?3, ?4) ON CONFLICT(kind, digest) DO UPDATE SET size = ?3, last_use = "
    "max(last_use, ?4)";
constexpr char kDelete[] = "DELETE FROM entries WHERE kind = ?1 AND digest = ?2";

int64_t KindOf(const EntryKey& key) { return static_cast<int64_t>(key.kind); }

absl::StatusOr<Index::Row> ParseRow(const SqliteDatabase::Row& row) {
  absl::StatusOr<Digest> digest = Digest::FromBytes(row.Bytes(1));
  if (row.Int(0) < 0 || row.Int(0) > 1 || !digest.ok()) return absl::DataLossError("index: a row that is none");
  return Index::Row{{static_cast<EntryKind>(row.Int(0)), *digest}, row.Int(2), row.Int(3)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Index>> Index::Open(const Layout& layout, FileSystem* fs, const std::string& boot_id) {
  std::unique_ptr<Index> index(new Index(layout, fs, boot_id));
  INLAY_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(layout.root() + "/index.lock"));
  absl::MutexLock mutex_lock(&index->mu_);
  absl::Status status = index->OpenDatabase();
  if (absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) status = index->Remake();
  INLAY_RETURN_IF_ERROR(Annotate(status, "cache index"));
  return index;
}

absl::Status Index::OpenDatabase() {
  db_ = nullptr;
  INLAY_ASSIGN_OR_RETURN(db_, SqliteDatabase::Open(layout_.Index(), kVersion, kSchema));
  INLAY_ASSIGN_OR_RETURN(FileInfo info, FileSystem::Default()->Stat(layout_.Index()));
  inode_ = info.inode;
  std::string boot_id;
  INLAY_RETURN_IF_ERROR(db_->Execute("SELECT value FROM meta WHERE key = 'boot_id'", {}, [&](const auto& row) {
    boot_id = std::string(row.Bytes(0));
    return true;
  }));
  if (boot_id == boot_id_) return absl::OkStatus();
  INLAY_RETURN_IF_ERROR(db_->QuickCheck());
  return Reconcile();
}

absl::Status Index::Remake() {
  db_ = nullptr;
  for (const char* suffix : {"", "-wal", "-shm"}) {
    absl::Status status = FileSystem::Default()->Remove(layout_.Index() + suffix);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  ++rebuilds_;
  return OpenDatabase();
}

absl::Status Index::Reconcile() {
  return db_->Transaction([&]() -> absl::Status {
    absl::flat_hash_map<EntryKey, Row> rows;
    absl::Status parsed;
    INLAY_RETURN_IF_ERROR(
        db_->Execute("SELECT kind, digest, size, last_use FROM entries", {}, [&](const SqliteDatabase::Row& r) {
          absl::StatusOr<Row> row = ParseRow(r);
          parsed = row.status();
          if (row.ok()) rows[row->key] = *row;
          return row.ok();
        }));
    INLAY_RETURN_IF_ERROR(parsed);
    for (EntryKind kind : kEntryKinds) {
      absl::StatusOr<std::vector<std::string>> shards = fs_->List(layout_.Kind(kind));
      if (absl::IsNotFound(shards.status())) continue;
      INLAY_RETURN_IF_ERROR(shards.status());
      for (const std::string& shard : *shards) {
        const std::string directory = JoinPath(layout_.Kind(kind), shard);
        absl::StatusOr<std::vector<std::string>> names = fs_->List(directory);
        if (!names.ok()) continue;  // a stray file: not ours
        for (const std::string& name : *names) {
          absl::StatusOr<Digest> digest = Digest::FromHex(name);
          absl::StatusOr<FileInfo> info = fs_->Stat(JoinPath(directory, name));
          if (!digest.ok() || !info.ok()) continue;
          auto known = rows.extract({kind, *digest});
          const int64_t size = DiskSize(info->size);
          if (!known.empty() && known.mapped().size == size) continue;
          INLAY_RETURN_IF_ERROR(db_->Execute(
              kUpsert, {static_cast<int64_t>(kind), digest->bytes(), size, absl::ToUnixMicros(info->modified)}));
        }
      }
    }
    for (const auto& [key, row] : rows) {
      INLAY_RETURN_IF_ERROR(db_->Execute(kDelete, {KindOf(key), key.digest.bytes()}));
    }
    return db_->Execute("INSERT OR REPLACE INTO meta VALUES('boot_id', ?1)", {absl::string_view(boot_id_)});
  });
}

bool Index::Replaced() const {
  absl::StatusOr<FileInfo> info = FileSystem::Default()->Stat(layout_.Index());
  return !info.ok() || info->inode != inode_;
}

absl::Status Index::Run(const std::function<absl::Status()>& body) {
  absl::MutexLock lock(&mu_);
  absl::Status status = absl::DataLossError("cache index: not open");
  if (db_ != nullptr && !Replaced()) status = db_->Transaction(body);
  if (!absl::IsDataLoss(status)) return status;

  INLAY_ASSIGN_OR_RETURN(FileLock file_lock, FileLock::Acquire(layout_.root() + "/index.lock"));
  // Another process may have made it anew while this one waited.
  absl::Status opened = db_ == nullptr || Replaced() ? OpenDatabase() : status;
  if (absl::IsDataLoss(opened)) opened = Remake();
  INLAY_RETURN_IF_ERROR(opened);
  return db_->Transaction(body);
}

absl::StatusOr<Index::Totals> Index::ReadTotals() {
  Totals totals;
  INLAY_RETURN_IF_ERROR(db_->Execute("SELECT kind, bytes, files FROM totals", {}, [&](const auto& row) {
    const int64_t kind = row.Int(0);
    if (kind == 0 || kind == 1) {
      totals.bytes[kind] = row.Int(1);
      totals.files[kind] = row.Int(2);
    }
    return true;
  }));
  return totals;
}

absl::StatusOr<Index::Totals> Index::Add(const Row& row) {
  Totals totals;
  INLAY_RETURN_IF_ERROR(Run([&]() -> absl::Status {
    mu_.AssertHeld();
    INLAY_RETURN_IF_ERROR(db_->Execute(kUpsert, {KindOf(row.key), row.key.digest.bytes(), row.size, row.last_use}));
    INLAY_ASSIGN_OR_RETURN(totals, ReadTotals());
    return absl::OkStatus();
  }));
  return totals;
}

absl::Status Index::Remove(const std::vector<EntryKey>& keys) {
  return Run([&]() -> absl::Status {
    mu_.AssertHeld();
    for (const EntryKey& key : keys) {
      INLAY_RETURN_IF_ERROR(db_->Execute(kDelete, {KindOf(key), key.digest.bytes()}));
    }
    return absl::OkStatus();
  });
}

absl::Status Index::Use(const std::vector<Row>& rows) {
  if (rows.empty()) return absl::OkStatus();
  return Run([&]() -> absl::Status {
    mu_.AssertHeld();
    for (const Row& row : rows) {
      if (row.size >= 0) {
        INLAY_RETURN_IF_ERROR(db_->Execute(kUpsert, {KindOf(row.key), row.key.digest.bytes(), row.size, row.last_use}));
      } else {
        INLAY_RETURN_IF_ERROR(
            db_->Execute("UPDATE entries SET last_use = max(last_use, ?3) WHERE kind = ?1 AND digest = ?2",
                         {KindOf(row.key), row.key.digest.bytes(), row.last_use}));
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Index::Totals> Index::GetTotals() {
  Totals totals;
  INLAY_RETURN_IF_ERROR(Run([&]() -> absl::Status {
    mu_.AssertHeld();
    INLAY_ASSIGN_OR_RETURN(totals, ReadTotals());
    return absl::OkStatus();
  }));
  return totals;
}

absl::StatusOr<Index::Totals> Index::RecountTotals() {
  INLAY_RETURN_IF_ERROR(Run([&]() -> absl::Status {
    mu_.AssertHeld();
    return db_->Execute(
        "UPDATE totals SET bytes = (SELECT ifnull(sum(size), 0) FROM entries e WHERE e.kind = totals.kind), files = "
        "(SELECT count(*) FROM entries e WHERE e.kind = totals.kind)");
  }));
  return GetTotals();
}

absl::Status Index::ForEachByUse(const std::function<bool(const Row&)>& visit) {
  return Run([&]() -> absl::Status {
    mu_.AssertHeld();
    absl::Status parsed;
    INLAY_RETURN_IF_ERROR(db_->Execute("SELECT kind, digest, size, last_use FROM entries ORDER BY last_use", {},
                                       [&](const SqliteDatabase::Row& r) {
                                         absl::StatusOr<Row> row = ParseRow(r);
                                         parsed = row.status();
                                         return row.ok() && visit(*row);
                                       }));
    return parsed;
  });
}

int64_t Index::rebuilds() const {
  absl::MutexLock lock(&mu_);
  return rebuilds_;
}

}  // namespace inlay::cache
