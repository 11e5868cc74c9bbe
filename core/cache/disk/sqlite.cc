#include "core/cache/disk/sqlite.h"

#include <sqlite3.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::cache {
namespace {

// How long one process waits for the write transaction of another. They last milliseconds.
constexpr int kBusyTimeoutMs = 10000;

absl::StatusCode CodeOf(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

int64_t SqliteDatabase::Row::Int(int column) const { return sqlite3_column_int64(statement_, column); }

absl::string_view SqliteDatabase::Row::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return {static_cast<const char*>(data), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

absl::Status SqliteDatabase::Error(int code, absl::string_view what) const {
  return absl::Status(CodeOf(code),
                      absl::StrCat(path_, ": ", what, ": ", db_ == nullptr ? "no memory" : sqlite3_errmsg(db_)));
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path, int version,
                                                                     const std::string& schema) {
  sqlite3* db = nullptr;
  // NOMUTEX: the owner serialises.
  const int code =
      sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(db, path));
  if (code != SQLITE_OK) return database->Error(code, "open");
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db, kBusyTimeoutMs);
  INLAY_RETURN_IF_ERROR(database->Execute("PRAGMA journal_mode=WAL"));
  INLAY_RETURN_IF_ERROR(database->Execute("PRAGMA synchronous=NORMAL"));
  INLAY_RETURN_IF_ERROR(database->Transaction([&]() -> absl::Status {
    int64_t found = 0;
    INLAY_RETURN_IF_ERROR(database->Execute("PRAGMA user_version", {}, [&](const Row& row) {
      found = row.Int(0);
      return true;
    }));
    if (found == version) return absl::OkStatus();
    if (found != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": has format ", found, ", this program knows ", version));
    }
    const std::string all = absl::StrCat(schema, "; PRAGMA user_version=", version);
    const int result = sqlite3_exec(db, all.c_str(), nullptr, nullptr, nullptr);
    return result == SQLITE_OK ? absl::OkStatus() : database->Error(result, "create tables");
  }));
  return database;
}

SqliteDatabase::~SqliteDatabase() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(db_);
}

absl::Status SqliteDatabase::Execute(const char* sql, absl::Span<const Value> values,
                                     const std::function<bool(const Row&)>& on_row) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr) {
    const int code = sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return Error(code, sql);
  }
  int index = 0;
  for (const Value& value : values) {
    ++index;
    if (const auto* number = std::get_if<int64_t>(&value)) {
      sqlite3_bind_int64(statement, index, *number);
    } else {
      // Static: the statement is reset before this function returns. Not null for an empty one: that would be NULL.
      const auto& bytes = std::get<absl::string_view>(value);
      sqlite3_bind_blob(statement, index, bytes.empty() ? "" : bytes.data(), static_cast<int>(bytes.size()),
                        SQLITE_STATIC);
    }
  }
  int code;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    if (on_row && !on_row(Row(statement))) break;
  }
  absl::Status status =
      code == SQLITE_DONE || code == SQLITE_ROW ? absl::OkStatus() : Error(code, sql);  // before reset clears it
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return status;
}

absl::Status SqliteDatabase::Transaction(const std::function<absl::Status()>& body) {
  INLAY_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Status status = body();
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok() && sqlite3_get_autocommit(db_) == 0) Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SqliteDatabase::QuickCheck() {
  std::string first;
  INLAY_RETURN_IF_ERROR(Execute("PRAGMA quick_check(1)", {}, [&](const Row& row) {
    first = std::string(row.Bytes(0));
    return true;
  }));
  if (first == "ok") return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, ": ", first));
}

}  // namespace inlay::cache
