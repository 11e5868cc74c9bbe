#include "core/backends/native/recurrent_plan.h"

#include <algorithm>

#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

// Of the rows of a product, which lies beside r and the states in L2.
constexpr int64_t kProductBytes = 32 << 10;

// Of an exponential of a vector, alone and beside another's: each is a chain, which leaves room for a second (Zen 3, a
// step of 16 rows and more: LSTM 1.01 to 1.03, GRU 1.01 to 1.04, RNN 1.03 to 1.05. Emerald Rapids, AVX-512: of 256
// units 1.00 to 1.06, of 512, which wait for their weights, 0.96 to 1.03).
constexpr double kGateCycles = 40, kPairedGateCycles = 26;

// Of a tile of all columns of a block.
int64_t TileRows(const Core& core, int64_t columns) {
  return std::max<int64_t>((core.registers - 1 - columns) / columns, 1);
}

bool IsOneTile(const Core& core, const RecurrentProblem& problem, int64_t vectors) {
  return problem.batch <= TileRows(core, problem.gates * vectors);
}

RecurrentPlan Cut(const Core& core, const RecurrentProblem& problem, int64_t vectors) {
  const int64_t lanes = problem.lanes, batch = problem.batch, bytes = problem.element_bytes;
  const int64_t columns = problem.gates * vectors;
  const int64_t most = std::max<int64_t>(kProductBytes / (columns * lanes * bytes), 1);
  const int64_t rows = CeilDiv(batch, CeilDiv(batch, most));
  const bool is_paired = core.has_few_registers() && vectors % 2 == 0;
  RecurrentPlan plan;
  plan.vectors = vectors;
  plan.units = vectors * lanes;
  plan.blocks = CeilDiv(problem.hidden, plan.units);
  plan.row_blocks = CeilDiv(batch, rows);
  plan.gate_lanes = is_paired ? 2 * lanes : lanes;
  plan.gemm = PlanGemm(core, ColumnSource::kPacked, bytes, 1, rows, columns * lanes, problem.depth, TailRows::kShared);
  // Few rows read the block once, and short vectors are not the plan's.
  if (IsOneTile(core, problem, vectors) || lanes * bytes != core.vector_bytes) {
    plan.gemm.lanes = lanes;
    plan.gemm.mr = std::min(TileRows(core, columns), rows);
    plan.gemm.nv = plan.gemm.nv_last = columns;
    plan.gemm.shares_tail = false;
    plan.gemm.kc = problem.depth;
    plan.gemm.mc = rows;
  }
  const double gate = static_cast<double>(problem.exponentials) * (is_paired ? kPairedGateCycles : kGateCycles);
  plan.cycles =
      static_cast<double>(plan.row_blocks) * EstimateCycles(plan.gemm) + gate * static_cast<double>(batch * vectors);
  return plan;
}

// By few threads and by many together.
double Cost(const RecurrentProblem& problem, const RecurrentPlan& plan) {
  double sum = 0;
  for (const int64_t threads : {1, 2, 4, 8}) {
    sum += static_cast<double>(RoundUp(problem.directions * plan.blocks, threads)) * plan.cycles;
  }
  return sum;
}

}  // namespace

RecurrentPlan PlanRecurrent(const Core& core, const RecurrentProblem& problem) {
  auto fits = [&](int64_t vectors) { return vectors == 1 || vectors * problem.lanes * 2 <= problem.hidden; };
  // A row of the batch needs eight accumulators to keep the multipliers busy; several rows have them anyway.
  int64_t vectors = std::max<int64_t>((problem.batch == 1 ? 8 : 4) / problem.gates, 1);
  while (!fits(vectors)) vectors /= 2;
  RecurrentPlan best = Cut(core, problem, vectors);
  if (IsOneTile(core, problem, vectors)) return best;
  for (const int64_t other : {1, 2, 3, 4}) {
    if (other == vectors || !fits(other)) continue;
    const RecurrentPlan plan = Cut(core, problem, other);
    if (Cost(problem, plan) < Cost(problem, best)) best = plan;
  }
  return best;
}

}  // namespace inlay::native
