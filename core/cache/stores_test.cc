// The stores in memory and the decorators, by the suites that every store passes, and what is particular to each.
#include "core/cache/completeness_checking_action_cache.h"
#include "core/cache/memory_action_cache.h"
#include "core/cache/memory_blob_store.h"
#include "core/cache/memory_key_value_table.h"
#include "core/cache/metered_action_cache.h"
#include "core/cache/metered_blob_store.h"
#include "core/cache/testing/action_cache_suite.h"
#include "core/cache/testing/blob_store_suite.h"
#include "core/cache/tiered_blob_store.h"
#include "gmock/gmock.h"

namespace inlay::cache {
namespace {

using ::testing::HasSubstr;
using ::testing::Values;

struct TieredWorld {
  TieredWorld(int64_t max_bytes, int64_t fast) : fast_store(fast), slow_store(max_bytes) {}
  MemoryBlobStore fast_store, slow_store;
};
// Owns what it stands on, as the suite wants it.
struct OwningTiered : TieredWorld, TieredBlobStore {
  OwningTiered(int64_t max_bytes, int64_t fast)
      : TieredWorld(max_bytes, fast), TieredBlobStore(&fast_store, &slow_store) {}
};
struct MeteredWorld {
  explicit MeteredWorld(int64_t max_bytes) : store(max_bytes) {}
  metrics::Registry registry;
  MemoryBlobStore store;
};
struct OwningMetered : MeteredWorld, MeteredBlobStore {
  explicit OwningMetered(int64_t max_bytes) : MeteredWorld(max_bytes), MeteredBlobStore(&store, &registry, "memory") {}
};

INSTANTIATE_TEST_SUITE_P(Memory, BlobStoreSuite, Values(BlobStoreFactory{[](int64_t max_bytes) {
                           return std::make_unique<MemoryBlobStore>(max_bytes);
                         }}));
// A fast tier with room for one small blob: hits and misses of it both happen. Touch is not seen by a MemoryBlobStore,
// so that "keeps what is used" needs the fast tier never to answer the hot blob: 50,000 bytes.
INSTANTIATE_TEST_SUITE_P(Tiered, BlobStoreSuite, Values(BlobStoreFactory{[](int64_t max_bytes) {
                           return std::make_unique<OwningTiered>(max_bytes, 50000);
                         }}));
INSTANTIATE_TEST_SUITE_P(Metered, BlobStoreSuite, Values(BlobStoreFactory{[](int64_t max_bytes) {
                           return std::make_unique<OwningMetered>(max_bytes);
                         }}));
INSTANTIATE_TEST_SUITE_P(Memory, ActionCacheSuite,
                         Values(ActionCacheFactory{[] { return std::make_unique<MemoryActionCache>(); }}));
INSTANTIATE_TEST_SUITE_P(Memory, KeyValueTableSuite,
                         Values(KeyValueTableFactory{[] { return std::make_unique<MemoryKeyValueTable>(); }}));

TEST(TieredBlobStoreTest, ReadsThroughOnceAndTellsTheSlowStoreOfHits) {
  class CountingStore : public MemoryBlobStore {
   public:
    absl::StatusOr<Blob> Get(const Digest& digest) override {
      ++gets;
      return MemoryBlobStore::Get(digest);
    }
    void Touch(absl::Span<const Digest> digests) override { touches += digests.size(); }
    int gets = 0, touches = 0;
  };
  MemoryBlobStore fast(1000);
  CountingStore slow;
  TieredBlobStore tiered(&fast, &slow, /*max_fast_bytes=*/100);
  const Digest small = slow.Put(std::string(100, 's')).value();
  const Digest large = slow.Put(std::string(101, 'l')).value();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tiered.Get(small).ok());
  EXPECT_EQ(slow.gets, 1);
  EXPECT_EQ(slow.touches, 2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(tiered.Get(large).ok());
  EXPECT_EQ(slow.gets, 4) << "large blobs pass by the fast store";
}

TEST(TieredBlobStoreTest, PutIsAcknowledgedByTheSlowStore) {
  MemoryBlobStore fast, slow(10);
  TieredBlobStore tiered(&fast, &slow);
  EXPECT_EQ(tiered.Put("more than ten bytes").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(fast.count(), 0);
}

TEST(MeteredTest, CountsByResult) {
  metrics::Registry registry;
  MemoryBlobStore store;
  MeteredBlobStore metered(&store, &registry, "m");
  const Digest digest = metered.Put("12345").value();
  ASSERT_TRUE(metered.Get(digest).ok());
  ASSERT_TRUE(metered.Get(digest).ok());
  ASSERT_FALSE(metered.Get(Digest::Of("absent")).ok());
  auto values = registry.Snapshot();
  EXPECT_EQ(values[R"(inlay_blob_store_requests_total{code="OK",op="get",store="m"})"], 2);
  EXPECT_EQ(values[R"(inlay_blob_store_requests_total{code="NOT_FOUND",op="get",store="m"})"], 1);
  EXPECT_EQ(values[R"(inlay_blob_store_bytes_total{op="get",store="m"})"], 10);
  EXPECT_EQ(values[R"(inlay_blob_store_bytes_total{op="put",store="m"})"], 5);
  EXPECT_EQ(values[R"(inlay_blob_store_seconds_count{op="get",store="m"})"], 3);

  MemoryActionCache cache;
  MeteredActionCache metered_cache(&cache, &registry, "m");
  ASSERT_TRUE(metered_cache.Update(digest, {}).ok());
  ASSERT_TRUE(metered_cache.Lookup(digest).ok());
  values = registry.Snapshot();
  EXPECT_EQ(values[R"(inlay_action_cache_requests_total{code="OK",op="lookup",store="m"})"], 1);
}

TEST(CompletenessTest, AResultWhoseBlobHasGoneIsAMiss) {
  metrics::Registry registry;
  MemoryBlobStore blobs(100);
  MemoryActionCache cache;
  CompletenessCheckingActionCache checking(&cache, &blobs, &registry);
  const Digest blob = blobs.Put(std::string(60, 'a')).value();
  const Digest action = Digest::Of("action");
  ASSERT_TRUE(checking.Update(action, {{blob}, "data"}).ok());
  EXPECT_EQ(checking.Lookup(action).value().data, "data");
  ASSERT_TRUE(blobs.Put(std::string(60, 'b')).ok());  // evicts
  absl::Status status = checking.Lookup(action).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(blob.hex()));
  EXPECT_EQ(registry.Snapshot()["inlay_action_cache_incomplete_total"], 1);
}

}  // namespace
}  // namespace inlay::cache
