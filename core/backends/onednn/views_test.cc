#include "core/backends/onednn/views.h"

#include "gtest/gtest.h"

namespace inlay::onednn {
namespace {

TEST(Views, RegroupsBroadcasts) {
  EXPECT_EQ(RegroupBroadcast({2, 3, 4}, {2, 3, 4}, {1, 3, 1}), (Dims{1, 3, 1}));
  EXPECT_EQ(RegroupBroadcast({2, 3, 4}, {6, 4}, {1, 1, 4}), (Dims{1, 4}));
  EXPECT_EQ(RegroupBroadcast({2, 3, 4}, {6, 4}, {2, 3, 4}), (Dims{6, 4}));
  EXPECT_EQ(RegroupBroadcast({1, 3, 4}, {3, 4}, {1, 3, 1}), (Dims{3, 1}));
  EXPECT_EQ(RegroupBroadcast({2, 5}, {2, 5, 1, 1}, {1, 5}), (Dims{1, 5, 1, 1}));
  EXPECT_EQ(RegroupBroadcast({4, 6}, {24}, {4, 6}), (Dims{24}));
}

// One value for each of the three, but not for each of the six: no view of the joined axis says that.
TEST(Views, CantBroadcastAlongAPartOfAJoinedAxis) {
  EXPECT_EQ(RegroupBroadcast({2, 3, 4}, {6, 4}, {1, 3, 4}), absl::nullopt);
}

TEST(Views, KnowsFastBroadcasts) {
  EXPECT_TRUE(IsFastBroadcast({1, 8, 1, 1}, {2, 8, 5, 5}, false));
  EXPECT_TRUE(IsFastBroadcast({2, 8, 5, 5}, {2, 8, 5, 5}, false));
  EXPECT_TRUE(IsFastBroadcast({1, 1, 1, 1}, {2, 8, 5, 5}, false));
  EXPECT_FALSE(IsFastBroadcast({2, 8, 1, 1}, {2, 8, 5, 5}, false));
  EXPECT_TRUE(IsFastBroadcast({1, 7}, {3, 7}, true));
  EXPECT_FALSE(IsFastBroadcast({3, 1}, {3, 7}, true));
  EXPECT_TRUE(IsFastBroadcast({1, 8, 5}, {1, 8, 5}, false));
  EXPECT_FALSE(IsFastBroadcast({1, 1, 5}, {1, 1, 5}, false)) << "a sequence of one channel";
  EXPECT_TRUE(IsFastBroadcast({1, 1, 5}, {1, 1, 5}, true));
  EXPECT_TRUE(IsFastBroadcast({1, 1, 5, 5}, {1, 1, 5, 5}, false));
}

TEST(Views, OfMatmul) {
  MatmulViews v = ViewsOfMatmul({2, 5, 8}, {8, 3}, false, false);  // tokens times weights: one product
  EXPECT_EQ(v.a, (Dims{10, 8}));
  EXPECT_EQ(v.b, (Dims{8, 3}));
  EXPECT_EQ(v.out, (Dims{10, 3}));
  v = ViewsOfMatmul({2, 3, 5, 8}, {2, 3, 7, 8}, false, true);
  EXPECT_EQ(v.a, (Dims{6, 5, 8}));
  EXPECT_EQ(v.b, (Dims{6, 8, 7}));
  EXPECT_EQ(v.b_strides, (Dims{56, 1, 8}));
  EXPECT_EQ(v.out, (Dims{6, 5, 7}));
  v = ViewsOfMatmul({8}, {8}, false, false);
  EXPECT_EQ(v.out, (Dims{1, 1}));
  v = ViewsOfMatmul({5, 1, 7, 8}, {3, 8, 9}, false, false);
  EXPECT_EQ(v.b, (Dims{1, 3, 8, 9}));
  EXPECT_EQ(v.out, (Dims{5, 3, 7, 9}));
}

}  // namespace
}  // namespace inlay::onednn
