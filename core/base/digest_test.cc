#include "core/base/digest.h"

#include <unordered_set>

#include "absl/container/flat_hash_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace inlay {
namespace {

using ::testing::HasSubstr;

// FIPS 180-2, appendix B.1.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(DigestTest, IsSha256) {
  EXPECT_EQ(Digest::Of("abc").hex(), kAbc);
  EXPECT_EQ(Digest::Of("").hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Digest::Of("abc").short_hex(), "ba7816bf8f01");
}

TEST(DigestTest, HexAndBytesRoundTrip) {
  Digest d = Digest::Of("abc");
  EXPECT_EQ(Digest::FromHex(kAbc).value(), d);
  EXPECT_EQ(Digest::FromHex("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD").value(), d);
  EXPECT_EQ(Digest::FromBytes(d.bytes()).value(), d);
}

TEST(DigestTest, RefusesWhatIsNotADigest) {
  EXPECT_EQ(Digest::FromHex("ba78").status().code(), absl::StatusCode::kInvalidArgument);
  std::string bad = kAbc;
  bad[63] = 'g';
  EXPECT_THAT(Digest::FromHex(bad).status().message(), HasSubstr("hex digits only"));
  EXPECT_THAT(Digest::FromBytes("short").status().message(), HasSubstr("32 bytes, not 5"));
  EXPECT_FALSE(Digest::FromBytes(std::string(33, 'x')).ok());
}

TEST(DigestTest, OrdersAndHashes) {
  Digest a = Digest::Of("a"), b = Digest::Of("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(a < b, a.hex() < b.hex());
  EXPECT_TRUE(Digest().is_zero());
  EXPECT_FALSE(a.is_zero());
  EXPECT_EQ((absl::flat_hash_set<Digest>{a, b, a}).size(), 2);
  EXPECT_EQ((std::unordered_set<Digest>{a, b, a}).size(), 2);
}

TEST(HasherTest, PiecesAreTheWhole) {
  Hasher hasher;
  EXPECT_EQ(hasher.Update("a").Update("b").Update("c").Finish().hex(), kAbc);
  EXPECT_EQ(hasher.Update("abc").Finish().hex(), kAbc) << "Finish begins anew";
  Hasher moved = std::move(hasher);
  EXPECT_EQ(moved.Update("abc").Finish().hex(), kAbc);
}

TEST(HasherTest, FieldsDoNotRunTogether) {
  EXPECT_NE(Hasher().UpdateField("ab").UpdateField("c").Finish(), Hasher().UpdateField("a").UpdateField("bc").Finish());
  EXPECT_NE(Hasher().UpdateInt(1).Finish(), Hasher().UpdateInt(256).Finish());
}

}  // namespace
}  // namespace inlay
