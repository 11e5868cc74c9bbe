#include "core/cache/disk/disk_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/cache/completeness_checking_action_cache.h"
#include "core/cache/testing/action_cache_suite.h"
#include "core/cache/testing/blob_store_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::cache {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::Values;

// A cache in a directory of its own, which hands its store out as the suites want it.
struct World {
  explicit World(int64_t max_bytes = 64 << 20) {
    options.directory = dir.path() + "/cache";
    options.max_bytes = max_bytes;
    cache = DiskCache::Open(options, &registry).value();
  }
  TempDir dir = TempDir::Create("disk_cache_test").value();
  metrics::Registry registry;
  DiskCacheOptions options;
  std::unique_ptr<DiskCache> cache;
};
struct SuiteBlobs : World, BlobStore {
  explicit SuiteBlobs(int64_t max_bytes) : World(max_bytes) {}
  absl::StatusOr<std::vector<Digest>> FindMissing(absl::Span<const Digest> d) override {
    return cache->blobs().FindMissing(d);
  }
  absl::StatusOr<Blob> Get(const Digest& d) override { return cache->blobs().Get(d); }
  absl::StatusOr<std::unique_ptr<BlobWriter>> NewWriter(const Digest& d, int64_t n) override {
    return cache->blobs().NewWriter(d, n);
  }
  BlobPin Pin(absl::Span<const Digest> d) override { return cache->blobs().Pin(d); }
  absl::Status DoPut(const Digest& d, absl::string_view data) override { return ForwardPut(cache->blobs(), d, data); }
};
struct SuiteActions : World, ActionCache {
  absl::StatusOr<ActionResult> Lookup(const Digest& a) override { return cache->actions().Lookup(a); }
  absl::Status Update(const Digest& a, const ActionResult& r) override { return cache->actions().Update(a, r); }
};
struct SuiteTable : World, KeyValueTable {
  std::unique_ptr<KeyValueTable> table = cache->Table("t");
  absl::StatusOr<std::string> Get(const Digest& k) override { return table->Get(k); }
  absl::StatusOr<std::string> PutIfAbsent(const Digest& k, absl::string_view v) override {
    return table->PutIfAbsent(k, v);
  }
  absl::Status Put(const Digest& k, absl::string_view v) override { return table->Put(k, v); }
  absl::StatusOr<int64_t> Count() override { return table->Count(); }
};
INSTANTIATE_TEST_SUITE_P(Disk, BlobStoreSuite, Values(BlobStoreFactory{[](int64_t max_bytes) {
                           return std::make_unique<SuiteBlobs>(max_bytes);
                         }}));
INSTANTIATE_TEST_SUITE_P(Disk, ActionCacheSuite,
                         Values(ActionCacheFactory{[] { return std::make_unique<SuiteActions>(); }}));
INSTANTIATE_TEST_SUITE_P(Disk, KeyValueTableSuite,
                         Values(KeyValueTableFactory{[] { return std::make_unique<SuiteTable>(); }}));

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() {
    options_.directory = dir_.path() + "/cache";
    options_.clock = &clock_;
    Open();
  }
  void Open() {
    cache_ = nullptr;
    cache_ = DiskCache::Open(options_, &registry_).value();
  }
  BlobStore& blobs() { return cache_->blobs(); }
  ActionCache& actions() { return cache_->actions(); }
  std::string Path(const char* kind, const Digest& digest) {
    return absl::StrCat(options_.directory, "/", kind, "/", digest.hex().substr(0, 2), "/", digest.hex());
  }
  std::string BlobPath(const Digest& digest) { return Path("blobs", digest); }
  void Overwrite(const std::string& path, absl::string_view bytes) {
    ASSERT_TRUE(FileSystem::Default()->CreateDirectories(DirName(path)).ok());
    chmod(path.c_str(), 0644);
    std::ofstream(path, std::ios::trunc) << bytes;
  }
  std::vector<std::string> List(const char* name) {
    return FileSystem::Default()->List(options_.directory + "/" + name).value();
  }
  double Metric(const std::string& name) { return registry_.Snapshot()[name]; }

  TempDir dir_ = TempDir::Create("disk_cache_test").value();
  FakeClock clock_;
  metrics::Registry registry_;
  DiskCacheOptions options_;
  std::unique_ptr<DiskCache> cache_;
};

TEST_F(DiskCacheTest, EverythingIsThereAfterReopening) {
  const Digest blob = blobs().Put("blob").value();
  const Digest action = Digest::Of("action");
  ASSERT_TRUE(actions().Update(action, {{blob}, "data"}).ok());
  ASSERT_TRUE(cache_->Table("costs")->PutIfAbsent(action, "12.5").ok());
  Open();
  EXPECT_EQ(blobs().Get(blob).value().view(), "blob");
  EXPECT_EQ(actions().Lookup(action).value().blobs[0], blob);
  EXPECT_EQ(cache_->Table("costs")->Get(action).value(), "12.5");
  EXPECT_EQ(cache_->Table("plans")->Get(action).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 1);
  EXPECT_EQ(Metric("inlay_disk_cache_bytes{kind=\"action\"}"), 4096);
}

TEST_F(DiskCacheTest, ADamagedBlobIsSetAsideCountedAndCanBePutAgain) {
  const std::string good(5000, 'g');
  std::string flipped = good;
  flipped[4000] ^= 1;
  int damaged = 0;
  for (const std::string& bad : {flipped, good.substr(0, 4999), good + "g", std::string()}) {
    const Digest digest = blobs().Put(good).value();
    Overwrite(BlobPath(digest), bad);
    absl::Status status = blobs().Get(digest).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(digest.hex()));
    EXPECT_EQ(blobs().Get(digest).status().code(), absl::StatusCode::kNotFound);
    EXPECT_FALSE(blobs().Contains(digest).value());
    EXPECT_EQ(Metric("inlay_disk_cache_corrupt_total{kind=\"blob\"}"), ++damaged);
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(List("quarantine"), SizeIs(4));
  const Digest digest = blobs().Put(good).value();
  EXPECT_EQ(blobs().Get(digest).value().view(), good);
}

TEST_F(DiskCacheTest, AMappedBlobIsVerifiedToo) {
  std::string bytes(3 << 20, 'm');
  const Digest digest = blobs().Put(bytes).value();
  bytes[2 << 20] ^= 4;
  Overwrite(BlobPath(digest), bytes);
  EXPECT_EQ(blobs().Get(digest).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(DiskCacheTest, PutOverADamagedBlobMendsIt) {
  const Digest digest = blobs().Put("good").value();
  Overwrite(BlobPath(digest), "evil");
  ASSERT_TRUE(blobs().Put("good").ok());
  EXPECT_EQ(blobs().Get(digest).value().view(), "good");
  Overwrite(BlobPath(digest), "evil");
  auto writer = blobs().NewWriter(digest, 4).value();
  ASSERT_TRUE(writer->Append("good").ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(blobs().Get(digest).value().view(), "good");
}

TEST_F(DiskCacheTest, ADamagedResultIsSetAside) {
  const Digest action = Digest::Of("action"), other = Digest::Of("other");
  const ActionResult result = {{Digest::Of("a")}, "data of more than a few bytes"};
  ASSERT_TRUE(actions().Update(action, result).ok());
  const std::string good = ReadFile(Path("actions", action)).value();
  std::vector<std::string> bad = {"", good.substr(0, good.size() - 1), good + "x", good.substr(0, 15)};
  for (size_t i = 0; i < good.size(); ++i) {
    bad.push_back(good);
    bad.back()[i] ^= 0x10;
  }
  for (const std::string& bytes : bad) {
    Overwrite(Path("actions", action), bytes);
    EXPECT_EQ(actions().Lookup(action).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(actions().Lookup(action).status().code(), absl::StatusCode::kNotFound);
    ASSERT_TRUE(actions().Update(action, result).ok());
    EXPECT_EQ(actions().Lookup(action).value(), result);
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(List("quarantine"), SizeIs(100)) << "bounded, of " << bad.size();
  // A good file under the wrong name.
  ASSERT_TRUE(actions().Update(other, {}).ok());
  Overwrite(Path("actions", other), good);
  EXPECT_EQ(actions().Lookup(other).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(DiskCacheTest, AResultWhoseBlobWasDamagedIsAMissAfterwards) {
  CompletenessCheckingActionCache checking(&actions(), &blobs(), &registry_);
  const Digest blob = blobs().Put("blob").value();
  const Digest action = Digest::Of("action");
  ASSERT_TRUE(checking.Update(action, {{blob}, ""}).ok());
  Overwrite(BlobPath(blob), "bl0b");
  EXPECT_EQ(blobs().Get(blob).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(checking.Lookup(action).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DiskCacheTest, EvictsWhatWasUsedLongestAgoAlsoAfterReopening) {
  options_.max_bytes = 10 * 4096;
  Open();
  std::vector<Digest> digests;
  for (int i = 0; i < 10; ++i) {
    digests.push_back(blobs().Put(absl::StrCat("blob", i)).value());
    clock_.Advance(absl::Seconds(1));
  }
  ASSERT_TRUE(blobs().Get(digests[0]).ok());
  blobs().Touch({digests[1]});
  Open();  // the uses were written
  EXPECT_THAT(blobs().FindMissing(digests).value(), IsEmpty()) << "exactly the bound fits";
  // That was a use of all, in order.
  ASSERT_TRUE(blobs().Get(digests[0]).ok());
  blobs().Touch({digests[1]});
  ASSERT_TRUE(blobs().Put("one more").ok());
  EXPECT_EQ(Metric("inlay_disk_cache_evicted_total"), 2) << "down to nine tenths";
  EXPECT_THAT(blobs().FindMissing(digests).value(), testing::ElementsAre(digests[2], digests[3]));
  EXPECT_LE(Metric("inlay_disk_cache_bytes{kind=\"blob\"}"), 9 * 4096);
}

TEST_F(DiskCacheTest, ManySmallResultsAreBoundedByWhatTheyTakeOnDisk) {
  options_.max_bytes = 100 * 4096;
  Open();
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(actions().Update(Digest::Of(absl::StrCat(i)), {}).ok());
  int files = 0;
  const std::vector<std::string> shards = List("actions");
  for (const std::string& shard : shards) files += List(("actions/" + shard).c_str()).size();
  EXPECT_LE(files, 100);
  EXPECT_GE(files, 90);
}

TEST_F(DiskCacheTest, ALostIndexIsMadeAgainAndEvictionGoesOn) {
  options_.max_bytes = 10 * 4096;
  Open();
  std::vector<Digest> digests;
  for (int i = 0; i < 8; ++i) digests.push_back(blobs().Put(absl::StrCat("blob", i)).value());
  cache_ = nullptr;
  for (const char* suffix : {"", "-wal", "-shm"}) unlink((options_.directory + "/index.db" + suffix).c_str());
  Open();
  EXPECT_THAT(blobs().FindMissing(digests).value(), IsEmpty());
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 8);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(blobs().Put(absl::StrCat("more", i)).ok());
  EXPECT_LE(Metric("inlay_disk_cache_bytes{kind=\"blob\"}"), 10 * 4096);
}

TEST_F(DiskCacheTest, AnIndexOfGarbageIsMadeAgain) {
  const Digest digest = blobs().Put("blob").value();
  cache_ = nullptr;
  Overwrite(options_.directory + "/index.db", std::string(20000, 'x'));
  Open();
  EXPECT_EQ(blobs().Get(digest).value().view(), "blob");
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 1);
  EXPECT_EQ(Metric("inlay_disk_cache_index_rebuilds"), 1);
}

TEST_F(DiskCacheTest, AnIndexDamagedWhileOpenIsMadeAgain) {
  std::vector<Digest> digests;
  for (int i = 0; i < 50; ++i) digests.push_back(blobs().Put(absl::StrCat("blob", i)).value());
  cache_ = nullptr;
  Open();  // the log is merged into the file
  const std::string path = options_.directory + "/index.db";
  const std::string bytes = ReadFile(path).value();
  // In place, as a bad disk does: every page but the first.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(bytes.size() - 4096, '\xab');
  file.close();
  Open();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(blobs().Put(absl::StrCat("after", i)).ok());
  EXPECT_THAT(blobs().FindMissing(digests).value(), IsEmpty());
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 60);
  EXPECT_EQ(Metric("inlay_disk_cache_index_rebuilds"), 1);
}

TEST_F(DiskCacheTest, AnIndexRemovedWhileOpenIsMadeAgain) {
  ASSERT_TRUE(blobs().Put("before").ok());
  unlink((options_.directory + "/index.db").c_str());
  ASSERT_TRUE(blobs().Put("after").ok());
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 2);
}

TEST_F(DiskCacheTest, ANewBootReconciles) {
  options_.boot_id = "boot 1";
  Open();
  const Digest kept = blobs().Put("kept").value();
  const Digest gone = blobs().Put("gone").value();
  const Digest stray = Digest::Of("stray");
  cache_ = nullptr;
  unlink(BlobPath(gone).c_str());
  Overwrite(BlobPath(stray), "stray");
  Open();
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 2) << "the same boot: not looked for";
  EXPECT_TRUE(blobs().Get(stray).ok());
  Open();
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 3) << "a read gives a file its row";
  options_.boot_id = "boot 2";
  Open();
  EXPECT_EQ(Metric("inlay_disk_cache_files{kind=\"blob\"}"), 2);
  EXPECT_THAT(blobs().FindMissing({kept, gone, stray}).value(), testing::ElementsAre(gone));
}

TEST_F(DiskCacheTest, TwoCachesOnOneDirectory) {
  options_.max_bytes = 20 * 4096;
  Open();
  metrics::Registry other_registry;
  auto other = DiskCache::Open(options_, &other_registry).value();
  const Digest digest = blobs().Put("blob").value();
  EXPECT_EQ(other->blobs().Get(digest).value().view(), "blob");
  EXPECT_EQ(other->Table("t")->PutIfAbsent(digest, "other").value(), "other");
  EXPECT_EQ(cache_->Table("t")->PutIfAbsent(digest, "this").value(), "other");
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE((i % 2 ? blobs() : other->blobs()).Put(absl::StrCat("blob", i)).ok());
  }
  EXPECT_LE(Metric("inlay_disk_cache_bytes{kind=\"blob\"}"), 20 * 4096);
  EXPECT_GT(Metric("inlay_disk_cache_evicted_total"), 0);
  EXPECT_GT(other_registry.Snapshot()["inlay_disk_cache_bytes{kind=\"blob\"}"], 17 * 4096) << "counts both's files";
}

TEST_F(DiskCacheTest, TemporaryFilesOfTheDeadGoThoseOfTheLivingStay) {
  const std::string tmp = options_.directory + "/tmp/";
  auto writer = blobs().NewWriter(Digest::Of("blob"), 4).value();
  ASSERT_TRUE(writer->Append("bl").ok());
  ASSERT_TRUE(FileSystem::Default()->CreateDirectories(tmp + "123-dead").ok());
  Overwrite(tmp + "123-dead/lock", "");
  Overwrite(tmp + "123-dead/7", "half");
  metrics::Registry registry;
  auto other = DiskCache::Open(options_, &registry).value();
  EXPECT_THAT(List("tmp"), SizeIs(2)) << "this one's and the other's";
  ASSERT_TRUE(writer->Append("ob").ok());
  EXPECT_TRUE(writer->Commit().ok());
  writer = nullptr;
  other = nullptr;
  cache_ = nullptr;
  EXPECT_THAT(List("tmp"), IsEmpty());
}

TEST_F(DiskCacheTest, ADirectoryRemovedWhileOpenIsMadeAgain) {
  ASSERT_TRUE(blobs().Put("before").ok());
  ASSERT_TRUE(FileSystem::Default()->RemoveTree(options_.directory).ok());
  EXPECT_EQ(blobs().Get(Digest::Of("before")).status().code(), absl::StatusCode::kNotFound);
  absl::StatusOr<Digest> digest = blobs().Put("after");
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(blobs().Get(*digest).value().view(), "after");
}

TEST_F(DiskCacheTest, AnUnknownFormatIsRefusedAndNotTouched) {
  cache_ = nullptr;
  Overwrite(options_.directory + "/FORMAT", "inlay-cache 9\n");
  absl::Status status = DiskCache::Open(options_, &registry_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("inlay-cache 9"));
}

TEST_F(DiskCacheTest, ADirectoryThatCannotBeMadeIsNamed) {
  DiskCacheOptions options;
  options.directory = "/proc/nowhere/cache";
  EXPECT_THAT(DiskCache::Open(options, &registry_).status().message(), HasSubstr("/proc/nowhere/cache"));
}

TEST_F(DiskCacheTest, DamagedTablesAreSetAsideAndDamagedRowsAreAbsent) {
  const Digest key = Digest::Of("key");
  ASSERT_TRUE(cache_->Table("t")->PutIfAbsent(key, "a value that can be found").ok());
  cache_ = nullptr;
  const std::string path = options_.directory + "/tables.db";
  std::string bytes = ReadFile(path).value();
  const size_t at = bytes.find("a value that");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'b';
  Overwrite(path, bytes);
  Open();
  EXPECT_EQ(cache_->Table("t")->Get(key).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cache_->Table("t")->PutIfAbsent(key, "new").value(), "new");
  cache_ = nullptr;
  Overwrite(path, "garbage, not a database, of more than a hundred bytes" + std::string(200, '.'));
  Open();
  EXPECT_EQ(cache_->Table("t")->Get(key).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(List("quarantine"), SizeIs(1));
}

}  // namespace
}  // namespace inlay::cache
