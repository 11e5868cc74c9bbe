// An ActionCache that counts what passes through it:
//   inlay_action_cache_requests_total{store, op, code}  op: lookup update; a miss is NOT_FOUND
//   inlay_action_cache_seconds{store, op}
#ifndef INLAY_CORE_CACHE_METERED_ACTION_CACHE_H_
#define INLAY_CORE_CACHE_METERED_ACTION_CACHE_H_

#include <string>

#include "core/cache/action_cache.h"
#include "core/cache/request_meter.h"

namespace inlay::cache {

class MeteredActionCache : public ActionCache {
 public:
  // Neither pointer is owned; both outlive this.
  MeteredActionCache(ActionCache* base, metrics::Registry* registry, const std::string& name)
      : base_(base),
        lookup_(registry, "inlay_action_cache", name, "lookup"),
        update_(registry, "inlay_action_cache", name, "update") {}

  absl::StatusOr<ActionResult> Lookup(const Digest& action) override {
    const absl::Time start = absl::Now();
    absl::StatusOr<ActionResult> result = base_->Lookup(action);
    lookup_.Record(result.status().code(), start);
    return result;
  }

  absl::Status Update(const Digest& action, const ActionResult& result) override {
    const absl::Time start = absl::Now();
    absl::Status status = base_->Update(action, result);
    update_.Record(status.code(), start);
    return status;
  }

 private:
  ActionCache* const base_;
  RequestMeter lookup_, update_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_METERED_ACTION_CACHE_H_
