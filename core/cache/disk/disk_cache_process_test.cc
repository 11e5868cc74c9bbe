// Real processes on one directory: killed with SIGKILL at any moment, and several at once.
#include <algorithm>
#include <climits>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/subprocess.h"
#include "core/cache/disk/disk_cache.h"
#include "core/cache/disk/disk_cache_child.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::cache {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class DiskCacheProcessTest : public ::testing::Test {
 protected:
  SubprocessOptions Child(int64_t max_bytes, int first, int step, int count) {
    SubprocessOptions options;
    options.argv = {"core/cache/disk/disk_cache_child",
                    directory_,
                    absl::StrCat(max_bytes),
                    absl::StrCat(first),
                    absl::StrCat(step),
                    absl::StrCat(count)};
    options.pipe_stdout = true;
    return options;
  }

  // What a child says, until it has said `lines` lines or has ended.
  static std::string ReadLines(Subprocess* child, int lines) {
    std::string text;
    char buffer[4096];
    while (std::count(text.begin(), text.end(), '\n') < lines) {
      absl::StatusOr<size_t> n = child->ReadSome(buffer, sizeof(buffer), absl::Now() + absl::Seconds(60));
      if (!n.ok() || *n == 0) break;
      text.append(buffer, *n);
    }
    return text;
  }

  static std::vector<int> ParseSeeds(const std::string& text) {
    std::vector<int> seeds;
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    lines.pop_back();  // nothing, or half a line
    for (const std::string& line : lines) {
      int seed;
      EXPECT_TRUE(absl::SimpleAtoi(line, &seed)) << line;
      seeds.push_back(seed);
    }
    return seeds;
  }

  // The seeds that a child acknowledges before it ends.
  static std::vector<int> Drain(Subprocess* child) { return ParseSeeds(ReadLines(child, INT_MAX)); }

  std::unique_ptr<DiskCache> Open(int64_t max_bytes) {
    DiskCacheOptions options;
    options.directory = directory_;
    options.max_bytes = max_bytes;
    return DiskCache::Open(options, &registry_).value();
  }

  // Every file under blobs/ is what its name says; their number.
  int VerifyAllFiles() {
    FileSystem* fs = FileSystem::Default();
    int files = 0;
    const std::vector<std::string> shards = fs->List(directory_ + "/blobs").value();
    for (const std::string& shard : shards) {
      const std::vector<std::string> names = fs->List(directory_ + "/blobs/" + shard).value();
      for (const std::string& name : names) {
        ++files;
        EXPECT_EQ(Digest::Of(ReadFile(absl::StrCat(directory_, "/blobs/", shard, "/", name)).value()).hex(), name);
      }
    }
    return files;
  }

  TempDir dir_ = TempDir::Create("disk_cache_process_test").value();
  const std::string directory_ = dir_.path() + "/cache";
  metrics::Registry registry_;
};

TEST_F(DiskCacheProcessTest, KillAtAnyMomentLosesNothingAcknowledged) {
  std::minstd_rand random(12345);
  std::vector<int> acknowledged;
  int next = 1;
  for (int round = 0; round < 40; ++round) {
    auto child = Subprocess::Start(Child(int64_t{1} << 30, next, 1, 1000000)).value();
    // At any moment: while it starts, or some way into some operation after its nth answer.
    std::string text = ReadLines(child.get(), random() % 10);
    absl::SleepFor(absl::Microseconds(random() % 5000));
    child->Kill();
    text += ReadLines(child.get(), INT_MAX);
    std::vector<int> seeds = ParseSeeds(text);
    acknowledged.insert(acknowledged.end(), seeds.begin(), seeds.end());
    if (!seeds.empty()) next = seeds.back() + 1;  // the one after it may be half done: done again
  }
  ASSERT_GT(acknowledged.size(), 50) << "the children were killed before they did anything";
  auto cache = Open(int64_t{1} << 30);
  auto table = cache->Table("t");
  for (int seed : acknowledged) {
    absl::StatusOr<ActionResult> result = cache->actions().Lookup(SeededAction(seed));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->data, absl::StrCat(seed));
    absl::StatusOr<Blob> blob = cache->blobs().Get(result->blobs[0]);
    ASSERT_TRUE(blob.ok()) << blob.status();
    EXPECT_EQ(blob->view(), SeededBytes(seed));
    EXPECT_EQ(table->Get(SeededAction(seed)).value(), absl::StrCat(seed));
  }
  const int files = VerifyAllFiles();
  EXPECT_GE(files, acknowledged.size());
  EXPECT_EQ(registry_.Snapshot()["inlay_disk_cache_corrupt_total{kind=\"blob\"}"], 0);
  // Each kill leaves at most a row without its file; a file without a row would never be evicted.
  ASSERT_TRUE(cache->Flush().ok());
  EXPECT_GE(registry_.Snapshot()["inlay_disk_cache_files{kind=\"blob\"}"], files);
  EXPECT_LE(registry_.Snapshot()["inlay_disk_cache_files{kind=\"blob\"}"], files + 40);
  EXPECT_THAT(FileSystem::Default()->List(directory_ + "/tmp").value(), SizeIs(1)) << "the killed ones' are gone";
}

TEST_F(DiskCacheProcessTest, SeveralProcessesShareOneBoundedDirectory) {
  constexpr int64_t kMaxBytes = 2 << 20;
  std::vector<std::unique_ptr<Subprocess>> children;
  // Two put the same blobs, the third others; together many times the bound.
  children.push_back(Subprocess::Start(Child(kMaxBytes, 1, 1, 300)).value());
  children.push_back(Subprocess::Start(Child(kMaxBytes, 1, 1, 300)).value());
  children.push_back(Subprocess::Start(Child(kMaxBytes, 100000, 1, 300)).value());
  for (auto& child : children) {
    EXPECT_THAT(Drain(child.get()), SizeIs(300)) << child->StderrTail();
    EXPECT_TRUE(child->Wait(absl::Now() + absl::Seconds(60)).ok()) << child->StderrTail();
  }
  VerifyAllFiles();
  auto cache = Open(kMaxBytes);
  auto values = registry_.Snapshot();
  const double bytes =
      values["inlay_disk_cache_bytes{kind=\"blob\"}"] + values["inlay_disk_cache_bytes{kind=\"action\"}"];
  EXPECT_LE(bytes, kMaxBytes);
  EXPECT_GT(bytes, kMaxBytes / 2);
  EXPECT_THAT(FileSystem::Default()->List(directory_ + "/quarantine").value(), IsEmpty());
  // The last ones put are there.
  EXPECT_TRUE(cache->blobs().Get(Digest::Of(SeededBytes(100299))).ok());
}

TEST_F(DiskCacheProcessTest, TheFirstToWriteARowWinsInEveryProcess) {
  // All three write the rows of the same actions with the same values; that they agree with a reader is KeyValueTable's
  // promise across processes.
  auto cache = Open(int64_t{1} << 30);
  auto table = cache->Table("t");
  EXPECT_EQ(table->PutIfAbsent(SeededAction(5), "mine").value(), "mine");
  EXPECT_TRUE(RunSubprocess(Child(int64_t{1} << 30, 1, 1, 10), absl::Seconds(60)).ok());
  EXPECT_EQ(table->Get(SeededAction(5)).value(), "mine");
  EXPECT_EQ(table->Get(SeededAction(6)).value(), "6");
}

}  // namespace
}  // namespace inlay::cache
