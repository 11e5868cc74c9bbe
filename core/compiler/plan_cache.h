// PlanCache: which cover was chosen for a module, so that noise in measurements never changes a plan (and with it the
// keys of its partitions), and a compile that was made before does not search.
//
// The key is the normalised module without names and weights, what the configuration allows, the versions of the
// backends, and the device where times were measured. The first writer wins. Thread-safe.
#ifndef INLAY_CORE_COMPILER_PLAN_CACHE_H_
#define INLAY_CORE_COMPILER_PLAN_CACHE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/digest.h"
#include "core/cache/key_value_table.h"
#include "core/target/compilation_config.h"
#include "proto/artifact.pb.h"

namespace inlay::compiler {

class PlanCache {
 public:
  // `build`: identity of this program, whose rules and estimates plans come from. The table is not owned.
  PlanCache(cache::KeyValueTable* table, std::string build) : table_(table), build_(std::move(build)) {}

  // `backends`: name -> version of those that may be used; `device`: empty where nothing is measured.
  Digest Key(const Digest& module_hash, const target::CompilationConfig& config,
             const std::map<std::string, std::string>& backends, const std::string& device) const;

  absl::StatusOr<proto::PlanRecord> Get(const Digest& key) const;
  // What the cache now has: `record`, or that of whoever was first.
  absl::StatusOr<proto::PlanRecord> PutIfAbsent(const Digest& key, const proto::PlanRecord& record);
  absl::Status Replace(const Digest& key, const proto::PlanRecord& record);

 private:
  cache::KeyValueTable* table_;
  std::string build_;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_PLAN_CACHE_H_
