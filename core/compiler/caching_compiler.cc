#include "core/compiler/caching_compiler.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"

namespace inlay::compiler {
namespace {

// Whether a library is what the action should have yielded: so a mix-up of entries can't go unnoticed.
absl::Status CheckManifest(const Action& action, const proto::StaticLibraryManifest& manifest) {
  if (manifest.backend() != action.action.backend()) {
    return absl::DataLossError(absl::StrCat("library of backend '", manifest.backend(), "' under an action of '",
                                            action.action.backend(), "'"));
  }
  if (manifest.kernel_abi_version() != action.action.kernel_abi_version()) {
    return absl::DataLossError(absl::StrCat("library of kernel ABI ", manifest.kernel_abi_version()));
  }
  for (const auto& [name, function] : action.action.module().functions()) {
    bool implemented = false;
    for (const auto& primitive : manifest.functions()) implemented |= primitive.symbol() == name;
    if (!implemented) return absl::DataLossError(absl::StrCat("library lacks function ", name));
  }
  return absl::OkStatus();
}

Digest ExplanationKey(const Action& action) {
  Hasher hasher;
  hasher.UpdateField("explain/1").UpdateField(action.key.components.at("structure"));
  hasher.UpdateField(action.action.backend());
  return hasher.Finish();
}

std::string Components(const ActionKey& key) { return absl::StrJoin(key.components, "\n", absl::PairFormatter("\t")); }

}  // namespace

CachingCompiler::CachingCompiler(PartitionCompiler* compiler, cache::BlobStore* blobs, cache::ActionCache* actions,
                                 cache::KeyValueTable* explanations)
    : compiler_(compiler), blobs_(blobs), actions_(actions), explanations_(explanations) {}

absl::StatusOr<CompiledPartition> CachingCompiler::Lookup(const Action& action) {
  INLAY_ASSIGN_OR_RETURN(cache::ActionResult entry, actions_->Lookup(action.key.digest));
  if (entry.blobs.size() != 1) return absl::DataLossError("action cache entry without its library");
  INLAY_ASSIGN_OR_RETURN(cache::Blob blob, blobs_->Get(entry.blobs[0]));
  auto library = std::make_shared<proto::StaticLibrary>();
  if (!library->ParseFromArray(blob.view().data(), static_cast<int>(blob.size()))) {
    return absl::DataLossError("a cached library is not a StaticLibrary");
  }
  INLAY_RETURN_IF_ERROR(CheckManifest(action, library->manifest()));
  CompiledPartition result;
  result.library = std::move(library);
  result.library_digest = entry.blobs[0];
  result.hit = true;
  ++stats_.hits;
  return result;
}

absl::StatusOr<CompiledPartition> CachingCompiler::Compile(const Action& action, CancelToken* token) {
  auto flight =
      flights_.Do(action.key.digest, token, [&](CancelToken* flight_token) -> absl::StatusOr<CompiledPartition> {
        // Another request's flight may have landed between this one's lookup and now.
        absl::StatusOr<CompiledPartition> hit = Lookup(action);
        if (hit.ok()) return hit;
        return CompileAndStore(action, flight_token);
      });
  if (flight.shared) {
    ++stats_.shared_flights;
    if (flight.value.ok()) flight.value->ran_here = false;
  }
  return std::move(flight.value);
}

absl::StatusOr<CompiledPartition> CachingCompiler::CompileAndStore(const Action& action, CancelToken* token) {
  ++stats_.misses;
  CompiledPartition result;
  result.miss_reason = ExplainMiss(action);
  const absl::Time start = absl::Now();
  ++stats_.actions_run;
  absl::StatusOr<proto::StaticLibrary> library = compiler_->Compile(action.action, token);
  if (!library.ok()) {
    return Annotate(library.status(),
                    absl::StrCat("partition ", action.name, " (backend ", action.action.backend(), ")"));
  }
  INLAY_RETURN_IF_ERROR(Annotate(CheckManifest(action, library->manifest()), "a worker's answer"));
  result.compile_ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  result.ran_here = true;
  INLAY_ASSIGN_OR_RETURN(result.library_digest, Store(action, *library));
  result.library = std::make_shared<proto::StaticLibrary>(*std::move(library));
  return result;
}

// The blob first, the entry last: whoever reads the entry finds the blob.
absl::StatusOr<Digest> CachingCompiler::Store(const Action& action, const proto::StaticLibrary& library) {
  INLAY_ASSIGN_OR_RETURN(Digest digest, blobs_->Put(DeterministicBytes(library)));
  cache::ActionResult entry;
  entry.blobs = {digest};
  absl::Status stored = actions_->Update(action.key.digest, entry);
  if (!stored.ok()) ++stats_.write_failures;
  if (explanations_ != nullptr) {
    if (!explanations_->Put(ExplanationKey(action), Components(action.key)).ok()) ++stats_.write_failures;
  }
  return digest;
}

std::string CachingCompiler::ExplainMiss(const Action& action) {
  if (explanations_ == nullptr) return "not in the cache";
  absl::StatusOr<std::string> before = explanations_->Get(ExplanationKey(action));
  if (!before.ok()) return "new structure: this sub-graph was never compiled by this backend";
  std::vector<std::string> changed;
  for (absl::string_view line : absl::StrSplit(*before, '\n')) {
    std::pair<absl::string_view, absl::string_view> part = absl::StrSplit(line, absl::MaxSplits('\t', 1));
    auto now = action.key.components.find(std::string(part.first));
    if (now == action.key.components.end() || now->second == part.second) continue;
    changed.push_back(absl::StrCat(part.first, " changed from '", part.second, "' to '", now->second, "'"));
  }
  if (changed.empty()) return "its cache entry is gone (evicted, or damaged and set aside)";
  return absl::StrJoin(changed, "; ");
}

}  // namespace inlay::compiler
