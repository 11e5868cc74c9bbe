// Which tiles, blocks and cuts a contraction gets, from its shape and the core's caches.
#include "core/backends/native/gemm_plan.h"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

#include "core/backends/native/testing/cores.h"

namespace inlay::native {
namespace {

using testing::WithFarCaches;
using testing::WithOneMultiplyAdd;

// With 16 registers LLVM spills an accumulator of the innermost loop where tiles are cut too large.
TEST(GemmPlanTest, LeavesRegistersForWhatATileNeedsBesideItsAccumulators) {
  const Core avx2 = Core{32, 16, 32 << 10, 512 << 10};
  for (int64_t m : {1, 2, 6, 16, 64, 384}) {
    for (int64_t n = 1; n <= 200; ++n) {
      const GemmPlan plan = PlanGemm(avx2, ColumnSource::kDirect, 4, 1, m, n, 64);
      const int64_t whole = plan.nv == 1 ? 0 : plan.mr * plan.nv + plan.nv + 1;
      EXPECT_LE(whole, plan.nv > 4 ? 15 : 16) << m << "x" << n;
      const int64_t last = plan.nv_last == 1 ? 0 : plan.mr * plan.nv_last + plan.nv_last + 1;
      EXPECT_LE(last + (n % 8 == 0 ? 0 : 1), 16) << m << "x" << n;
    }
  }
}

TEST(GemmPlanTest, BlocksStayInSmallCaches) {
  const int64_t k = 960, pixels = 49;
  const Core small = Core{32, 16, 32 << 10, 512 << 10}, large = Core{32, 16, 48 << 10, 1 << 20};
  const GemmPlan blocked = PlanTransposedGemm(small, 4, 1, pixels, 160, k, 0, pixels * 4);
  EXPECT_LE(blocked.kc * (blocked.nr() + pixels) * 4, small.l1_bytes);
  EXPECT_EQ(PlanTransposedGemm(large, 4, 1, pixels, 160, k, 0, pixels * 4).kc, k);
  const GemmPlan rows = PlanGemm(small, ColumnSource::kPacked, 4, 1, 3136, 64, 256);
  EXPECT_LE(rows.mc * rows.k * 4, small.l2_bytes / 2);
}

TEST(GemmPlanTest, LongKIsBlockedWhereL2WouldHoldFewRows) {
  const Core small{32, 16, 32 << 10, 512 << 10};
  for (int64_t m : {32, 64, 128, 197, 1000}) {
    const GemmPlan plan = PlanGemm(small, ColumnSource::kPacked, 4, 1, m, 768, 3072);
    EXPECT_GT(plan.k_blocks(), 1) << m;
    EXPECT_LE(plan.mc * plan.kc * 4, small.l2_bytes / 2) << m;
    EXPECT_LE(plan.row_blocks(), CeilDiv(m, 64)) << m;
    EXPECT_LE(plan.scratch_bytes(), kMaxScratchBytes) << m;
    EXPECT_LE(plan.kc * plan.nr() * 4, small.l1_bytes) << m;
    EXPECT_EQ(plan.unrolled_steps(), 4) << m;
  }
  // Few rows, too, in longer blocks; not those that read Q as fast as it comes.
  for (const int64_t m : {8, 16, 24, 31}) {
    const GemmPlan plan = PlanGemm(small, ColumnSource::kPacked, 4, 1, m, 768, 3072);
    EXPECT_EQ(plan.kc, 512) << m;
    EXPECT_EQ(plan.mc, m) << m;
  }
  EXPECT_EQ(PlanGemm(small, ColumnSource::kPacked, 4, 1, 4, 768, 3072).k_blocks(), 1);
  // Two panels of k beside P are more than L2 has.
  EXPECT_EQ(PlanGemm(small, ColumnSource::kPacked, 4, 1, 128, 768, 1536).kc, 256);
  // Whole: enough rows, few rows anyway, a larger L2.
  EXPECT_EQ(PlanGemm(small, ColumnSource::kPacked, 4, 1, 128, 3072, 768).k_blocks(), 1);
  EXPECT_EQ(PlanGemm(small, ColumnSource::kPacked, 4, 1, 16, 3072, 768).k_blocks(), 1);
  EXPECT_EQ(PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, 128, 768, 3072).k_blocks(), 1);
}

// Tiles of fewer rows, which read more of Q for each: where P comes from L2 for every panel, or its rows share their
// sets of L1.
TEST(GemmPlanTest, TilesHaveFewRowsWhereThoseComeLate) {
  const Core small{32, 16, 32 << 10, 512 << 10};
  auto plan_of = [&](int64_t m, int64_t n, int64_t k) { return PlanGemm(small, ColumnSource::kPacked, 4, 1, m, n, k); };
  for (const int64_t k : {1792, 2048, 4096, 5632}) {
    const GemmPlan plan = plan_of(256, 5632, k);
    EXPECT_EQ(plan.mr, 4) << k;
    EXPECT_EQ(plan.kc, 256) << k;
    EXPECT_EQ(plan.mc, 64) << k;
  }
  EXPECT_EQ(plan_of(256, 1024, 1024).mr, 4);
  EXPECT_EQ(plan_of(256, 1024, 1040).mr, 6);
  EXPECT_EQ(plan_of(256, 1024, 512).mr, 6);
}

// A second tile would read the panel from behind L2; one tile reads it once.
TEST(GemmPlanTest, FewRowsBlockLongKWhereWhatL2DoesNotHoldIsLate) {
  const Core far = WithFarCaches(Core{});
  for (const int64_t m : {16, 17, 24, 25, 31}) {
    const GemmPlan plan = PlanGemm(far, ColumnSource::kPacked, 4, 1, m, 768, 4096, TailRows::kShared);
    ASSERT_GT(m, plan.mr);
    EXPECT_EQ(plan.kc, 512) << m;
    EXPECT_EQ(plan.row_blocks(), 1) << m;
    EXPECT_LE(plan.scratch_bytes(), kMaxScratchBytes) << m;
    EXPECT_EQ(PlanGemm(far, ColumnSource::kPacked, 4, 1, m, 4096, 768, TailRows::kShared).k_blocks(), 1) << m;
  }
  EXPECT_EQ(PlanGemm(far, ColumnSource::kPacked, 4, 1, 12, 1024, 4096).k_blocks(), 1);
  EXPECT_EQ(PlanGemm(far, ColumnSource::kPacked, 4, 1, 1, 1024, 4096).k_blocks(), 1);
}

// Unless scratch, or L2, has no room for the whole panel.
TEST(GemmPlanTest, PanelsThatTasksPackAreWholeWhereSumsComeLate) {
  for (const int64_t l2_bytes : {512 << 10, 1 << 20, 4 << 20}) {
    const Core small{32, 16, 32 << 10, l2_bytes};
    EXPECT_EQ(PlanGemm(small, ColumnSource::kOnTheFly, 4, 1, 128, 784, 1152).k_blocks(), 1);
    const GemmPlan larger = PlanGemm(small, ColumnSource::kOnTheFly, 4, 1, 512, 784, 4608);
    EXPECT_GT(larger.k_blocks(), 1);
    for (int64_t k = 1000; k < 4000; k += 100) {
      EXPECT_LE(PlanGemm(small, ColumnSource::kOnTheFly, 4, 1, 512, 784, k).scratch_bytes(), kMaxScratchBytes) << k;
    }
  }
  EXPECT_EQ(PlanGemm(Core{}, ColumnSource::kOnTheFly, 4, 1, 512, 784, 1152).kc, 576);
}

// With one multiply-add a cycle P may come from L3, so that Q is read once.
TEST(GemmPlanTest, OneMultiplyAddACycleLeavesRowsTogether) {
  const Core one = WithOneMultiplyAdd(Core{}), two{64, 32, 32 << 10, 1 << 20, 2};
  EXPECT_EQ(PlanGemm(one, ColumnSource::kPacked, 4, 1, 128, 768, 3072).row_blocks(), 1);
  EXPECT_GT(PlanGemm(one, ColumnSource::kPacked, 4, 1, 512, 768, 3072).row_blocks(), 1);
  EXPECT_GT(PlanGemm(two, ColumnSource::kPacked, 4, 1, 128, 768, 3072).row_blocks(), 1);
  EXPECT_GT(PlanGemm(one, ColumnSource::kPacked, 4, 1, 3136, 64, 256).row_blocks(), 4);  // Q is near anyway
}

TEST(GemmPlanTest, StepsAreUnrolledWhereTheyDivideK) {
  const Core small{32, 16, 32 << 10, 512 << 10};
  GemmPlan plan = PlanGemm(small, ColumnSource::kPacked, 4, 1, 197, 384, 384);
  ASSERT_EQ(plan.nv, 2);
  EXPECT_EQ(plan.unrolled_steps(), 4);
  plan.kc = 130;  // blocks of 130, 130, 124
  EXPECT_EQ(plan.unrolled_steps(), 1);
  EXPECT_EQ(PlanGemm(small, ColumnSource::kPacked, 4, 1, 197, 384, 383).unrolled_steps(), 1);
  plan = PlanGemm(small, ColumnSource::kPacked, 4, 1, 128, 768, 768);
  ASSERT_EQ(plan.nv, 3);
  EXPECT_EQ(plan.unrolled_steps(), 4);
  EXPECT_EQ(PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, 197, 384, 384).unrolled_steps(), 1);
  EXPECT_EQ(PlanGemm(small, ColumnSource::kOnTheFly, 4, 1, 256, 784, 512).unrolled_steps(), 4);
  EXPECT_EQ(PlanGemm(small, ColumnSource::kDirect, 4, 1, 256, 784, 512).unrolled_steps(), 1);
  plan = PlanTransposedGemm(small, 4, 1, 49, 2048, 512, 0, kLineBytes);
  ASSERT_EQ(plan.nv, 2);
  EXPECT_EQ(plan.k_blocks(), 3);
  EXPECT_EQ(plan.unrolled_steps(), 4) << "blocks of " << plan.kc;
  EXPECT_EQ(PlanTransposedGemm(WithFarCaches(Core{}), 4, 1, 49, 2048, 512, 0, kLineBytes).unrolled_steps(), 1);
}

TEST(GemmPlanTest, TilesOfFiveRowsBeginSooner) {
  const Core other{32, 16, 32 << 10, 512 << 10};
  Core small = other;
  small.slow_starts = true;
  for (const ColumnSource source : {ColumnSource::kPacked, ColumnSource::kOnTheFly}) {
    EXPECT_EQ(PlanGemm(other, source, 4, 1, 3136, 256, 64).mr, 6);
    for (const int64_t k : {32, 64, 96}) EXPECT_EQ(PlanGemm(small, source, 4, 1, 3136, 256, k).mr, 5) << k;
    EXPECT_EQ(PlanGemm(small, source, 4, 1, 3136, 64, 256).mr, 6);
    EXPECT_EQ(PlanGemm(small, source, 4, 1, 3136, 256, 63).mr, 6) << "steps that are not unrolled";
  }
}

TEST(GemmPlanTest, LastTilesShareATailOfFewRows) {
  const Core avx2{32, 16, 32 << 10, 512 << 10};
  auto plan = [](const Core& core, int64_t m, int64_t n, TailRows tail) {
    return PlanGemm(core, ColumnSource::kPacked, 4, 1, m, n, 512, tail);
  };
  for (const Core& core : {avx2, Core{}, WithOneMultiplyAdd(Core{}), WithFarCaches(Core{})}) {
    for (int64_t m = 1; m <= 300; ++m) {
      for (const GemmPlan& shared :
           {plan(core, m, 512, TailRows::kShared), PlanTransposedGemm(core, 4, 1, m, 64, 512, 0, kLineBytes)}) {
        const int64_t lower = shared.lower_tiles();
        EXPECT_EQ(shared.whole_tiles() * shared.mr + lower * (shared.mr - 1) + shared.m_tail(), m);
        EXPECT_TRUE(lower == 0 || shared.m_tail() == 0) << m;
        EXPECT_EQ(shared.whole_tiles() + lower + (shared.m_tail() > 0 ? 1 : 0), shared.tiles()) << m;
      }
      EXPECT_EQ(plan(core, m, 512, TailRows::kOneTile).lower_tiles(), 0);
    }
  }
  const GemmPlan shared = plan(avx2, 128, 512, TailRows::kShared);  // no multiple of 24 columns
  EXPECT_EQ(shared.mr, 6);
  EXPECT_EQ(shared.lower_tiles(), 4);
  EXPECT_EQ(plan(avx2, 197, 384 + 16, TailRows::kShared).lower_tiles(), 0) << "five rows are enough for a tile";
}

TEST(GemmPlanTest, FarResultsAreWrittenByWideTiles) {
  const Core core = WithFarCaches(Core{});
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{3136, 256}, {12544, 64}, {3136, 512}}) {
    const GemmPlan plan = PlanGemm(core, ColumnSource::kPacked, 4, 1, m, n, 64);
    EXPECT_GE(plan.nv, 3) << m << " " << n;
    EXPECT_LE(plan.mc, 72) << m << " " << n;
    const GemmPlan near = PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, m, n, 64);
    EXPECT_LE(near.nv, 2) << m << " " << n;
    EXPECT_GT(near.mc, 1000) << m << " " << n;
    EXPECT_GE(PlanGemm(core, ColumnSource::kDirect, 4, 1, n, m, 64).nv, 3) << "rows lie apart";
  }
  EXPECT_EQ(PlanGemm(core, ColumnSource::kPacked, 4, 1, 3136, 64, 64).row_blocks(), 1) << "L2 holds the results";
  EXPECT_GT(PlanGemm(core, ColumnSource::kPacked, 4, 1, 512, 3072, 768).mc, 72) << "blocks of rows would read Q anew";
}

TEST(GemmPlanTest, FarResultsOfFewStepsAreAskedFor) {
  auto late = [](const Core& core, int64_t m, int64_t n, int64_t k) {
    return ResultsComeLate(PlanGemm(core, ColumnSource::kPacked, 4, 1, m, n, k), 4 * m * n);
  };
  const Core far = WithFarCaches(Core{});
  EXPECT_TRUE(late(far, 3136, 256, 64));
  EXPECT_TRUE(late(WithOneMultiplyAdd(Core{}), 3136, 256, 64));
  EXPECT_FALSE(late(far, 1024, 1024, 768)) << "many steps for each line";
  EXPECT_FALSE(late(far, 49, 256, 64)) << "L2 holds them";
  EXPECT_FALSE(late(Core{}, 3136, 256, 64));
}

// Loads cost power where caches are far: tiles with fewer of them for each multiply-add, if they have enough rows.
TEST(GemmPlanTest, FewLoadsWhereTheyCostPower) {
  auto loads = [](const Core& core, int64_t m, int64_t n, int64_t k) {
    const GemmPlan plan = PlanGemm(core, ColumnSource::kPacked, 4, 1, m, n, k);
    return static_cast<double>(plan.mr + plan.nv) / static_cast<double>(plan.mr * plan.nv);
  };
  const Core far = WithFarCaches(Core{});
  EXPECT_LT(loads(far, 128, 768, 768), 0.5);
  EXPECT_LT(loads(far, 197, 1536, 384), 0.5);
  EXPECT_GT(loads(Core{}, 128, 768, 768), 0.5);
  EXPECT_EQ(PlanGemm(far, ColumnSource::kPacked, 4, 1, 12, 768, 768).mr, 12);
  EXPECT_EQ(PlanGemm(far, ColumnSource::kPacked, 4, 1, 20, 768, 768).mr, 10);
}

TEST(GemmPlanTest, FarCachesHaveKBlockedAndPixelsAskedFor) {
  const Core core = WithFarCaches(Core{}), avx2 = WithFarCaches(Core{32, 16});
  for (const Core& c : {core, avx2}) {
    const GemmPlan pixels = PlanTransposedGemm(c, 4, 1, 196, 256, 1024, 0, 64);
    EXPECT_LE(pixels.kc * (pixels.nr() * 4 + 64), c.l1_bytes);
    EXPECT_TRUE(pixels.prefetch_p());
    const GemmPlan blocked = PlanGemm(c, ColumnSource::kPacked, 4, 1, 128, 768, 3072);
    EXPECT_GT(blocked.k_blocks(), 1);
    EXPECT_LE(blocked.kc * (blocked.mc + 2 * blocked.nr()) * 4, c.l2_bytes / 4);
    EXPECT_EQ(PlanGemm(c, ColumnSource::kPacked, 4, 1, 128, 768, 768).k_blocks(), 1);
    EXPECT_EQ(PlanGemm(c, ColumnSource::kPacked, 4, 1, 1, 768, 30720).k_blocks(), 1) << "one row streams";
    EXPECT_EQ(blocked.unrolled_steps(), 4) << "of any tile";
    EXPECT_TRUE(CopiesRows(c, 256, 1024, 196 * 4));
    EXPECT_TRUE(PlanGemm(c, ColumnSource::kPacked, 4, 1, 64, 192, 192).prefetch);
    EXPECT_TRUE(PlanTransposedGemm(c, 4, 1, 196, 64, 384, 0, 64).prefetch);
    EXPECT_TRUE(PlanGemm(c, ColumnSource::kPacked, 4, 1, 3136, 64, 256).prefetch_p());
    EXPECT_FALSE(PlanGemm(c, ColumnSource::kPacked, 4, 1, 49, 64, 256).prefetch_p()) << "L2 holds the rows";
    EXPECT_TRUE(PlanGemm(c, ColumnSource::kDirect, 4, 48, 197, 64, 64).prefetch_p()) << "all products' rows";
  }
  EXPECT_EQ(PlanGemm(core, ColumnSource::kDirect, 4, 1, 128, 784, 512).unrolled_steps(), 4);
  EXPECT_EQ(PlanGemm(avx2, ColumnSource::kDirect, 4, 1, 128, 784, 512).unrolled_steps(), 1) << "addresses of rows";
  EXPECT_FALSE(PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, 3136, 64, 256).prefetch_p());
  // Weights, however few: some other layer's were in the caches meanwhile.
  EXPECT_TRUE(PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, 64, 192, 192).prefetch);
  EXPECT_TRUE(PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, 16, 128, 48).prefetch);
}

// A panel's only tile asks for what it reads next, unless it reads as fast as memory is anyhow.
TEST(GemmPlanTest, FewRowsAskForWeightsWhereTheyWouldBeLate) {
  auto asks = [](const Core& core, int64_t rows, int64_t outputs) {
    const GemmPlan plan = PlanGemm(core, ColumnSource::kPacked, 4, 1, rows, outputs, 768);
    EXPECT_LE(rows, plan.mr);
    const GemmPlan pixels = PlanTransposedGemm(core, 4, 1, rows, outputs, 768, 0, 64);
    EXPECT_EQ(plan.prefetch, pixels.prefetch);
    return plan.prefetch;
  };
  const Core one = WithOneMultiplyAdd(Core{}), far = WithFarCaches(Core{}), small{32, 16, 32 << 10, 512 << 10};
  for (const Core& core : {Core{}, one, far, small}) EXPECT_FALSE(asks(core, 1, 768));
  EXPECT_FALSE(asks(one, 4, 768));
  EXPECT_TRUE(asks(one, 8, 768));
  EXPECT_TRUE(asks(one, 8, 64));
  EXPECT_FALSE(asks(small, 4, 768));
  EXPECT_TRUE(asks(small, 5, 768));
  EXPECT_TRUE(asks(far, 2, 768));
  EXPECT_FALSE(asks(far, 2, 64)) << "from L2 sooner if nobody asks";
}

// Beside one multiply-add a cycle there is time to ask for what comes late.
TEST(GemmPlanTest, OneMultiplyAddACycleAsksInSteps) {
  const Core one = WithOneMultiplyAdd(Core{});
  EXPECT_TRUE(PlanTransposedGemm(one, 4, 1, 196, 256, 1024, 0, 64).prefetch_p());
  EXPECT_TRUE(PlanGemm(one, ColumnSource::kPacked, 4, 1, 3136, 64, 256).prefetch_p());
  EXPECT_FALSE(PlanGemm(one, ColumnSource::kDirect, 4, 48, 197, 64, 64).prefetch_p()) << "not timed";
  EXPECT_EQ(PlanGemm(one, ColumnSource::kOnTheFly, 4, 1, 256, 784, 512).unrolled_steps(), 4);
  EXPECT_EQ(PlanGemm(one, ColumnSource::kPacked, 4, 1, 197, 384, 384).unrolled_steps(), 1);
  EXPECT_LT(LateImageBytes(one), LateImageBytes(Core{}));
  EXPECT_TRUE(CopiesRows(one, 64, 256, 3136 * 4));
  EXPECT_FALSE(CopiesRows(one, 64, 256, 784 * 4)) << "L2 holds the pixels";
  EXPECT_TRUE(RowsComeLate(one, 4 * 512 * 4096));
  EXPECT_FALSE(RowsComeLate(one, 4 * 100 * 1000)) << "L2 holds the rows";
  EXPECT_FALSE(RowsComeLate(Core{}, 4 * 512 * 4096));
}

// Also where a small L1 waits for L2; there results are near unless L2 does not hold them, and pixels as P are not
// asked for.
TEST(GemmPlanTest, SmallCoresAskInSteps) {
  const Core small{32, 16, 32 << 10, 512 << 10};
  EXPECT_TRUE(small.asks_in_steps());
  EXPECT_FALSE(Core{}.asks_in_steps());
  EXPECT_TRUE(RowsComeLate(small, 4 * 256 * 3136));
  EXPECT_TRUE(PlanGemm(small, ColumnSource::kPacked, 4, 1, 3136, 64, 256).prefetch_p());
  EXPECT_FALSE(PlanGemm(small, ColumnSource::kPacked, 4, 1, 3136, 64, 64).prefetch_p()) << "few steps";
  EXPECT_FALSE(PlanGemm(small, ColumnSource::kPacked, 4, 1, 784, 64, 128).prefetch_p()) << "few steps, from L2";
  EXPECT_TRUE(PlanGemm(small, ColumnSource::kPacked, 4, 1, 8192, 64, 128).prefetch_p());
  EXPECT_FALSE(PlanGemm(small, ColumnSource::kPacked, 4, 64, 64, 64, 128).prefetch_p()) << "one product's rows";
  EXPECT_TRUE(PlanGemm(small, ColumnSource::kDirect, 4, 32, 1024, 64, 128).prefetch_p()) << "all products' rows";
  EXPECT_FALSE(PlanGemm(small, ColumnSource::kDirect, 4, 2, 1024, 64, 128).prefetch_p());
  EXPECT_FALSE(PlanTransposedGemm(small, 4, 1, 196, 256, 1024, 0, 64).prefetch_p());
  EXPECT_TRUE(PlanGemm(small, ColumnSource::kPacked, 4, 1, 197, 384, 384).prefetch);
  EXPECT_FALSE(PlanGemm(small, ColumnSource::kPacked, 4, 1, 3136, 256, 64).prefetch) << "more tiles than lines";
  EXPECT_TRUE(PlanGemm(small, ColumnSource::kPacked, 4, 1, 3136, 768, 768).prefetch) << "each row block reads it again";
  const GemmPlan short_product = PlanGemm(small, ColumnSource::kPacked, 4, 1, 3136, 256, 64);
  EXPECT_FALSE(ResultsComeLate(short_product, 4 * 3136 * 256));
}

// A row's end is work beside the multiply-adds: wide tiles have fewer rows.
TEST(GemmPlanTest, OneMultiplyAddACycleHasWideTilesForFewSteps) {
  const Core one = WithOneMultiplyAdd(Core{});
  for (ColumnSource source : {ColumnSource::kDirect, ColumnSource::kOnTheFly, ColumnSource::kPacked}) {
    EXPECT_EQ(PlanGemm(one, source, 4, 1, 256, 3136, 64).nv, 4);
    EXPECT_LE(PlanGemm(one, source, 4, 1, 256, 3136, 512).nv, 3);
    EXPECT_LE(PlanGemm(Core{}, source, 4, 1, 256, 3136, 64).nv, 2);
  }
  EXPECT_LE(PlanGemm(one, ColumnSource::kDirect, 4, 1, 32, 100, 16).nv, 4) << "nor by one tile of two rows";
}

TEST(GemmPlanTest, FarRowsAreCopied) {
  const Core small{32, 16, 32 << 10, 512 << 10};
  EXPECT_TRUE(CopiesRows(small, 256, 1024, 196 * 4));
  EXPECT_FALSE(CopiesRows(small, 24, 1024, 196 * 4));
  // Rows of fewer that share their sets of L1: images of 32x32, of 64x64.
  EXPECT_TRUE(CopiesRows(small, 40, 40, 4096));
  EXPECT_TRUE(CopiesRows(small, 40, 16, 16384));
  EXPECT_FALSE(CopiesRows(small, 40, 40, 31 * 31 * 4));
  EXPECT_FALSE(CopiesRows(small, 8, 40, 4096));
  EXPECT_TRUE(CopiesRows(small, 40, 48, 80 * 80 * 4)) << "L1 holds 32 of them";
  EXPECT_FALSE(CopiesRows(small, 32, 48, 80 * 80 * 4));
  EXPECT_FALSE(CopiesRows(small, 40, 32, 80 * 80 * 4));
  // Where L1 is larger, only rows that share so few sets of L2 that it can't hold a panel.
  EXPECT_FALSE(CopiesRows(Core{}, 256, 1024, 196 * 4));
  EXPECT_FALSE(CopiesRows(Core{}, 256, 128, 4096));
  EXPECT_TRUE(CopiesRows(Core{}, 256, 256, 4096));
  EXPECT_FALSE(CopiesRows(Core{}, 16, 256, 4096));
}

TEST(GemmPlanTest, TasksAreManyWhereTheyAreWorthIt) {
  GemmPlan few = PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, 196, 96, 384);
  ASSERT_EQ(few.tasks(), 3);
  CutForThreads(&few);
  EXPECT_GE(few.tasks(), 12);
  EXPECT_TRUE(few.rows_fastest);
  GemmPlan copied = PlanGemm(Core{}, ColumnSource::kOnTheFly, 4, 1, 784, 16, 784);
  ASSERT_EQ(copied.tasks(), 1);
  CutForThreads(&copied);
  EXPECT_EQ(copied.tasks(), 8);
  GemmPlan transposed = PlanTransposedGemm(Core{}, 4, 1, 196, 96, 384, 7, 64);
  CutForThreads(&transposed);
  EXPECT_EQ(transposed.tasks(), 12);
  EXPECT_EQ(transposed.m % transposed.mc, 0) << "each of two threads, and of four, has as many pixels";
  EXPECT_FALSE(transposed.rows_fastest) << "a thread's share is pixels";
  GemmPlan copied_rows = PlanGemm(Core{}, ColumnSource::kOnTheFly, 4, 1, 576, 196, 96);
  ASSERT_EQ(copied_rows.panels(), 7);
  CutForThreads(&copied_rows);
  EXPECT_EQ(copied_rows.row_blocks(), 2) << "a thread's share is weights";
  GemmPlan copied_panels = PlanGemm(Core{}, ColumnSource::kOnTheFly, 4, 1, 512, 784, 128);
  ASSERT_EQ(copied_panels.tasks(), 17) << "two for one of 16 threads, and one for each other";
  CutForThreads(&copied_panels);
  EXPECT_GE(copied_panels.tasks(), 48);
  EXPECT_TRUE(copied_panels.rows_fastest) << "what is copied again is near";
  GemmPlan many = PlanGemm(Core{}, ColumnSource::kPacked, 4, 1, 128, 768, 768);
  ASSERT_EQ(many.tasks(), 24);
  CutForThreads(&many);
  EXPECT_EQ(many.tasks(), 48) << "three for each of 16 threads, of which 24 tasks would leave half idle half the time";
  EXPECT_TRUE(many.rows_fastest) << "one thread computes panel after panel, as without cuts";
  GemmPlan narrow = PlanTransposedGemm(Core{}, 4, 1, 49, 160, 960, 7, 64);
  CutForThreads(&narrow);
  EXPECT_EQ(narrow.tasks(), 5) << "blocks of less than two squares of vectors";
  for (const auto& [m, n, k, source] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, ColumnSource>>{{1, 96, 384, ColumnSource::kPacked},
                                                                        {196, 96, 2, ColumnSource::kPacked},
                                                                        {150, 96, 384, ColumnSource::kOnTheFly},
                                                                        {196, 3072, 384, ColumnSource::kPacked}}) {
    GemmPlan plan = PlanGemm(Core{}, source, 4, 1, m, n, k);
    const int64_t tasks = plan.tasks();
    CutForThreads(&plan);
    EXPECT_EQ(plan.tasks(), tasks) << m << " " << n << " " << k;
  }
}

}  // namespace
}  // namespace inlay::native
