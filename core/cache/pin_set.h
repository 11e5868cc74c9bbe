// PinSet: which digests are pinned, and how often. Shared by the stores that evict. Threads: any.
#ifndef INLAY_CORE_CACHE_PIN_SET_H_
#define INLAY_CORE_CACHE_PIN_SET_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/base/digest.h"
#include "core/cache/blob_store.h"

namespace inlay::cache {

class PinSet : public std::enable_shared_from_this<PinSet> {
 public:
  static std::shared_ptr<PinSet> Create() { return std::shared_ptr<PinSet>(new PinSet); }

  // The pin keeps the set alive, not the store.
  BlobPin Pin(absl::Span<const Digest> digests) {
    absl::MutexLock lock(&mu_);
    for (const Digest& digest : digests) ++counts_[digest];
    auto unpin = [set = shared_from_this(), copy = std::vector<Digest>(digests.begin(), digests.end())](const void*) {
      absl::MutexLock unlock(&set->mu_);
      for (const Digest& digest : copy) {
        auto it = set->counts_.find(digest);
        if (--it->second == 0) set->counts_.erase(it);
      }
    };
    return BlobPin(this, std::move(unpin));
  }

  bool Contains(const Digest& digest) const {
    absl::MutexLock lock(&mu_);
    return counts_.contains(digest);
  }

 private:
  PinSet() = default;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<Digest, int> counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_PIN_SET_H_
