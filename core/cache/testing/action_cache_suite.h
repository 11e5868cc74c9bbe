// What every ActionCache and every KeyValueTable must do; instantiated as blob_store_suite.h shows.
#ifndef INLAY_CORE_CACHE_TESTING_ACTION_CACHE_SUITE_H_
#define INLAY_CORE_CACHE_TESTING_ACTION_CACHE_SUITE_H_

#include <functional>
#include <memory>
#include <ostream>

#include "core/cache/action_cache.h"
#include "core/cache/key_value_table.h"
#include "gtest/gtest.h"

namespace inlay::cache {

struct ActionCacheFactory {
  std::function<std::unique_ptr<ActionCache>()> make;
};
inline std::ostream& operator<<(std::ostream& out, const ActionCacheFactory&) { return out << "factory"; }
class ActionCacheSuite : public ::testing::TestWithParam<ActionCacheFactory> {};

struct KeyValueTableFactory {
  std::function<std::unique_ptr<KeyValueTable>()> make;
};
inline std::ostream& operator<<(std::ostream& out, const KeyValueTableFactory&) { return out << "factory"; }
class KeyValueTableSuite : public ::testing::TestWithParam<KeyValueTableFactory> {};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_TESTING_ACTION_CACHE_SUITE_H_
