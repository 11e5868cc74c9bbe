// HandleTable: the modules that are loaded into the daemon, by handle.
//
// Bounded by memory (RESOURCE_EXHAUSTED when a load does not fit and nothing has expired); a handle that nobody used
// for its idle time goes by itself. A module that is running is kept until its runs end. Thread-safe.
#ifndef INLAY_SERVER_SERVICE_HANDLE_TABLE_H_
#define INLAY_SERVER_SERVICE_HANDLE_TABLE_H_

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/digest.h"
#include "core/jit/loaded_module.h"

namespace inlay::server {

class HandleTable {
 public:
  struct Options {
    int64_t max_bytes = int64_t{8} << 30;
    absl::Duration idle_expiry = absl::Hours(1);
  };
  struct Info {
    std::string handle;
    Digest executable;
    int64_t memory_bytes = 0;
    int64_t runs = 0;
    absl::Duration idle;
  };

  explicit HandleTable(Options options);
  ~HandleTable();

  // Refuses, before anything is loaded, what can't fit: `expected_bytes` is a lower bound.
  absl::Status CheckRoom(int64_t expected_bytes);
  // idle_expiry zero: the default.
  absl::StatusOr<std::string> Add(const Digest& executable, std::shared_ptr<const jit::LoadedModule> module,
                                  absl::Duration idle_expiry);
  // NOT_FOUND: unknown, unloaded or expired. Counts as a use.
  absl::StatusOr<std::shared_ptr<const jit::LoadedModule>> Get(const std::string& handle);
  absl::Status Remove(const std::string& handle);
  std::vector<Info> List();
  int64_t TotalBytes();

 private:
  struct Entry {
    Digest executable;
    std::shared_ptr<const jit::LoadedModule> module;
    int64_t bytes = 0;
    absl::Duration idle_expiry;
    absl::Time last_used;
    int64_t runs = 0;
  };

  void ExpireLoop();
  void DropExpired(std::vector<Entry>* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t TotalLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const Options options_;
  absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread expirer_;
};

}  // namespace inlay::server

#endif  // INLAY_SERVER_SERVICE_HANDLE_TABLE_H_
