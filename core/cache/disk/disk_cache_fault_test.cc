// A DiskCache on a disk that fails, fills up, or loses power at every single operation in turn.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/fault_injecting_file_system.h"
#include "core/cache/disk/disk_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay::cache {
namespace {

using ::testing::IsEmpty;

struct Acknowledged {
  std::vector<std::string> blobs;
  absl::flat_hash_map<Digest, ActionResult> actions;
};

// Blobs whole and in pieces, some twice, and results; what was answered with OK.
Acknowledged Work(DiskCache& cache) {
  Acknowledged acknowledged;
  for (int i = 0; i < 3; ++i) {
    const std::string bytes(3000 + i, static_cast<char>('a' + i));
    if (cache.blobs().Put(bytes).ok()) acknowledged.blobs.push_back(bytes);
    const std::string large(9000 + i, static_cast<char>('A' + i));
    auto writer = cache.blobs().NewWriter(Digest::Of(large), large.size());
    if (writer.ok() && (*writer)->Append(large.substr(0, 4000)).ok() && (*writer)->Append(large.substr(4000)).ok() &&
        (*writer)->Commit().ok()) {
      acknowledged.blobs.push_back(large);
    }
    if (cache.blobs().Put(large).ok()) acknowledged.blobs.push_back(large);
    const Digest action = Digest::Of(absl::StrCat(i));
    const ActionResult result = {{Digest::Of(bytes)}, absl::StrCat("data", i)};
    if (cache.actions().Update(action, result).ok()) acknowledged.actions[action] = result;
  }
  return acknowledged;
}

void ExpectAll(DiskCache& cache, const Acknowledged& acknowledged, absl::string_view when) {
  for (const std::string& bytes : acknowledged.blobs) {
    absl::StatusOr<Blob> blob = cache.blobs().Get(Digest::Of(bytes));
    ASSERT_TRUE(blob.ok()) << when << ": " << blob.status();
    EXPECT_EQ(blob->view(), bytes) << when;
  }
  for (const auto& [action, result] : acknowledged.actions) {
    absl::StatusOr<ActionResult> found = cache.actions().Lookup(action);
    ASSERT_TRUE(found.ok()) << when << ": " << found.status();
    EXPECT_EQ(*found, result) << when;
  }
}

class DiskCacheFaultTest : public ::testing::Test {
 protected:
  // A cache in a new directory, over `fs`.
  std::unique_ptr<DiskCache> Open(FileSystem* fs, const std::string& boot_id) {
    DiskCacheOptions options;
    options.directory = dir_.path() + "/" + name_;
    options.file_system = fs;
    options.boot_id = boot_id;
    options.flush_interval = absl::Hours(1);  // the operations come in the same order each time
    return DiskCache::Open(options, &registry_).value();
  }
  double Corrupt() {
    auto values = registry_.Snapshot();
    return values["inlay_disk_cache_corrupt_total{kind=\"blob\"}"] +
           values["inlay_disk_cache_corrupt_total{kind=\"action\"}"];
  }
  TempDir dir_ = TempDir::Create("disk_cache_fault_test").value();
  std::string name_ = "0";
  metrics::Registry registry_;
};

TEST_F(DiskCacheFaultTest, PowerCutAtEveryOperation) {
  for (int64_t crash_at = 0;; ++crash_at) {
    name_ = absl::StrCat(crash_at);
    FaultInjectingFileSystem fs;
    auto cache = Open(&fs, "boot 1");
    int64_t done = 0;
    fs.SetHook([&](absl::string_view, absl::string_view) {
      return done++ < crash_at ? absl::OkStatus() : absl::InternalError("the power is cut");
    });
    const Acknowledged acknowledged = Work(*cache);
    const bool complete = done <= crash_at;
    cache = nullptr;
    ASSERT_TRUE(fs.DropUnsynced().ok());
    auto again = Open(FileSystem::Default(), "boot 2");
    ExpectAll(*again, acknowledged, absl::StrCat("power cut at operation ", crash_at));
    if (HasFatalFailure()) return;
    if (complete) {
      EXPECT_EQ(acknowledged.blobs.size(), 9);
      EXPECT_EQ(acknowledged.actions.size(), 3);
      break;
    }
    // Whatever else is there is whole: it can all be done again.
    ExpectAll(*again, Work(*again), absl::StrCat("again after ", crash_at));
  }
  EXPECT_EQ(Corrupt(), 0) << "a power cut left a damaged file under a final name";
}

TEST_F(DiskCacheFaultTest, AnyOneOperationThatFailsLosesNothing) {
  for (int64_t fail_at = 0;; ++fail_at) {
    name_ = absl::StrCat(fail_at);
    FaultInjectingFileSystem fs;
    auto cache = Open(&fs, "boot 1");
    int64_t done = 0;
    fs.SetHook([&](absl::string_view, absl::string_view) {
      return done++ == fail_at ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
    });
    const Acknowledged acknowledged = Work(*cache);
    const bool complete = done <= fail_at;
    fs.SetHook(nullptr);
    ExpectAll(*cache, acknowledged, absl::StrCat("failure of operation ", fail_at));
    if (HasFatalFailure()) return;
    const Acknowledged all = Work(*cache);
    EXPECT_EQ(all.blobs.size(), 9) << fail_at;
    ExpectAll(*cache, all, absl::StrCat("again after ", fail_at));
    if (complete) break;
  }
  EXPECT_EQ(Corrupt(), 0);
}

TEST_F(DiskCacheFaultTest, AFullDiskIsResourceExhaustedAndLeavesNoRest) {
  FaultInjectingFileSystem fs;
  auto cache = Open(&fs, "boot 1");
  const Digest before = cache->blobs().Put("before").value();
  for (absl::string_view failing : {"create", "append", "sync", "close"}) {
    fs.SetHook([&](absl::string_view op, absl::string_view) {
      return op == failing ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
    });
    EXPECT_EQ(cache->blobs().Put("more").status().code(), absl::StatusCode::kResourceExhausted) << failing;
    EXPECT_EQ(cache->actions().Update(before, {}).code(), absl::StatusCode::kResourceExhausted) << failing;
    fs.SetHook(nullptr);
    EXPECT_TRUE(cache->blobs().Get(before).ok());
    EXPECT_EQ(cache->blobs().Get(Digest::Of("more")).status().code(), absl::StatusCode::kNotFound);
    auto instances = fs.List(dir_.path() + "/0/tmp").value();
    ASSERT_EQ(instances.size(), 1);
    EXPECT_THAT(fs.List(dir_.path() + "/0/tmp/" + instances[0]).value(), testing::ElementsAre("lock")) << failing;
  }
  EXPECT_TRUE(cache->blobs().Put("more").ok());
}

TEST_F(DiskCacheFaultTest, ABlobThatTheDiskCannotReadIsSetAside) {
  FaultInjectingFileSystem fs;
  auto cache = Open(&fs, "boot 1");
  const Digest digest = cache->blobs().Put("blob").value();
  fs.SetHook([&](absl::string_view op, absl::string_view) {
    return op == "read" ? absl::InternalError("Input/output error") : absl::OkStatus();
  });
  EXPECT_EQ(cache->blobs().Get(digest).status().code(), absl::StatusCode::kDataLoss);
  fs.SetHook(nullptr);
  EXPECT_EQ(cache->blobs().Get(digest).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(cache->blobs().Put("blob").ok());
}

}  // namespace
}  // namespace inlay::cache
