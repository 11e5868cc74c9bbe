#include "core/backends/native/winograd_plan.h"

#include <algorithm>
#include <functional>

#include "core/backends/native/rounding.h"
#include "core/backends/native/winograd_cost.h"

namespace inlay::native {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kBlockScratchBytes = 704 << 10;  // lies on a task's stack
constexpr int64_t kMaxBlockTiles = 64;
constexpr int64_t kMinBlockColumns = 24;
// Whole blocks are handed to threads only where there are enough of them.
constexpr int64_t kMinFusedBlocks = 6;
// Both estimates are rough, and the direct way's error is smaller. Of groups they are rougher (Zen 3: 37 of 24 channels
// of 7x7 by F(2) 0.9 by the estimate, 1.1 measured).
constexpr double kClearly = 0.9, kClearlyOfGroups = 0.8;
// And of 5x5, whose weights that come from afar take longer (Emerald Rapids, 256 channels of 8x8: 0.89 by the estimate,
// 1.3 measured).
constexpr double kClearlyOfFive = 0.8;
// For which finer blocks are made.
constexpr int64_t kManyThreads = 16;
// Stays in L2 beside the weights; or mostly, where what does not comes late (Zen 3: 64 channels of 224x224 by 340 KB of
// 512 16.4 ms, not fused 17.9).
int64_t FusedScratchBytes(const Core& core) { return core.l2_bytes * (core.waits_for_l2() ? 12 : 7) / 16; }

struct Vectors {
  int64_t least, most;  // of a panel
};

// Few threads also mean two: where one takes about as long either way, tasks that they share evenly (14 blocks of 64
// channels of 56x56, not 7).
double Rank(const WinogradPlan& plan, int64_t threads) {
  return plan.CyclesWith(threads) + (threads == 1 ? plan.CyclesWith(2) : 0);
}

// The register tile for the plan's blocks with which `threads` are soonest done.
void ChooseTile(const Core& core, const Vectors& of_panel, int64_t threads, WinogradPlan* plan,
                std::optional<WinogradPlan>* best) {
  const ConvShape& s = plan->shape;
  int64_t vectors = CeilDiv(plan->group_outputs(), plan->lanes);
  GemmPlan& g = plan->gemm;
  g.core = core;
  g.lanes = plan->lanes;
  g.element_bytes = kFloatBytes;
  g.source = ColumnSource::kPacked;
  g.m = g.mc = plan->block_tiles();
  g.k = g.kc = plan->term_channels();
  g.prefetch = true;
  for (int64_t nv = of_panel.least; nv <= std::min(vectors, of_panel.most); ++nv) {
    for (int64_t mr = 1; mr <= std::min<int64_t>(g.m, 12); ++mr) {
      if (!FitsRegisters(core, mr, nv)) continue;
      g.mr = mr;
      g.nv = g.nv_last = nv;
      g.n = g.nr();
      g.batch = s.groups * CeilDiv(vectors, nv) * plan->products();
      for (int option = 0; option < 3; ++option) {
        plan->fused = option == 1;
        plan->panels_outer = option == 2;
        if (plan->fused &&
            (plan->is_deep() || plan->blocks() < kMinFusedBlocks || plan->scratch_bytes() > FusedScratchBytes(core)))
          continue;
        if (plan->scratch_bytes() > kBlockScratchBytes || (plan->panels_outer && plan->blocks() == 1)) {
          continue;
        }
        plan->cycles = WinogradCycles(core, *plan);
        if (!best->has_value() || Rank(*plan, threads) < Rank(**best, threads)) *best = *plan;
      }
    }
  }
}

// Every way to cut the results into blocks of tiles of m x m.
void ForEachBlocking(const Core& core, const ConvShape& shape, int64_t m,
                     const std::function<void(WinogradPlan* plan)>& consider) {
  WinogradPlan plan;
  plan.shape = shape;
  plan.lanes = core.vector_bytes / kFloatBytes;
  plan.m = m;
  auto tiles_of = [&](int axis) {
    return shape.dilation[axis] * CeilDiv(CeilDiv(shape.out[axis], shape.dilation[axis]), m);
  };
  plan.tile_rows = tiles_of(1);
  plan.tile_columns = tiles_of(2);
  // Narrower blocks than need be, where only those leave room in L2 for a fused task. A block of a dilated one has all
  // of a row of results.
  int64_t least = plan.is_dilated() ? 1 : CeilDiv(plan.tile_columns, kMaxBlockTiles);
  int64_t most = plan.is_dilated() ? 1 : std::max(least, CeilDiv(plan.tile_columns, kMinBlockColumns));
  for (int64_t column_blocks = least; column_blocks <= most; ++column_blocks) {
    plan.block_columns = CeilDiv(plan.tile_columns, column_blocks);
    if (plan.column_blocks() != column_blocks) continue;
    // A block of deep ones has its input in one image.
    int64_t rows = (shape.kernel[0] > 1 ? 1 : shape.n) * shape.out[0] * plan.tile_rows;
    for (int64_t r = 1; r <= rows && (r == 1 || r * plan.block_columns <= kMaxBlockTiles); ++r) {
      if (r > 1 && plan.split_columns()) break;
      // Blocks of equal size.
      if (r > 1 && CeilDiv(rows, CeilDiv(rows, r)) != r) continue;
      if (plan.is_deep() && shape.n > 1 && rows % r != 0) continue;
      plan.block_rows = r;
      consider(&plan);
    }
  }
}

// Of an axis: the product whose term a point is. Those of even inputs come first, in A's order, then the odd inputs.
struct AxisTerm {
  int64_t product = 0, term = 0;
};

AxisTerm AxisTermOf(const WinogradPlan& plan, int64_t point) {
  const int64_t odd = point - (plan.m + 1);
  if (!plan.is_strided() || odd < 0) return {point, 0};
  if (odd == 0) return {0, 1};
  if (odd == plan.m - 1) return {plan.m, 1};
  return {plan.m + odd, 0};
}

int64_t AxisTerms(const WinogradPlan& plan, int64_t product) {
  return plan.is_strided() && (product == 0 || product == plan.m) ? 2 : 1;
}

}  // namespace

std::vector<WinogradProducts> WinogradPlan::product_kinds() const {
  if (!is_strided()) return {{products(), 1, 0, 0}};
  const int64_t ones = axis_products() - 2;  // of an axis, of one term (AxisTerms)
  return {{4, 4, 0, 0}, {4 * ones, 2, 4, 16}, {ones * ones, 1, 4 + 4 * ones, 16 + 8 * ones}};
}

std::vector<int64_t> WinogradPlan::product_places() const {
  std::vector<int64_t> places(products());
  for (const WinogradProducts& of : product_kinds()) {
    int64_t place = of.first;
    for (int64_t i = 0; i < axis_products(); ++i) {
      for (int64_t j = 0; j < axis_products(); ++j) {
        if (AxisTerms(*this, i) * AxisTerms(*this, j) == of.terms) places[i * axis_products() + j] = place++;
      }
    }
  }
  return places;
}

std::vector<WinogradPoint> WinogradPlan::point_places() const {
  const std::vector<int64_t> products = product_places();
  const std::vector<WinogradProducts> kinds = product_kinds();
  std::vector<WinogradPoint> result;
  for (int64_t i = 0; i < axis_points(); ++i) {
    for (int64_t j = 0; j < axis_points(); ++j) {
      const AxisTerm row = AxisTermOf(*this, i), column = AxisTermOf(*this, j);
      const int64_t product = products[row.product * axis_products() + column.product];
      const int64_t term = row.term * AxisTerms(*this, column.product) + column.term;
      for (const WinogradProducts& of : kinds) {
        if (product < of.first || product >= of.first + of.count) continue;
        const int64_t point = of.first_point + (product - of.first) * of.terms;
        result.push_back({point + term, input_offset(product, point) + term * tile_channels(), of.terms});
      }
    }
  }
  return result;
}

GemmPlan WinogradPlan::gemm_of(const WinogradProducts& of) const {
  GemmPlan result = gemm;
  result.k = result.kc = of.terms * gemm.k;
  result.batch = panels() * of.count;
  return result;
}

int64_t WinogradPlan::scratch_bytes() const {
  int64_t elements = product_elements() + result_elements() + lanes * lanes + (fused ? input_elements() : 0);
  return elements * kFloatBytes + 4 * 64;
}

bool IsWinogradShape(const ConvShape& s) {
  const Spatial ones{1, 1, 1}, twos{1, 2, 2};
  const bool is_dilated = s.dilation != ones;
  const int64_t taps = s.kernel[2];
  const bool may_be_dilated = s.kernel[0] == 1 && s.stride == ones && s.dilation[0] == 1 && s.pad[1] >= 0 &&
                              s.pad[2] >= 0 && s.dilation[1] <= s.out[1] && s.dilation[2] <= s.out[2] &&
                              s.in[1] + s.pad[1] <= s.out[1] + (taps - 1) * s.dilation[1] &&
                              s.in[2] + s.pad[2] <= s.out[2] + (taps - 1) * s.dilation[2];
  const bool is_three = taps == 3 && (s.stride == ones || (s.stride == twos && s.kernel[0] == 1));
  const bool is_five = taps == 5 && s.stride == ones && s.kernel[0] == 1;
  return s.kernel[1] == taps && (is_three || is_five) && (!is_dilated || may_be_dilated) && s.input_dilation == ones &&
         !s.reversed && (s.groups == 1 || s.c > s.groups);
}

std::optional<WinogradPlan> PlanWinograd(const Core& core, const ConvShape& shape, int64_t only_m) {
  std::optional<WinogradPlan> best;
  if (!IsWinogradShape(shape)) return best;
  for (int64_t m : {2, 4}) {
    if ((only_m != 0 && m != only_m) || (shape.kernel[2] == 5 && m > 2)) continue;
    ForEachBlocking(core, shape, m, [&](WinogradPlan* plan) { ChooseTile(core, {1, 6}, 1, plan, &best); });
  }
  return best;
}

std::optional<FinerWinograd> FinerBlocks(const WinogradPlan& plan) {
  const GemmPlan& g = plan.gemm;
  std::optional<WinogradPlan> best;
  ForEachBlocking(g.core, plan.shape, plan.m, [&](WinogradPlan* finer) {
    if (finer->block_columns != plan.block_columns) return;
    ChooseTile(g.core, {g.nv, g.nv}, kManyThreads, finer, &best);
  });
  if (!best.has_value()) return std::nullopt;
  FinerWinograd finer{*best, kManyThreads + 1};
  while (finer.threads > 2 &&
         finer.plan.CyclesWith(finer.threads - 1) < kClearly * plan.CyclesWith(finer.threads - 1)) {
    --finer.threads;
  }
  if (finer.threads > kManyThreads) return std::nullopt;
  return finer;
}

std::optional<WinogradPlan> ChooseWinograd(const Core& core, const ConvPlan& direct, WinogradChoice choice) {
  if (choice.m == WinogradChoice::kNever) return std::nullopt;
  if (choice.m != WinogradChoice::kByRule) return PlanWinograd(core, direct.shape, choice.m);
  std::optional<WinogradPlan> plan = PlanWinograd(core, direct.shape);
  const bool is_five = direct.shape.kernel[2] == 5;
  const double clearly = direct.shape.groups > 1 ? kClearlyOfGroups : is_five ? kClearlyOfFive : kClearly;
  if (plan.has_value() && plan->cycles > clearly * CyclesBeside(core, direct)) plan.reset();
  return plan;
}

}  // namespace inlay::native
