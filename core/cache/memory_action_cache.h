// ActionCache in memory, bounded, least recently used out first. For tests, and as the fast tier before a disk.
#ifndef INLAY_CORE_CACHE_MEMORY_ACTION_CACHE_H_
#define INLAY_CORE_CACHE_MEMORY_ACTION_CACHE_H_

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/cache/action_cache.h"
#include "core/cache/lru_map.h"

namespace inlay::cache {

class MemoryActionCache : public ActionCache {
 public:
  explicit MemoryActionCache(int64_t max_bytes = INT64_MAX) : results_(max_bytes) {}

  absl::StatusOr<ActionResult> Lookup(const Digest& action) override {
    absl::MutexLock lock(&mu_);
    const ActionResult* result = results_.Find(action);
    if (result == nullptr) return absl::NotFoundError(absl::StrCat("action ", action.hex(), " is not in memory"));
    return *result;
  }

  absl::Status Update(const Digest& action, const ActionResult& result) override {
    const int64_t bytes = Digest::kSize * (1 + result.blobs.size()) + result.data.size();
    absl::MutexLock lock(&mu_);
    if (results_.Insert(action, result, bytes)) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("action ", action.hex(), ": no room in memory"));
  }

 private:
  absl::Mutex mu_;
  LruMap<Digest, ActionResult> results_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_MEMORY_ACTION_CACHE_H_
