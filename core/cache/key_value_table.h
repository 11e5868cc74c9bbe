// KeyValueTable: small durable facts under a digest that cannot be derived again from the key (a measured cost, the
// plan that was chosen), as against the ActionCache, whose results can. The first writer wins, so that two processes
// which measure the same thing at once go on with the same answer.
//
// Errors: NOT_FOUND; a row that was damaged counts as absent. RESOURCE_EXHAUSTED, UNAVAILABLE as in blob_store.h.
// Threads: any.
#ifndef INLAY_CORE_CACHE_KEY_VALUE_TABLE_H_
#define INLAY_CORE_CACHE_KEY_VALUE_TABLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/base/digest.h"

namespace inlay::cache {

class KeyValueTable {
 public:
  virtual ~KeyValueTable() = default;
  virtual absl::StatusOr<std::string> Get(const Digest& key) = 0;
  // The value that the table now has: `value`, or that of whoever was first.
  virtual absl::StatusOr<std::string> PutIfAbsent(const Digest& key, absl::string_view value) = 0;
  // Replaces (a plan that the user asked to renew).
  virtual absl::Status Put(const Digest& key, absl::string_view value) = 0;
  virtual absl::StatusOr<int64_t> Count() = 0;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_KEY_VALUE_TABLE_H_
