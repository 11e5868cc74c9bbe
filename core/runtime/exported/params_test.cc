#include "core/runtime/exported/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace inlay::runtime {
namespace {

using ::testing::HasSubstr;

std::string Write(const std::string& header, const std::string& data) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/p.safetensors";
  const uint64_t size = header.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << header << data;
  return path;
}

Status Find(const std::string& path, const std::vector<NamedTensor>& params) {
  auto file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  return FindSafetensors(path, *file, params).status();
}

const NamedTensor kW{"w", {DType::kF32, {2}}};
constexpr char kHeader[] = R"({"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";

TEST(Safetensors, FindsTensors) {
  const std::string path = Write(kHeader, "....abcdefgh");
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  auto found = FindSafetensors(path, *file, {kW});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(std::string(static_cast<const char*>((*found)[0]), 8), "abcdefgh");
}

TEST(Safetensors, NamesWhatDoesNotFit) {
  const std::string path = Write(kHeader, "....abcdefgh");
  EXPECT_THAT(Find(path, {{"v", kW.type}}).message(), HasSubstr("no tensor 'v'"));
  EXPECT_THAT(Find(path, {{"w", {DType::kF32, {1, 2}}}}).message(), HasSubstr("'w' is F32[2]"));
  EXPECT_THAT(Find(path, {{"w", {DType::kI32, {2}}}}).message(), HasSubstr("wants i32[2]"));
  EXPECT_THAT(Find(Write(kHeader, "....abcdefg"), {kW}).message(), HasSubstr("outside the file"));
  EXPECT_THAT(Find(Write("{", ""), {kW}).message(), HasSubstr("header is damaged"));
  EXPECT_THAT(Find(Write("", ""), {kW}).message(), HasSubstr("header is damaged"));
  EXPECT_THAT(Find("/nonexistent/p", {kW}).message(), HasSubstr("cannot open /nonexistent/p: No such file"));
}

TEST(Safetensors, LyingLengths) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/q.safetensors";
  std::ofstream(path, std::ios::binary) << "\xff\xff\xff\xff\xff\xff\xff\xff{}";
  EXPECT_THAT(Find(path, {kW}).message(), HasSubstr("cut off"));
  std::ofstream(path, std::ios::binary) << "abc";
  EXPECT_THAT(Find(path, {kW}).message(), HasSubstr("not a safetensors file"));
}

}  // namespace
}  // namespace inlay::runtime
