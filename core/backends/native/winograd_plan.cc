#include "core/backends/native/winograd_plan.h"

#include <algorithm>
#include <functional>

#include "core/backends/native/conv_phases.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/winograd_cost.h"

namespace inlay::native {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kBlockScratchBytes = 704 << 10;  // lies on a task's stack
constexpr int64_t kMaxBlockTiles = 64, kMaxLineBlockTiles = 192;
constexpr int64_t kMinBlockColumns = 24;
// Of kernels along both axes, and along one.
constexpr int64_t kMaxSquarePoints = 6, kMaxSquareTaps = kMaxSquarePoints - 1;
constexpr int64_t kMaxLinePoints = 8, kMaxLineTaps = 128;
constexpr int64_t kChunk = 4;  // of longer ones, and of seven where that takes fewer products
// Whole blocks are handed to threads only where there are enough of them.
constexpr int64_t kMinFusedBlocks = 6;
// Both estimates are rough, and the direct way's error is smaller. Of groups they are rougher (Zen 3: 37 of 24 channels
// of 7x7 by F(2) 0.9 by the estimate, 1.1 measured).
constexpr double kClearly = 0.9, kClearlyOfGroups = 0.8;
// And of 5x5, whose weights that come from afar take longer (Emerald Rapids, 256 channels of 8x8: 0.89 by the estimate,
// 1.3 measured).
constexpr double kClearlyOfFive = 0.8;
// So do a line's there (512 channels of 2x49, 3x1: 0.78 by the estimate, 1.07 measured); others take less than
// estimated (64 of 64x128, 3x1: 0.93, 0.76 measured).
constexpr double kClearlyOfFarLine = 0.95, kClearlyOfFarWeights = 0.75;
// A kernel may have so many times as many taps when it is split (3x3/2 would have 16).
constexpr double kMostSplitTaps = 1.6;
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
            (plan->is_deep() || plan->tasks() < kMinFusedBlocks || plan->scratch_bytes() > FusedScratchBytes(core)))
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

bool IsChunked(int64_t taps, int64_t m) { return m == kChunk && taps >= kMaxLinePoints - 1; }

bool IsDilatedSequence(const ConvShape& s) {
  return s.dilation[2] > 1 && s.in[0] * s.in[1] == 1 && s.out[0] * s.out[1] == 1 && s.kernel[0] * s.kernel[1] == 1;
}

// A phase's last tiles are not followed by its own.
bool MayBeChunked(const ConvShape& s) { return s.dilation == Spatial{1, 1, 1} || IsDilatedSequence(s); }

// Whether the tile of m results an axis is one that the kernel has (winograd_plan.h). Lines have no odd number of
// points but in chunks, where even ones would not be fewer.
bool HasTile(const ConvShape& s, int64_t m) {
  const int64_t taps = std::max(s.kernel[1], s.kernel[2]), points = m + taps - 1;
  if (s.stride[2] > 1) return m == 2 || m == 4;
  if (std::min(s.kernel[1], s.kernel[2]) > 1) return points >= 4 && points <= kMaxSquarePoints;
  if (IsChunked(taps, m)) return MayBeChunked(s);
  return points >= 4 && points <= kMaxLinePoints && points % 2 == 0;
}

// Every way to cut the results into blocks of tiles, of m rows and columns where the kernel has several.
void ForEachBlocking(const Core& core, const ConvShape& shape, int64_t m,
                     const std::function<void(WinogradPlan* plan)>& consider) {
  WinogradPlan plan;
  plan.shape = shape;
  plan.lanes = core.vector_bytes / kFloatBytes;
  auto axis_of = [&](int axis) {
    const int64_t taps = shape.kernel[axis];
    return WinogradAxis{taps > 1 ? m : 1, taps, shape.stride[axis], IsChunked(taps, m) ? CeilDiv(taps, m) : 1};
  };
  plan.rows = axis_of(1);
  plan.columns = axis_of(2);
  plan.folded = IsDilatedSequence(shape);
  if (plan.folded) std::swap(plan.rows, plan.columns);
  plan.tile_rows = plan.row_phases() * CeilDiv(CeilDiv(plan.out_rows(), plan.row_phases()), plan.rows.m);
  plan.tile_columns = plan.column_phases() * CeilDiv(CeilDiv(plan.out_columns(), plan.column_phases()), plan.columns.m);
  // Narrower blocks than need be, where only those leave room in L2 for a fused task. A block of a dilated one has all
  // of a row of results.
  const int64_t most_tiles = plan.is_line() ? kMaxLineBlockTiles : kMaxBlockTiles;
  int64_t least = plan.has_phases() ? 1 : CeilDiv(plan.tile_columns, most_tiles);
  int64_t most = plan.has_phases() ? 1 : std::max(least, CeilDiv(plan.tile_columns, kMinBlockColumns));
  for (int64_t column_blocks = least; column_blocks <= most; ++column_blocks) {
    plan.block_columns = CeilDiv(plan.tile_columns, column_blocks);
    if (plan.column_blocks() != column_blocks) continue;
    // A block of deep ones has its input in one image, one of chunks of rows in one slice.
    int64_t rows = (shape.kernel[0] > 1 ? 1 : shape.n) * shape.out[0] * plan.tile_rows;
    for (int64_t r = 1; r <= rows && (r == 1 || r * plan.block_columns <= most_tiles); ++r) {
      if (r > 1 && plan.split_columns()) break;
      // Blocks of equal size.
      if (r > 1 && CeilDiv(rows, CeilDiv(rows, r)) != r) continue;
      if (plan.is_deep() && shape.n > 1 && rows % r != 0) continue;
      if (plan.rows.chunks > 1 && rows > plan.tile_rows && plan.tile_rows % r != 0) continue;
      plan.block_rows = r;
      consider(&plan);
    }
  }
}

// Of the direct way's cycles, as many as a plan may take at most.
double Clearly(const Core& core, const WinogradPlan& plan) {
  if (plan.shape.groups > 1) return kClearlyOfGroups;
  if (!plan.is_line()) return plan.rows.taps == 5 ? kClearlyOfFive : kClearly;
  if (!core.far_caches) return kClearly;
  return 2 * kFloatBytes * plan.packed_weight_elements() > core.l2_bytes ? kClearlyOfFarWeights : kClearlyOfFarLine;
}

// Of an axis: the product whose term a point is. Those of even inputs come first, in A's order, then the odd inputs.
struct AxisTerm {
  int64_t product = 0, term = 0;
};

AxisTerm AxisTermOf(const WinogradAxis& axis, int64_t point) {
  const int64_t odd = point - (axis.m + 1);
  if (axis.stride == 1 || odd < 0) return {point, 0};
  if (odd == 0) return {0, 1};
  if (odd == axis.m - 1) return {axis.m, 1};
  return {axis.m + odd, 0};
}

int64_t AxisTerms(const WinogradAxis& axis, int64_t product) {
  return axis.stride > 1 && (product == 0 || product == axis.m) ? 2 : 1;
}

}  // namespace

std::vector<WinogradProducts> WinogradPlan::product_kinds() const {
  if (!is_strided()) return {{products(), 1, 0, 0}};
  const int64_t ones = columns.products() - 2;  // of an axis, of one term (AxisTerms)
  return {{4, 4, 0, 0}, {4 * ones, 2, 4, 16}, {ones * ones, 1, 4 + 4 * ones, 16 + 8 * ones}};
}

std::vector<int64_t> WinogradPlan::product_places() const {
  std::vector<int64_t> places(products());
  for (const WinogradProducts& of : product_kinds()) {
    int64_t place = of.first;
    for (int64_t i = 0; i < rows.products(); ++i) {
      for (int64_t j = 0; j < columns.products(); ++j) {
        if (AxisTerms(rows, i) * AxisTerms(columns, j) == of.terms) places[i * columns.products() + j] = place++;
      }
    }
  }
  return places;
}

std::vector<WinogradPoint> WinogradPlan::point_places() const {
  const std::vector<int64_t> products = product_places();
  const std::vector<WinogradProducts> kinds = product_kinds();
  std::vector<WinogradPoint> result;
  for (int64_t i = 0; i < rows.points(); ++i) {
    for (int64_t j = 0; j < columns.points(); ++j) {
      const AxisTerm row = AxisTermOf(rows, i), column = AxisTermOf(columns, j);
      const int64_t product = products[row.product * columns.products() + column.product];
      const int64_t term = row.term * AxisTerms(columns, column.product) + column.term;
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
  const bool is_dilated = s.dilation != ones, is_flat = s.kernel[0] == 1;
  const int64_t rows = s.kernel[1], columns = s.kernel[2];
  auto has_phases = [&](int axis) {
    return s.pad[axis] >= 0 && s.dilation[axis] <= s.out[axis] &&
           s.in[axis] + s.pad[axis] <= s.out[axis] + (s.kernel[axis] - 1) * s.dilation[axis];
  };
  const bool may_be_dilated = is_flat && s.stride == ones && s.dilation[0] == 1 && has_phases(1) && has_phases(2);
  const bool is_three = rows == 3 && columns == 3 && (s.stride == ones || (s.stride == twos && is_flat));
  const bool is_square = rows == columns && rows >= 2 && rows <= kMaxSquareTaps && s.stride == ones && is_flat;
  const int64_t longest = std::max(rows, columns);
  const bool is_line = std::min(rows, columns) == 1 && longest > 1 && longest <= kMaxLineTaps && s.stride == ones &&
                       is_flat && (longest < kMaxLinePoints || MayBeChunked(s));
  return (is_three || is_square || is_line) && (!is_dilated || may_be_dilated) && s.input_dilation == ones &&
         !s.reversed && (s.groups == 1 || s.c > s.groups);
}

std::optional<WinogradPlan> PlanWinograd(const Core& core, const ConvShape& shape, int64_t only_m) {
  std::optional<WinogradPlan> best;
  if (!IsWinogradShape(shape)) return best;
  for (int64_t m = 2; m <= WinogradChoice::kMost; ++m) {
    if ((only_m != 0 && m != only_m) || !HasTile(shape, m)) continue;
    ForEachBlocking(core, shape, m, [&](WinogradPlan* plan) { ChooseTile(core, {1, 6}, 1, plan, &best); });
  }
  return best;
}

std::optional<FinerWinograd> FinerBlocks(const WinogradPlan& plan) {
  const GemmPlan& g = plan.gemm;
  std::optional<WinogradPlan> best;
  ForEachBlocking(g.core, plan.shape, plan.m(), [&](WinogradPlan* finer) {
    if (finer->row_tiles() != plan.row_tiles()) return;  // else planes would differ
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
  const bool by_rule = choice.m == WinogradChoice::kByRule;
  const int64_t m = by_rule ? 0 : choice.m;
  std::optional<WinogradPlan> plan = PlanWinograd(core, direct.shape, m);
  double cycles = plan ? plan->cycles : 0;
  const std::optional<ConvPhases> phases = direct.is_depthwise() ? std::nullopt : SplitByStride(direct);
  if (phases && phases->shape.taps() * phases->shape.c <= kMostSplitTaps * direct.shape.taps() * direct.shape.c) {
    std::optional<WinogradPlan> split = PlanWinograd(core, phases->shape, m);
    const double copying = PadCycles(core, phases->planes);
    if (split && (!plan || split->cycles + copying < cycles)) {
      split->split_stride = direct.shape.stride;
      split->split_kernel = direct.shape.kernel;
      cycles = split->cycles + copying;
      plan = split;
    }
  }
  if (plan && by_rule && cycles > Clearly(core, *plan) * CyclesBeside(core, direct)) plan.reset();
  return plan;
}

}  // namespace inlay::native
