// An ActionCache that answers NOT_FOUND where a blob that the result names is no longer in the BlobStore, so that its
// caller runs the action again instead of failing later (bazel#18696). Counts those as
// inlay_action_cache_incomplete_total.
#ifndef INLAY_CORE_CACHE_COMPLETENESS_CHECKING_ACTION_CACHE_H_
#define INLAY_CORE_CACHE_COMPLETENESS_CHECKING_ACTION_CACHE_H_

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cache/action_cache.h"
#include "core/cache/blob_store.h"
#include "core/metrics/registry.h"

namespace inlay::cache {

class CompletenessCheckingActionCache : public ActionCache {
 public:
  // None is owned; all outlive this.
  CompletenessCheckingActionCache(ActionCache* base, BlobStore* blobs, metrics::Registry* registry)
      : base_(base),
        blobs_(blobs),
        incomplete_(registry->GetCounter("inlay_action_cache_incomplete_total",
                                         "Results found whose blobs had gone: answered as misses")) {}

  absl::StatusOr<ActionResult> Lookup(const Digest& action) override {
    INLAY_ASSIGN_OR_RETURN(ActionResult result, base_->Lookup(action));
    INLAY_ASSIGN_OR_RETURN(std::vector<Digest> missing, blobs_->FindMissing(result.blobs));
    if (missing.empty()) return result;
    incomplete_.Increment();
    return absl::NotFoundError(
        absl::StrCat("action ", action.hex(), ": its result names blob ", missing[0].hex(), ", which has gone"));
  }

  absl::Status Update(const Digest& action, const ActionResult& result) override {
    return base_->Update(action, result);
  }

 private:
  ActionCache* const base_;
  BlobStore* const blobs_;
  metrics::Counter& incomplete_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_COMPLETENESS_CHECKING_ACTION_CACHE_H_
