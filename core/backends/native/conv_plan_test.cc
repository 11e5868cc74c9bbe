// What PlanConv makes of shapes and cores. That what it plans computes right: conv_test.
#include "core/backends/native/conv_plan.h"

#include <gtest/gtest.h>

#include "core/backends/native/conv_phases.h"
#include "core/backends/native/testing/cores.h"

namespace inlay::native {
namespace {

using testing::WithFarCaches;
using testing::WithOneMultiplyAdd;

ConvPlan PlanPointwise(const Core& core, int64_t channels, int64_t extent, int64_t outputs) {
  ConvShape shape;
  shape.c = channels;
  shape.m = outputs;
  shape.in = shape.out = {1, extent, extent};
  return PlanConv(core, shape, 4);
}

// 3x3 over images of out x out results, padded by one.
ConvShape GroupsOf(int64_t group, int64_t channels, int64_t out, int64_t stride) {
  ConvShape shape;
  shape.c = shape.m = channels;
  shape.groups = channels / group;
  shape.in = {1, out * stride, out * stride};
  shape.out = {1, out, out};
  shape.kernel = {1, 3, 3};
  shape.stride = {1, stride, stride};
  shape.pad = {0, 1, 1};
  return shape;
}

TEST(ConvPlanTest, PixelsThatShareTheirSetsAreCopied) {
  const Core core{64, 32, 48 << 10, 1 << 20};
  EXPECT_EQ(PlanPointwise(core, 256, 64, 128).gemm.source, ColumnSource::kOnTheFly);  // planes of 16 KiB
  EXPECT_EQ(PlanPointwise(core, 512, 32, 256).gemm.source, ColumnSource::kOnTheFly);
  EXPECT_EQ(PlanPointwise(core, 256, 64, 16).gemm.source, ColumnSource::kDirect);  // too few rows
  EXPECT_EQ(PlanPointwise(core, 256, 56, 128).gemm.source, ColumnSource::kDirect);
  EXPECT_EQ(PlanPointwise(core, 256, 63, 128).gemm.source, ColumnSource::kDirect);
  EXPECT_EQ(PlanPointwise(core, 16, 64, 128).gemm.source, ColumnSource::kDirect);  // L2's sets hold them
}

TEST(ConvPlanTest, ASmallL1HasPixelsCopiedAndAskedFor) {
  const Core core{32, 16, 32 << 10, 512 << 10};
  const ConvPlan far = PlanPointwise(core, 256, 56, 128), near = PlanPointwise(core, 24, 28, 144);
  EXPECT_EQ(far.gemm.source, ColumnSource::kOnTheFly);
  EXPECT_TRUE(far.gemm.prefetch);
  EXPECT_EQ(near.gemm.source, ColumnSource::kOnTheFly);
  EXPECT_FALSE(near.gemm.prefetch);
  EXPECT_EQ(PlanPointwise(core, 144, 56, 24).gemm.source, ColumnSource::kDirect);
  EXPECT_EQ(PlanPointwise(core, 384, 14, 64).method, ConvMethod::kPixelRows);
}

TEST(ConvPlanTest, ImagesCutIntoPatches) {
  const Core late{32, 16, 32 << 10, 512 << 10};
  ConvShape s;
  s.c = 3;
  s.m = 768;
  s.in = {1, 224, 224};
  s.kernel = s.stride = {1, 32, 32};
  s.out = {1, 7, 7};
  const auto plan_of = [&](const ConvShape& s) { return PlanPatches(late, PlanConv(late, s, 4)); };
  const auto patches = plan_of(s);
  ASSERT_TRUE(patches.has_value()) << "blocks of k are whole channels of 1024 taps";
  EXPECT_EQ(patches->pointwise.shape.c, 3 * 32 * 32);
  EXPECT_TRUE(patches->pointwise.shape.is_pointwise());
  EXPECT_EQ(patches->planes.shape.c * patches->planes.plane_elements(), patches->pointwise.shape.c * 49);
  ConvShape overlapping = s, padded = s, apart = s;
  overlapping.stride = {1, 16, 16};
  overlapping.out = {1, 13, 13};
  padded.pad = {0, 1, 1};
  apart.stride = {1, 33, 33};
  apart.out = {1, 6, 6};
  for (const ConvShape& other : {overlapping, padded, apart}) EXPECT_FALSE(plan_of(other).has_value());
}

// Where L2 is late, a copy of few pixels pays if many output channels read it.
TEST(ConvPlanTest, TilesReadPixelsFromACopyOfTheirOwn) {
  const Core late{32, 16, 32 << 10, 512 << 10};
  for (const auto& [channels, extent, outputs] :
       {std::tuple{1024, 14, 256}, {256, 14, 1024}, {512, 7, 2048}, {2048, 7, 512}, {480, 7, 96}, {1536, 10, 2048}}) {
    SCOPED_TRACE(std::to_string(channels) + " of " + std::to_string(extent) + " to " + std::to_string(outputs));
    const ConvPlan plan = PlanPointwise(late, channels, extent, outputs);
    EXPECT_EQ(plan.method, ConvMethod::kPixelRows);
    EXPECT_TRUE(plan.tiled_input);
    EXPECT_EQ(plan.gemm.k_blocks(), 1) << "not cut for L1's sake";
    for (const Core& other : {Core{}, WithOneMultiplyAdd(Core{}), WithFarCaches(Core{})}) {
      EXPECT_FALSE(PlanPointwise(other, channels, extent, outputs).tiled_input);
    }
  }
  EXPECT_FALSE(PlanPointwise(late, 384, 14, 64).tiled_input) << "few output channels";
  EXPECT_FALSE(PlanPointwise(late, 64, 14, 384).tiled_input) << "few steps";
  EXPECT_FALSE(PlanPointwise(late, 64, 56, 64).tiled_input) << "many pixels";
}

// A whole row would be one task.
TEST(ConvPlanTest, SequencesOfFewChannelsAreManyTasks) {
  for (const Core& core : {Core{}, Core{32, 16, 32 << 10, 512 << 10}, WithOneMultiplyAdd(Core{})}) {
    for (const auto& [channels, length] : {std::pair{6, 19200}, {12, 4800}, {1, 100000}, {8, 1000000}}) {
      SCOPED_TRACE(std::to_string(channels) + " of " + std::to_string(length));
      ConvShape s;
      s.c = s.m = channels;
      s.in = s.out = {1, 1, length};
      s.kernel = {1, 1, 11};
      s.pad = {0, 0, 5};
      ConvPlan plan = PlanConv(core, s, 4);
      EXPECT_FALSE(plan.padded_input);
      EXPECT_GE(plan.tasks(), 14);
      EXPECT_LE(plan.scratch_bytes(), kMaxScratchBytes);
    }
  }
}

// Of 7 and 14 columns, where 14x1 would be short of loads.
TEST(ConvPlanTest, TilesCrossImageRowsWhereL2IsLate) {
  const Core late{32, 16, 32 << 10, 512 << 10};
  for (const auto& [group, extent, stride] : {std::tuple{512, 7, 1}, {512, 7, 2}, {256, 14, 1}, {64, 14, 1}}) {
    SCOPED_TRACE(std::to_string(group) + " of " + std::to_string(extent) + " by stride " + std::to_string(stride));
    const ConvShape shape = GroupsOf(group, group, extent, stride);
    const ConvPlan plan = PlanConv(late, shape, 4);
    EXPECT_EQ(plan.method, ConvMethod::kPixelRows);
    EXPECT_FALSE(plan.pixels_in_place());
    EXPECT_FALSE(IsPixelTile(shape, plan.gemm.mr));
    EXPECT_EQ(plan.gemm.nv, 2);
    for (const Core& other : {Core{}, WithOneMultiplyAdd(Core{}), WithFarCaches(Core{})}) {
      const ConvPlan timely = PlanConv(other, shape, 4);
      EXPECT_TRUE(timely.method != ConvMethod::kPixelRows || IsPixelTile(shape, timely.gemm.mr));
    }
  }
  EXPECT_TRUE(PlanConv(late, GroupsOf(16, 768, 7, 1), 4).pixels_in_place()) << "L1 holds a group's";
}

TEST(ConvPlanTest, FarCachesHavePixelsCopiedAndAskedFor) {
  const Core core = WithFarCaches(Core{});
  const ConvPlan far = PlanPointwise(core, 256, 56, 128), near = PlanPointwise(core, 128, 28, 128);
  EXPECT_EQ(far.gemm.source, ColumnSource::kOnTheFly);
  EXPECT_TRUE(far.gemm.prefetch);
  EXPECT_EQ(near.gemm.source, ColumnSource::kOnTheFly);
  EXPECT_FALSE(near.gemm.prefetch);
  EXPECT_GT(PlanPointwise(core, 1024, 14, 256).gemm.k_blocks(), 1);
}

TEST(ConvPlanTest, FarCachesHaveWeightsInBlocksOfRows) {
  const Core core = WithFarCaches(Core{});
  for (const ConvPlan& plan : {PlanPointwise(core, 512, 28, 512), PlanPointwise(core, 1024, 28, 512)}) {
    ASSERT_EQ(plan.method, ConvMethod::kPointwise);
    EXPECT_GT(plan.gemm.row_blocks(), 1);
    EXPECT_EQ(plan.gemm.k_blocks(), 1);
    EXPECT_LE(plan.gemm.mc * plan.gemm.k * 4, core.l2_bytes / 3);
    EXPECT_LE(plan.scratch_bytes(), kMaxScratchBytes);
  }
  EXPECT_EQ(PlanPointwise(core, 256, 28, 512).gemm.row_blocks(), 1);
  EXPECT_EQ(PlanPointwise(core, 1024, 16, 1024).method, ConvMethod::kPixelRows) << "L2 has the pixels";
}

TEST(ConvPlanTest, PixelsReadInPlaceAreAskedForWhereL2DoesNotHoldThem) {
  const ConvShape far = GroupsOf(24, 48, 56, 2);
  ConvShape near = GroupsOf(24, 48, 14, 2);
  const Core slow{32, 16, 32 << 10, 512 << 10}, fast = WithOneMultiplyAdd(Core{});
  ASSERT_TRUE(PlanConv(slow, far, 4).pixels_in_place());
  EXPECT_TRUE(PlanConv(slow, far, 4).prefetches_pixels());
  EXPECT_FALSE(PlanConv(slow, near, 4).prefetches_pixels());
  EXPECT_FALSE(PlanConv(fast, far, 4).prefetches_pixels());
  EXPECT_TRUE(PlanConv(slow, GroupsOf(16, 80, 56, 2), 4).pixels_in_place())
      << "not by bands, whose planes would be no nearer";
  near.n = 16;  // all images' pixels are read between two of its calls
  ASSERT_TRUE(PlanConv(slow, near, 4).pixels_in_place());
  EXPECT_TRUE(PlanConv(slow, near, 4).prefetches_pixels());
}

TEST(ConvPlanTest, OneMultiplyAddACycleDoesNotWaitForL2) {
  const Core core = WithOneMultiplyAdd(Core{});
  const ConvPlan near = PlanPointwise(core, 128, 28, 128), far = PlanPointwise(core, 256, 56, 128);
  EXPECT_EQ(near.gemm.source, ColumnSource::kDirect);
  EXPECT_FALSE(near.gemm.prefetch);
  EXPECT_EQ(far.gemm.source, ColumnSource::kOnTheFly);
  EXPECT_TRUE(far.gemm.prefetch);
  EXPECT_EQ(PlanPointwise(core, 1536, 14, 384).method, ConvMethod::kPixelRows);
  // One vector of output channels: as many pixels as there are registers.
  const ConvPlan grouped = PlanConv(core, GroupsOf(16, 64, 56, 1), 4);
  EXPECT_EQ(grouped.method, ConvMethod::kPixelRows);
  EXPECT_EQ(grouped.gemm.mr, 28);
}

TEST(ConvPlanTest, OneMultiplyAddACycleHasWeightsFromL2InTime) {
  const Core core = WithOneMultiplyAdd(Core{});
  for (int64_t channels : {512, 1024, 2048}) EXPECT_EQ(PlanPointwise(core, channels, 7, 512).gemm.kc, 512);
  // Pixels of several taps are asked for by nobody.
  EXPECT_LT(PlanConv(core, GroupsOf(512, 512, 7, 2), 4).gemm.kc, 256);
  // And results are transposed beside the multiply-adds.
  EXPECT_EQ(PlanPointwise(core, 192, 14, 64).method, ConvMethod::kPixelRows);
  EXPECT_EQ(PlanPointwise(core, 128, 28, 512).method, ConvMethod::kPointwise);
}

// Of images whose pixels fill their last vector least; rows of a square that is not full are transposed, too.
TEST(ConvPlanTest, OneMultiplyAddACycleHasPixelsOfSmallImagesAsRows) {
  const Core core = WithOneMultiplyAdd(Core{});
  for (int64_t width : {10, 14}) {
    for (int64_t outputs : {64, 256, 576}) {
      EXPECT_EQ(PlanPointwise(core, 96, width, outputs).method, ConvMethod::kPixelRows) << width << " " << outputs;
    }
  }
  // Those that L2 does not hold are read once.
  for (int64_t outputs : {64, 128}) {
    EXPECT_EQ(PlanPointwise(core, 256, 75, outputs).method, ConvMethod::kPointwise) << outputs;
  }
}

// What a step of a large tile brings to L1 is no more than the plane.
TEST(ConvPlanTest, SmallPlanesOfAGroupAreNotCutInK) {
  const ConvPlan plan = PlanConv(WithOneMultiplyAdd(Core{}), GroupsOf(16, 768, 7, 2), 4);
  EXPECT_EQ(plan.method, ConvMethod::kPixelRows);
  EXPECT_EQ(plan.gemm.k_blocks(), 1);
}

TEST(ConvPlanTest, OfStridedPixelsOnlyWhatIsReadMayBeFar) {
  ConvShape shape;
  shape.c = 1024;
  shape.m = 2048;
  shape.in = {1, 14, 14};
  shape.out = {1, 7, 7};
  shape.stride = {1, 2, 2};
  // x exceeds L2, its copy of 7x7 does not.
  const ConvPlan plan = PlanConv(Core{32, 16, 32 << 10, 512 << 10}, shape, 4);
  EXPECT_EQ(plan.method, ConvMethod::kPixelRows);
  EXPECT_TRUE(plan.tiled_input);
}

}  // namespace
}  // namespace inlay::native
