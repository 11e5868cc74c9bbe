#include "core/backends/native/recurrent_plan.h"

#include "core/backends/native/rounding.h"
#include "gtest/gtest.h"

namespace inlay::native {
namespace {

const Core kSmall{32, 16, 32 << 10, 512 << 10};

RecurrentProblem Lstm(int64_t batch, int64_t lanes = 8) {
  RecurrentProblem problem;
  problem.batch = batch;
  problem.hidden = problem.depth = 512;
  problem.gates = 4;
  problem.exponentials = 5;
  problem.lanes = lanes;
  return problem;
}

TEST(RecurrentPlanTest, ABatchThatOneTileTakesReadsABlockOnce) {
  for (const int64_t batch : {1, 2}) {
    const GemmPlan gemm = PlanRecurrent(kSmall, Lstm(batch)).gemm;
    EXPECT_EQ(gemm.tasks(), 1) << batch;
    EXPECT_EQ(gemm.tiles(), 1) << batch;
    EXPECT_EQ(gemm.mr * gemm.nv, 8) << batch;
  }
  EXPECT_EQ(PlanRecurrent(Core{}, Lstm(6, 16)).gemm.tiles(), 1);
}

// Four gates' tiles of all columns have eight accumulators there, too few for the chains.
TEST(RecurrentPlanTest, MoreRowsHaveTilesOfSomeColumnsWhereRegistersAreFew) {
  for (const int64_t batch : {3, 8, 32}) {
    const RecurrentPlan plan = PlanRecurrent(kSmall, Lstm(batch));
    EXPECT_GT(plan.gemm.panels(), 1) << batch;
    EXPECT_GT(plan.gemm.mr * plan.gemm.nv, 8) << batch;
    EXPECT_EQ(plan.gemm.n, 4 * plan.units) << batch;
  }
}

TEST(RecurrentPlanTest, LargeBatchesAreCutIntoRowsThatL2Holds) {
  for (const int64_t batch : {300, 517, 100'000}) {
    const RecurrentPlan plan = PlanRecurrent(kSmall, Lstm(batch));
    EXPECT_GT(plan.row_blocks, 1) << batch;
    EXPECT_EQ(plan.row_blocks, CeilDiv(batch, plan.gemm.m)) << batch;
    EXPECT_LE(plan.gemm.m * plan.gemm.n * 4, 32 << 10) << batch;
  }
}

}  // namespace
}  // namespace inlay::native
