#include "core/backends/native/gemm_plan.h"

#include <algorithm>

namespace inlay::native {
namespace {

constexpr int64_t kTileOverheadCycles = 24;    // accumulators in and out, loop set-up
constexpr int64_t kRowBlockBytes = 512 << 10;  // of P in a row block: half of a usual L2
constexpr int64_t kSlabBytes = 128 << 10;

int64_t RoundUp(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Two fused multiply-adds and two loads a cycle, four cycles from one to the next of a chain.
double TileCycles(int64_t rows, int64_t vectors, int64_t k) {
  if (rows == 0) return 0;
  double per_step = std::max({rows * vectors / 2.0, (rows + vectors) / 2.0, 4.0});
  return per_step * k + kTileOverheadCycles;
}

}  // namespace

double EstimateCycles(const GemmPlan& plan) {
  auto panel = [&](int64_t vectors) {
    return (plan.m / plan.mr) * TileCycles(plan.mr, vectors, plan.k) + TileCycles(plan.m_tail(), vectors, plan.k);
  };
  return plan.batch * ((plan.panels() - 1) * panel(plan.nv) + panel(plan.nv_last));
}

int64_t GemmPlan::accumulator_elements() const { return (k_blocks() > 1 ? std::min(mc, RoundUp(m, mr)) : mr) * nr(); }

int64_t GemmPlan::scratch_bytes() const {
  int64_t packed = source == ColumnSource::kOnTheFly ? kc * nr() : 0;
  return RoundUp(accumulator_elements() * element_bytes, 64) + RoundUp(packed * element_bytes, 64);
}

GemmPlan PlanGemm(const VectorIsa& isa, ColumnSource source, int64_t element_bytes, int64_t batch, int64_t m, int64_t n,
                  int64_t k) {
  GemmPlan plan;
  plan.batch = batch;
  plan.m = m;
  plan.n = n;
  plan.k = k;
  plan.source = source;
  plan.element_bytes = element_bytes;
  plan.lanes = isa.vector_bytes / element_bytes;

  GemmPlan best = plan;
  double best_cycles = -1;
  for (int64_t mr = 1; mr <= std::min<int64_t>(m, 14); ++mr) {
    for (int64_t nv = 1; nv <= 8; ++nv) {
      // Accumulators, a row of Q, and a broadcast element of P.
      if (mr * nv + nv + 1 > isa.registers || (nv > 4 && mr > 2)) continue;
      plan.mr = mr;
      plan.nv = nv;
      plan.nv_last = RoundUp(plan.n_last(), plan.lanes) / plan.lanes;
      if (plan.panels() == 1 && plan.nv != plan.nv_last) continue;  // the same as a smaller nv
      double cycles = EstimateCycles(plan);
      if (best_cycles < 0 || cycles < best_cycles) {
        best_cycles = cycles;
        best = plan;
      }
    }
  }
  plan = best;

  // One block of k unless Q's block falls out of the near caches while P's tiles pass over it.
  int64_t limit = source == ColumnSource::kOnTheFly ? 96 << 10 : 384 << 10;
  int64_t kc = std::max<int64_t>(limit / (plan.nr() * element_bytes), 64);
  int64_t blocks = plan.m <= plan.mr ? 1 : std::max<int64_t>((k + kc - 1) / kc, 1);
  if (source == ColumnSource::kOnTheFly) blocks = std::max<int64_t>((k + kc - 1) / kc, 1);
  plan.kc = (k + blocks - 1) / blocks;

  plan.mc = m;
  if (source != ColumnSource::kOnTheFly) {
    int64_t rows = kRowBlockBytes / std::max<int64_t>(k * element_bytes, 1);
    if (blocks > 1) rows = std::min(rows, kSlabBytes / (plan.nr() * element_bytes));
    rows = std::max(RoundUp(rows, plan.mr), 4 * plan.mr);
    if (rows < m) {
      int64_t row_blocks = (m + rows - 1) / rows;
      plan.mc = RoundUp((m + row_blocks - 1) / row_blocks, plan.mr);
    }
  }
  return plan;
}

}  // namespace inlay::native
