#include "core/cache/testing/blob_store_suite.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace inlay::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Bytes(size_t n, uint32_t seed) {
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525u + 1013904223u) >> 24);
  return bytes;
}

TEST_P(BlobStoreSuite, GetsWhatWasPut) {
  auto store = Make();
  for (size_t size : {0, 1, 4096, 100000, 3 << 20}) {
    const std::string bytes = Bytes(size, 1);
    absl::StatusOr<Digest> digest = store->Put(bytes);
    ASSERT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(*digest, Digest::Of(bytes));
    absl::StatusOr<Blob> blob = store->Get(*digest);
    ASSERT_TRUE(blob.ok()) << blob.status();
    EXPECT_EQ(blob->view(), bytes);
    EXPECT_TRUE(store->Contains(*digest).value());
  }
}

TEST_P(BlobStoreSuite, AMissIsNotFoundAndNamesTheBlob) {
  auto store = Make();
  const Digest digest = Digest::Of("absent");
  EXPECT_EQ(store->Get(digest).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store->Get(digest).status().message(), HasSubstr(digest.hex()));
  EXPECT_FALSE(store->Contains(digest).value());
}

TEST_P(BlobStoreSuite, PutTwiceIsPutOnce) {
  auto store = Make();
  const Digest digest = store->Put("same").value();
  EXPECT_EQ(store->Put("same").value(), digest);
  EXPECT_EQ(store->Get(digest).value().view(), "same");
}

TEST_P(BlobStoreSuite, RefusesDataThatIsNotTheDigests) {
  auto store = Make();
  const Digest digest = Digest::Of("right");
  absl::Status status = store->Put(digest, "wrong");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(digest.hex()));
  EXPECT_FALSE(store->Contains(digest).value());
  EXPECT_TRUE(store->Put(digest, "right").ok());
}

TEST_P(BlobStoreSuite, FindMissingKeepsOrderAndNamesEachOnce) {
  auto store = Make();
  const Digest a = store->Put("a").value();
  const Digest b = Digest::Of("b"), c = Digest::Of("c");
  EXPECT_THAT(store->FindMissing({c, a, b, c}).value(), ElementsAre(c, b));
  EXPECT_THAT(store->FindMissing({}).value(), IsEmpty());
}

TEST_P(BlobStoreSuite, WriterTakesPieces) {
  auto store = Make();
  const std::string bytes = Bytes(2500000, 7);
  const Digest digest = Digest::Of(bytes);
  auto writer = store->NewWriter(digest, bytes.size()).value();
  for (size_t i = 0; i < bytes.size(); i += 65536) {
    ASSERT_TRUE(writer->Append(absl::string_view(bytes).substr(i, 65536)).ok());
  }
  EXPECT_FALSE(store->Contains(digest).value()) << "visible before Commit";
  absl::Status status = writer->Commit();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(store->Get(digest).value().view(), bytes);
}

TEST_P(BlobStoreSuite, WriterRefusesTooMuchTooLittleAndTheWrongBytes) {
  auto store = Make();
  const Digest digest = Digest::Of("right");
  auto too_much = store->NewWriter(digest, 5).value();
  ASSERT_TRUE(too_much->Append("righ").ok());
  EXPECT_EQ(too_much->Append("ts").code(), absl::StatusCode::kInvalidArgument);
  auto too_little = store->NewWriter(digest, 5).value();
  ASSERT_TRUE(too_little->Append("righ").ok());
  EXPECT_EQ(too_little->Commit().code(), absl::StatusCode::kInvalidArgument);
  auto wrong = store->NewWriter(digest, 5).value();
  ASSERT_TRUE(wrong->Append("wrong").ok());
  EXPECT_EQ(wrong->Commit().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->NewWriter(digest, -1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(store->Contains(digest).value());
}

TEST_P(BlobStoreSuite, WriterThatIsDroppedLeavesNothing) {
  auto store = Make();
  const Digest digest = Digest::Of("right");
  {
    auto writer = store->NewWriter(digest, 5).value();
    ASSERT_TRUE(writer->Append("right").ok());
  }
  EXPECT_FALSE(store->Contains(digest).value());
}

TEST_P(BlobStoreSuite, TwoWritersOfOneBlob) {
  auto store = Make();
  const Digest digest = Digest::Of("right");
  auto one = store->NewWriter(digest, 5).value();
  auto two = store->NewWriter(digest, 5).value();
  ASSERT_TRUE(one->Append("right").ok() && two->Append("right").ok());
  EXPECT_TRUE(one->Commit().ok());
  EXPECT_TRUE(two->Commit().ok());
  EXPECT_EQ(store->Get(digest).value().view(), "right");
}

TEST_P(BlobStoreSuite, StaysWithinItsBoundAndKeepsWhatIsUsed) {
  auto store = Make(1000000);
  const Digest hot = store->Put(Bytes(100000, 1)).value();
  std::vector<Digest> cold;
  for (int i = 0; i < 30; ++i) {
    cold.push_back(store->Put(Bytes(100000, 100 + i)).value());
    ASSERT_TRUE(store->Get(hot).ok()) << "evicted although used after each put, at " << i;
  }
  const size_t missing = store->FindMissing(cold).value().size();
  EXPECT_GE(missing, 21) << "more than the bound";
  EXPECT_LE(missing, 25) << "evicts more than it needs to";
  EXPECT_FALSE(store->Contains(cold[0]).value());
  EXPECT_TRUE(store->Contains(cold[29]).value());
}

TEST_P(BlobStoreSuite, ABlobOverTheBoundIsRefusedAndEvictsNothing) {
  auto store = Make(1000000);
  const Digest small = store->Put("small").value();
  const std::string big = Bytes(1000001, 3);
  EXPECT_EQ(store->Put(big).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->Get(small).ok());
}

TEST_P(BlobStoreSuite, PinnedBlobsStay) {
  auto store = Make(1000000);
  const std::string bytes = Bytes(400000, 1);
  const Digest pinned = Digest::Of(bytes);
  BlobPin pin = store->Pin({pinned});
  if (pin == nullptr) GTEST_SKIP() << "never evicts";
  ASSERT_TRUE(store->Put(bytes).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->Put(Bytes(400000, 100 + i)).ok());
  EXPECT_TRUE(store->Get(pinned).ok());
  EXPECT_EQ(store->Put(Bytes(700000, 2)).status().code(), absl::StatusCode::kResourceExhausted)
      << "a pin gives way to nothing";
  EXPECT_TRUE(store->Get(pinned).ok());
  pin.reset();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->Put(Bytes(400000, 200 + i)).ok());
  EXPECT_FALSE(store->Contains(pinned).value());
}

TEST_P(BlobStoreSuite, AReadBlobOutlivesItsEviction) {
  auto store = Make(5000000);
  const std::string bytes = Bytes(2000000, 1);
  const Digest digest = store->Put(bytes).value();
  const Blob blob = store->Get(digest).value();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->Put(Bytes(2000000, 100 + i)).ok());
  ASSERT_FALSE(store->Contains(digest).value());
  EXPECT_EQ(blob.view(), bytes);
}

TEST_P(BlobStoreSuite, ManyThreads) {
  auto store = Make(2000000);  // with eviction going on
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string bytes = Bytes(20000, (t % 2) * 1000 + i);  // two threads put the same
        absl::StatusOr<Digest> digest = store->Put(bytes);
        ASSERT_TRUE(digest.ok()) << digest.status();
        absl::StatusOr<Blob> blob = store->Get(*digest);
        if (blob.ok()) {
          EXPECT_EQ(blob->view(), bytes);
        } else {
          EXPECT_EQ(blob.status().code(), absl::StatusCode::kNotFound);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace inlay::cache
