// LruMap: a map that keeps the most recently used entries within a bound of bytes. For stores in memory.
// Not thread-safe.
#ifndef INLAY_CORE_CACHE_LRU_MAP_H_
#define INLAY_CORE_CACHE_LRU_MAP_H_

#include <cstdint>
#include <functional>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace inlay::cache {

template <typename Key, typename Value>
class LruMap {
 public:
  explicit LruMap(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Null where it has none. Counts as a use; valid until the next call of Insert.
  const Value* Find(const Key& key) {
    auto it = index_.find(key);
    if (it == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, it->second);
    return &it->second->value;
  }

  // Adds or replaces, then evicts from the other end; entries for which `keep` is true stay. False, without a change,
  // where the entry cannot fit.
  bool Insert(const Key& key, Value value, int64_t bytes, const std::function<bool(const Key&)>& keep = nullptr) {
    if (bytes > max_bytes_) return false;
    auto old = index_.find(key);
    const int64_t freed = old == index_.end() ? 0 : old->second->bytes;
    int64_t excess = bytes_ - freed + bytes - max_bytes_;
    std::list<Entry> victims;
    for (auto it = entries_.end(); excess > 0 && it != entries_.begin();) {
      auto victim = std::prev(it);
      if (victim->key == key || (keep && keep(victim->key))) {
        it = victim;
        continue;
      }
      excess -= victim->bytes;
      victims.splice(victims.begin(), entries_, victim);
    }
    if (excess > 0) {  // the rest is kept by force: undo
      entries_.splice(entries_.end(), victims);
      return false;
    }
    for (const Entry& victim : victims) {
      bytes_ -= victim.bytes;
      index_.erase(victim.key);
      ++evictions_;
    }
    Erase(key);
    entries_.push_front({key, std::move(value), bytes});
    index_[key] = entries_.begin();
    bytes_ += bytes;
    return true;
  }

  void Erase(const Key& key) {
    auto it = index_.find(key);
    if (it == index_.end()) return;
    bytes_ -= it->second->bytes;
    entries_.erase(it->second);
    index_.erase(it);
  }

  int64_t bytes() const { return bytes_; }
  int64_t count() const { return static_cast<int64_t>(index_.size()); }
  int64_t evictions() const { return evictions_; }

 private:
  struct Entry {
    Key key;
    Value value;
    int64_t bytes;
  };
  const int64_t max_bytes_;
  int64_t bytes_ = 0;
  int64_t evictions_ = 0;
  std::list<Entry> entries_;  // most recently used first
  absl::flat_hash_map<Key, typename std::list<Entry>::iterator> index_;
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_LRU_MAP_H_
