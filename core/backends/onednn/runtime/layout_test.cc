#include "core/backends/onednn/runtime/layout.h"

#include "gtest/gtest.h"

namespace inlay::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Of(const Dims& dims, Tag tag) { return memory::desc(dims, memory::data_type::f32, tag); }

TEST(Layout, OnePixelIsTheSameInEveryLayout) {
  EXPECT_TRUE(SamePlacement(Of({2, 32, 1, 1}, Tag::nChw16c), Of({2, 32, 1, 1}, Tag::nchw)));
  EXPECT_TRUE(SamePlacement(Of({2, 32, 1, 1}, Tag::nhwc), PlainLayout({2, 32, 1, 1})));
  EXPECT_TRUE(SamePlacement(Of({1, 1, 5, 7}, Tag::nhwc), Of({1, 1, 5, 7}, Tag::nchw)));
}

TEST(Layout, SeveralPixelsAreNot) {
  EXPECT_FALSE(SamePlacement(Of({2, 32, 3, 1}, Tag::nChw16c), Of({2, 32, 3, 1}, Tag::nchw)));
  EXPECT_FALSE(SamePlacement(Of({2, 32, 3, 3}, Tag::nhwc), Of({2, 32, 3, 3}, Tag::nchw)));
  EXPECT_FALSE(SamePlacement(Of({3, 4}, Tag::ab), Of({3, 4}, Tag::ba)));
  EXPECT_FALSE(SamePlacement(Of({3, 4}, Tag::ab), Of({4, 3}, Tag::ab)));
}

// 20 channels in blocks of 16 take 32: bytes that the plain layout does not have.
TEST(Layout, PaddingIsADifference) {
  EXPECT_FALSE(SamePlacement(Of({1, 20, 1, 1}, Tag::nChw16c), Of({1, 20, 1, 1}, Tag::nchw)));
}

TEST(Layout, ScalarsHaveOneElement) { EXPECT_EQ(PlainLayout({}).get_size(), sizeof(float)); }

}  // namespace
}  // namespace inlay::onednn
