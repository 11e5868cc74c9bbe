#include "core/backends/common/build_id.h"

#include <fstream>

#include "gtest/gtest.h"

namespace inlay::backends {
namespace {

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(BuildId, FollowsTheContents) {
  auto a = FileBuildId(Write("a", "one")), b = FileBuildId(Write("b", "two")), c = FileBuildId(Write("c", "one"));
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->size(), 16u);
  EXPECT_NE(*a, *b);
  EXPECT_EQ(*a, *c);
}

TEST(BuildId, OfWhatIsNotThere) {
  EXPECT_EQ(FileBuildId("/nowhere").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LibraryBuildId("libnowhere.so").status().code(), absl::StatusCode::kNotFound);
}

TEST(BuildId, OfThisProcess) {
  EXPECT_EQ(ExecutableBuildId().size(), 16u);
  EXPECT_EQ(ExecutableBuildId(), ExecutableBuildId());
  auto libc = LibraryBuildId("libc.so.6");
  ASSERT_TRUE(libc.ok()) << libc.status();
  EXPECT_NE(*libc, ExecutableBuildId());
}

}  // namespace
}  // namespace inlay::backends
