#include "core/base/file_system.h"

#include <sys/stat.h>

#include "core/base/fault_injecting_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileSystemTest : public ::testing::Test {
 protected:
  std::string Path(absl::string_view name) { return JoinPath(dir_.path(), name); }
  void Write(FileSystem* fs, const std::string& path, absl::string_view data) {
    auto file = fs->Create(path).value();
    ASSERT_TRUE(file->Append(data).ok());
    ASSERT_TRUE(file->Close().ok());
  }

  TempDir dir_ = TempDir::Create("file_system_test").value();
  FileSystem* fs_ = FileSystem::Default();
};

TEST_F(FileSystemTest, ReadsFromHeapAndMapAlike) {
  std::string data(100000, 'x');
  Write(fs_, Path("a"), data);
  EXPECT_EQ(ReadFile(Path("a")).value(), data);
  FileContents mapped = fs_->Read(Path("a"), /*map_above=*/1).value();
  ASSERT_TRUE(fs_->Remove(Path("a")).ok());
  EXPECT_EQ(mapped.data, data) << "a mapping outlives the name";
  Write(fs_, Path("empty"), "");
  EXPECT_EQ(fs_->Read(Path("empty"), 0).value().data, "");
}

TEST_F(FileSystemTest, ErrorsHaveCodeAndPath) {
  EXPECT_EQ(ReadFile(Path("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadFile(Path("none")).status().message(), HasSubstr(Path("none")));
  Write(fs_, Path("a"), "x");
  EXPECT_EQ(fs_->Create(Path("a")).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(fs_->Read(dir_.path()).ok());
  EXPECT_EQ(ErrnoStatus(ENOSPC, "write", "/p").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(fs_->SyncDirectory(Path("none")).code(), absl::StatusCode::kNotFound);
}

TEST_F(FileSystemTest, AtomicWriteReplaces) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "one").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "two").ok());
  EXPECT_EQ(ReadFile(Path("a")).value(), "two");
  EXPECT_THAT(fs_->List(dir_.path()).value(), ElementsAre("a"));
}

TEST_F(FileSystemTest, RenameNoReplaceRefusesAnExistingName) {
  Write(fs_, Path("a"), "a");
  Write(fs_, Path("b"), "b");
  EXPECT_EQ(fs_->RenameNoReplace(Path("a"), Path("b")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(Path("b")).value(), "b");
  EXPECT_TRUE(fs_->RenameNoReplace(Path("a"), Path("c")).ok());
  EXPECT_EQ(ReadFile(Path("c")).value(), "a");
}

TEST_F(FileSystemTest, AtomicWriteThatFailsLeavesTheOldContents) {
  FaultInjectingFileSystem fs;
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "one", &fs).ok());
  for (absl::string_view failing : {"create", "append", "sync", "close", "rename"}) {
    fs.SetHook([&](absl::string_view op, absl::string_view) {
      return op == failing ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
    });
    EXPECT_EQ(WriteFileAtomically(Path("a"), "two", &fs).code(), absl::StatusCode::kResourceExhausted) << failing;
    fs.SetHook(nullptr);
    EXPECT_EQ(ReadFile(Path("a"), &fs).value(), "one") << failing;
    EXPECT_THAT(fs.List(dir_.path()).value(), ElementsAre("a")) << failing;
  }
}

TEST_F(FileSystemTest, AcknowledgedAtomicWriteSurvivesAPowerCut) {
  FaultInjectingFileSystem fs;
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "one", &fs).ok());
  ASSERT_TRUE(fs.DropUnsynced().ok());
  EXPECT_EQ(ReadFile(Path("a")).value(), "one");
}

TEST_F(FileSystemTest, PowerCutLosesWhatWasNotSynced) {
  FaultInjectingFileSystem fs;
  Write(&fs, Path("no_entry"), "x");
  auto file = fs.Create(Path("half"), 0644).value();
  ASSERT_TRUE(file->Append("synced").ok() && file->Sync().ok() && file->Append("lost").ok());
  ASSERT_TRUE(fs.SyncDirectory(dir_.path()).ok());
  Write(&fs, Path("late"), "x");
  ASSERT_TRUE(fs.DropUnsynced().ok());
  EXPECT_EQ(ReadFile(Path("half")).value(), "synced");
  EXPECT_EQ(ReadFile(Path("no_entry")).value(), "") << "its name was synced, its data was not";
  EXPECT_EQ(ReadFile(Path("late")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FileSystemTest, TempDirIsPrivateAndGoes) {
  std::string path;
  {
    TempDir dir = TempDir::Create("scratch", dir_.path()).value();
    path = dir.path();
    struct stat st;
    ASSERT_EQ(stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0700);
    ASSERT_TRUE(fs_->CreateDirectories(JoinPath(path, "a/b")).ok());
    Write(fs_, JoinPath(path, "a/b/c"), "x");
    TempDir moved = std::move(dir);
    EXPECT_EQ(moved.path(), path);
  }
  EXPECT_EQ(fs_->Stat(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(PathTest, Joins) {
  EXPECT_EQ(DirName("/a/b"), "/a");
  EXPECT_EQ(DirName("/a"), "/");
  EXPECT_EQ(DirName("a"), ".");
  EXPECT_EQ(JoinPath("/", "a"), "/a");
  EXPECT_EQ(JoinPath("b", "a"), "b/a");
}

}  // namespace
}  // namespace inlay
