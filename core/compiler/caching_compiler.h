// CachingCompiler: an action's StaticLibrary out of the cache, or compiled once and kept.
//
// A hit reads the library's blob (its digest verified there) and checks that its manifest is that of the action;
// whatever is wrong with an entry is a miss. A failed write to the ActionCache costs the entry, not the compile; a blob
// that cannot be stored fails it (RESOURCE_EXHAUSTED), since nobody could fetch the result. Thread-safe.
#ifndef INLAY_CORE_COMPILER_CACHING_COMPILER_H_
#define INLAY_CORE_COMPILER_CACHING_COMPILER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/cache/action_cache.h"
#include "core/cache/blob_store.h"
#include "core/cache/key_value_table.h"
#include "core/compiler/action.h"
#include "core/compiler/partition_compiler.h"
#include "core/compiler/single_flight.h"

namespace inlay::compiler {

struct CompiledPartition {
  std::shared_ptr<const proto::StaticLibrary> library;
  Digest library_digest;
  bool hit = false;
  bool ran_here = false;  // this call had a worker run it (not a hit, not another request's flight)
  double compile_ms = 0;
  std::string miss_reason;
};

class CachingCompiler {
 public:
  struct Stats {
    std::atomic<int64_t> hits{0}, misses{0}, actions_run{0}, write_failures{0}, shared_flights{0};
  };

  // None is owned; all outlive the CachingCompiler. `explanations` may be null.
  CachingCompiler(PartitionCompiler* compiler, cache::BlobStore* blobs, cache::ActionCache* actions,
                  cache::KeyValueTable* explanations);

  // NOT_FOUND: not in the cache.
  absl::StatusOr<CompiledPartition> Lookup(const Action& action);
  absl::StatusOr<CompiledPartition> Compile(const Action& action, CancelToken* token);

  PartitionCompiler* compiler() const { return compiler_; }
  cache::BlobStore* blobs() const { return blobs_; }
  const Stats& stats() const { return stats_; }

 private:
  absl::StatusOr<CompiledPartition> CompileAndStore(const Action& action, CancelToken* token);
  absl::StatusOr<Digest> Store(const Action& action, const proto::StaticLibrary& library);
  std::string ExplainMiss(const Action& action);

  PartitionCompiler* compiler_;
  cache::BlobStore* blobs_;
  cache::ActionCache* actions_;
  cache::KeyValueTable* explanations_;
  SingleFlight<CompiledPartition> flights_;
  Stats stats_;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_CACHING_COMPILER_H_
