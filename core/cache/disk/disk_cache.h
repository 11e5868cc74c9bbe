// DiskCache: one directory with a BlobStore, an ActionCache and key-value tables in it, within a bound of bytes, shared
// by several threads and processes. FORMAT.md is the specification of what lies there, and of what survives what.
//
//   auto cache = DiskCache::Open({.directory = "/var/cache/inlay", .max_bytes = 10 << 30}, registry);
//   (*cache)->blobs().Put(...); (*cache)->actions().Lookup(...); (*cache)->Table("costs")
//
// What it answers outlives it not. Metrics: inlay_disk_cache_bytes{kind}, _files{kind} (gauges),
// _evicted_total, _evicted_bytes_total, _corrupt_total{kind}, _index_errors_total, _index_rebuilds.
// Threads: any.
#ifndef INLAY_CORE_CACHE_DISK_DISK_CACHE_H_
#define INLAY_CORE_CACHE_DISK_DISK_CACHE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/file_system.h"
#include "core/cache/action_cache.h"
#include "core/cache/blob_store.h"
#include "core/cache/key_value_table.h"
#include "core/metrics/registry.h"

namespace inlay::cache {

struct DiskCacheOptions {
  std::string directory;  // made where it is not there
  int64_t max_bytes = int64_t{10} << 30;
  // Blobs of so many bytes are mapped when they are read, smaller ones copied.
  int64_t map_above = 1 << 20;
  absl::Duration flush_interval = absl::Seconds(5);  // of noted uses
  // For tests.
  FileSystem* file_system = FileSystem::Default();
  Clock* clock = Clock::Real();
  std::string boot_id;  // empty: the kernel's
};

class DiskCache {
 public:
  // FAILED_PRECONDITION where the directory has another format.
  static absl::StatusOr<std::unique_ptr<DiskCache>> Open(const DiskCacheOptions& options, metrics::Registry* registry);
  ~DiskCache();

  BlobStore& blobs();
  ActionCache& actions();
  // A table of its own for each name.
  std::unique_ptr<KeyValueTable> Table(const std::string& name);

  // Writes the noted uses to the index now.
  absl::Status Flush();

 private:
  class Impl;
  class Blobs;
  class Actions;
  explicit DiskCache(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
  const std::unique_ptr<Blobs> blobs_;
  const std::unique_ptr<Actions> actions_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_DISK_CACHE_H_
