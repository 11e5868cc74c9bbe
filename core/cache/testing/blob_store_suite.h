// What every BlobStore must do. A store's own test links :blob_store_suite and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, BlobStoreSuite, testing::Values(BlobStoreFactory{[](int64_t max_bytes) {
//                              return std::make_unique<MemoryBlobStore>(max_bytes); }}));
#ifndef INLAY_CORE_CACHE_TESTING_BLOB_STORE_SUITE_H_
#define INLAY_CORE_CACHE_TESTING_BLOB_STORE_SUITE_H_

#include <functional>
#include <memory>
#include <ostream>

#include "core/cache/blob_store.h"
#include "gtest/gtest.h"

namespace inlay::cache {

struct BlobStoreFactory {
  // An empty store with this bound. What the store stands on lives as long as the store.
  std::function<std::unique_ptr<BlobStore>(int64_t max_bytes)> make;
};
inline std::ostream& operator<<(std::ostream& out, const BlobStoreFactory&) { return out << "factory"; }

class BlobStoreSuite : public ::testing::TestWithParam<BlobStoreFactory> {
 protected:
  std::unique_ptr<BlobStore> Make(int64_t max_bytes = 64 << 20) { return GetParam().make(max_bytes); }
};

}  // namespace inlay::cache

#endif  // INLAY_CORE_CACHE_TESTING_BLOB_STORE_SUITE_H_
