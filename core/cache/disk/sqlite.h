// SQLite with absl::Status: a connection, and statements that are prepared once.
//
// Errors: DATA_LOSS (the file is damaged, or is no database), RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (locked by
// another process for longer than the busy timeout), PERMISSION_DENIED, else INTERNAL. Threads: one at a time; the
// owner has a mutex.
#ifndef INLAY_CORE_CACHE_DISK_SQLITE_H_
#define INLAY_CORE_CACHE_DISK_SQLITE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

struct sqlite3;
struct sqlite3_stmt;

namespace inlay::cache {

class SqliteDatabase {
 public:
  using Value = std::variant<int64_t, absl::string_view>;  // text and blobs alike are bound as blobs, keys of meta too

  // One row of a result; views are valid during the callback.
  class Row {
   public:
    explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
    int64_t Int(int column) const;
    absl::string_view Bytes(int column) const;

   private:
    sqlite3_stmt* statement_;
  };

  // Opens or creates, WAL, synchronous=NORMAL; runs `schema` (one or more statements) where user_version is 0 and sets
  // it to `version`. FAILED_PRECONDITION where it is another one.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, int version,
                                                              const std::string& schema);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // `sql` must be a string literal, or one of few strings: its statement is kept. `on_row` answers false to stop.
  absl::Status Execute(const char* sql, absl::Span<const Value> values = {},
                       const std::function<bool(const Row&)>& on_row = nullptr);
  // BEGIN IMMEDIATE, `body`, COMMIT; ROLLBACK where something fails.
  absl::Status Transaction(const std::function<absl::Status()>& body);
  // DATA_LOSS where the file's structure is damaged. Reads all of it.
  absl::Status QuickCheck();

 private:
  SqliteDatabase(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  absl::Status Error(int code, absl::string_view what) const;

  sqlite3* const db_;
  const std::string path_;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_SQLITE_H_
