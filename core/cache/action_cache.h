// ActionCache (AC): the digest of an action -> what it yielded. The blobs that a result names are in a BlobStore, put
// there before the result is published; completeness_checking_action_cache.h answers NOT_FOUND where one has gone
// since.
//
// Errors: NOT_FOUND (a miss), DATA_LOSS (an entry that was damaged: set aside, a miss from now on), RESOURCE_EXHAUSTED,
// UNAVAILABLE, as in blob_store.h. A caller that can run the action treats every error of Lookup as a miss.
// Threads: any.
#ifndef INLAY_CORE_CACHE_ACTION_CACHE_H_
#define INLAY_CORE_CACHE_ACTION_CACHE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/digest.h"

namespace inlay::cache {

struct ActionResult {
  std::vector<Digest> blobs;  // what the result is of no use without, in an order that the caller gives a meaning
  std::string data;           // the caller's own (a serialized message); small: it is read at every lookup

  bool operator==(const ActionResult& o) const { return blobs == o.blobs && data == o.data; }
};

class ActionCache {
 public:
  virtual ~ActionCache() = default;
  virtual absl::StatusOr<ActionResult> Lookup(const Digest& action) = 0;
  // Replaces what was there. OK means durable, as in BlobStore::Put.
  virtual absl::Status Update(const Digest& action, const ActionResult& result) = 0;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_ACTION_CACHE_H_
