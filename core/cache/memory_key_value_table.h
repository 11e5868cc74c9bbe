// KeyValueTable in memory, for tests.
#ifndef INLAY_CORE_CACHE_MEMORY_KEY_VALUE_TABLE_H_
#define INLAY_CORE_CACHE_MEMORY_KEY_VALUE_TABLE_H_

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/cache/key_value_table.h"

namespace inlay::cache {

class MemoryKeyValueTable : public KeyValueTable {
 public:
  absl::StatusOr<std::string> Get(const Digest& key) override {
    absl::MutexLock lock(&mu_);
    auto it = rows_.find(key);
    if (it == rows_.end()) return absl::NotFoundError(absl::StrCat("no row ", key.hex()));
    return it->second;
  }
  absl::StatusOr<std::string> PutIfAbsent(const Digest& key, absl::string_view value) override {
    absl::MutexLock lock(&mu_);
    return rows_.emplace(key, value).first->second;
  }
  absl::Status Put(const Digest& key, absl::string_view value) override {
    absl::MutexLock lock(&mu_);
    rows_[key] = std::string(value);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Count() override {
    absl::MutexLock lock(&mu_);
    return rows_.size();
  }

 private:
  absl::Mutex mu_;
  absl::flat_hash_map<Digest, std::string> rows_ ABSL_GUARDED_BY(mu_);
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_MEMORY_KEY_VALUE_TABLE_H_
