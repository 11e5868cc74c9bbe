#include "core/artifact/run/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace inlay::run {
namespace {

using runtime::DType;
using ::testing::HasSubstr;

std::string TmpPath(const std::string& name) { return std::string(std::getenv("TEST_TMPDIR")) + "/" + name; }

Array MakeArray(DType dtype, std::vector<int64_t> shape) {
  Array array{{dtype, std::move(shape)}};
  array.data.resize(array.type.NumBytes());
  for (size_t i = 0; i < array.data.size(); ++i) array.data[i] = static_cast<char>(i * 7);
  return array;
}

TEST(Npy, EveryDTypeAndShapeReadsBack) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kU8, DType::kI16,
                      DType::kI32, DType::kI64, DType::kBool}) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{}, {3}, {0, 4}, {2, 3, 5}}) {
      const Array array = MakeArray(dtype, shape);
      const std::string bytes = FormatNpy(array);
      auto read = ParseNpy(bytes);
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(read->type, array.type);
      EXPECT_EQ(read->data, array.data);
      EXPECT_FALSE(read->fortran_order);
      EXPECT_EQ((bytes.size() - array.data.size()) % 64, 0);
    }
  }
}

TEST(Npy, DamageIsAnErrorAtEveryLength) {
  const std::string bytes = FormatNpy(MakeArray(DType::kF32, {2, 3}));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(ParseNpy(bytes.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(ParseNpy(bytes + "x").ok());
}

TEST(Npy, SaysWhatItDoesNotTake) {
  std::string bytes = FormatNpy(MakeArray(DType::kF32, {2}));
  bytes.replace(bytes.find("<f4"), 3, ">f4");
  EXPECT_THAT(ParseNpy(bytes).status().message(), HasSubstr("dtype '>f4'"));
  EXPECT_THAT(ReadNpy(TmpPath("none.npy")).status().message(), HasSubstr("none.npy: can't be read"));
}

TEST(Npz, ReadsWhatItWrites) {
  const NamedArrays arrays = {{"x", MakeArray(DType::kF32, {2, 3})}, {"a/b:0", MakeArray(DType::kI64, {7})}};
  ASSERT_TRUE(WriteNpz(TmpPath("a.npz"), arrays).ok());
  auto read = ReadNpz(TmpPath("a.npz"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*read)[i].first, arrays[i].first);
    EXPECT_EQ((*read)[i].second.type, arrays[i].second.type);
    EXPECT_EQ((*read)[i].second.data, arrays[i].second.data);
  }
}

TEST(Npz, DamageIsAnError) {
  ASSERT_TRUE(WriteNpz(TmpPath("b.npz"), {{"x", MakeArray(DType::kF32, {64})}}).ok());
  std::stringstream whole;
  whole << std::ifstream(TmpPath("b.npz"), std::ios::binary).rdbuf();
  std::string bytes = whole.str();
  bytes[200] = static_cast<char>(bytes[200] + 1);  // within the data: the checksum finds it
  std::ofstream(TmpPath("c.npz"), std::ios::binary) << bytes;
  EXPECT_THAT(ReadNpz(TmpPath("c.npz")).status().message(), HasSubstr("'x' is damaged"));
  std::ofstream(TmpPath("d.npz"), std::ios::binary) << bytes.substr(0, 300);
  EXPECT_FALSE(ReadNpz(TmpPath("d.npz")).ok());
  EXPECT_THAT(WriteNpz("/no/such/folder/x.npz", {}).message(), HasSubstr("can't be written"));
}

}  // namespace
}  // namespace inlay::run
