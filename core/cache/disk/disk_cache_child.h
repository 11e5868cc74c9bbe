// What disk_cache_process_test and its child agree on.
#ifndef INLAY_CORE_CACHE_DISK_DISK_CACHE_CHILD_H_
#define INLAY_CORE_CACHE_DISK_DISK_CACHE_CHILD_H_

#include <cstdint>
#include <string>

#include "core/base/digest.h"

namespace inlay::cache {

inline std::string SeededBytes(uint32_t seed) {
  std::string bytes(1000 + seed % 7 * 3000, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525u + 1013904223u) >> 24);
  return bytes;
}
inline Digest SeededAction(int seed) { return Digest::Of("action " + std::to_string(seed)); }

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_DISK_DISK_CACHE_CHILD_H_
