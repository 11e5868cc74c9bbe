#include "core/compiler/plan_cache.h"

#include "absl/strings/str_cat.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"

namespace inlay::compiler {
namespace {

absl::StatusOr<proto::PlanRecord> Parse(const std::string& bytes) {
  proto::PlanRecord record;
  if (!record.ParseFromString(bytes)) return absl::DataLossError("a row of the plan cache does not parse");
  return record;
}

}  // namespace

Digest PlanCache::Key(const Digest& module_hash, const target::CompilationConfig& config,
                      const std::map<std::string, std::string>& backends, const std::string& device) const {
  Hasher hasher;
  hasher.UpdateField("inlay plan/1").UpdateField(build_).UpdateField(module_hash.bytes());
  for (const target::Target& target : config.targets) hasher.UpdateField(target.ToString());
  hasher.UpdateField(absl::StrCat("search ", static_cast<int>(config.search_mode), " threads ", config.num_threads));
  for (const auto& [name, hint] : config.dim_hints) hasher.UpdateField(name).UpdateInt(hint);
  for (const auto& [name, version] : backends) hasher.UpdateField(name).UpdateField(version);
  hasher.UpdateField(device);
  return hasher.Finish();
}

absl::StatusOr<proto::PlanRecord> PlanCache::Get(const Digest& key) const {
  INLAY_ASSIGN_OR_RETURN(std::string bytes, table_->Get(key));
  return Parse(bytes);
}

absl::StatusOr<proto::PlanRecord> PlanCache::PutIfAbsent(const Digest& key, const proto::PlanRecord& record) {
  INLAY_ASSIGN_OR_RETURN(std::string bytes, table_->PutIfAbsent(key, DeterministicBytes(record)));
  return Parse(bytes);
}

absl::Status PlanCache::Replace(const Digest& key, const proto::PlanRecord& record) {
  return table_->Put(key, DeterministicBytes(record));
}

}  // namespace inlay::compiler
