#include "core/backends/native/gemm_cost.h"

#include <algorithm>

#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

// Accumulators in and out, loop set-up.
constexpr int64_t kTileOverheadCycles = 24;
// Less of a tile of 5x2 whose steps are unrolled, and its chains are shorter than ChainCycles says (Zen 3, per cent of
// the peak by 6x2 and by 5x2, k of 32, 64, 96, 128: 88, 93, 95, 97 and 93, 96, 97, 97; 384 and 768 level; AVX2 on Zen
// 4, k of 64: 99 and 95).
constexpr int64_t kShortTileOverheadCycles = 12;
constexpr double kShortTileChainCycles = 5.05;
// Of a tile whose results go far: each of its rows is a stream of its own, so that wide tiles have fewer of them
// (Emerald Rapids, per cent of the peak, rows a plane apart: pointwise, 64 channels of 56x56 to 256 84 by 13x2, 88 by
// 6x4, 83 by 8x2; 16 of 112x112 to 96 58 and 65. Granite Rapids, a product's, asked for, GFLOP/s by 8x2, 13x2, 6x4:
// 12544x64x64 176, 186, 207, 3136x256x64 173, 178, 180; in quieter minutes 182 and 201).
constexpr double kFarRowCycles = 4;
// With one multiply-add a cycle a row's end shows wherever it goes, less of one that goes to scratch (Zen 4, per cent
// of the peak, by 13x2 or 12x2 and by 6x4: pointwise, 64 channels of 56x56 to 64 96 and 98, to 256 96 and 98, 24 to 144
// 93 and 95; of products, before and by these rules, 784x512x128 98 and 99, 64x50257x96 92 and 95, 1024x1024x32 91 and
// 93; of 256 steps and more level).
constexpr double kRowCycles = 2.5, kScratchRowCycles = 1.5;
// A tail is code to compile and to fetch: worth it from this gain; tiles that share it, which are as many as the rows
// that it lacks, from a larger one (Zen 3, GFLOP/s, where the model has 6x2 with some of 5x2 1% ahead: 128x2048x512 by
// 4x3 99 -> 97, 128x128x128 by 5x2 99 -> 96.5; where 2%: see gemm_plan.h).
constexpr double kTailPenalty = 1.01, kSharedTailPenalty = 1.025;

// Vectors and broadcast elements: two, of which such a core sustains fewer (Zen 3: 12x1 at 63 to 76% of the peak, 14x1
// at 72 to 78% where pixels lie apart).
double LoadsPerCycle(const Core& core) { return core.waits_for_l2() ? 1.6 : 2; }

// Of a step that waits for the one before. Four in theory, but exactly eight accumulators never keep both units busy:
// 4x16 on AVX2 was seen at 85-93% of 6x16 on Zen 5; ten (5x2) are 10% behind twelve on Zen 3.
double ChainCycles(const Core& core) { return core.waits_for_l2() ? 5.2 : 5; }

// Cycles that a step takes beyond its multiply-adds for each accumulator that a tile has less than so many, where L2 is
// late: few are under way (Granite Rapids, 500x768x768, per cent of the peak: 5x2 83 to 87, 4x3 87, 6x2 89, 7x2 91, 8x2
// 92 to 96, 10x2 95 to 98, 12x2 97, 13x2 98; with a tail wider tiles than 8x2 gain nothing: 128x3072x768 97 by it, 93
// by 13x2; pixels as P, 3x3 of 128 channels of 28x28, of 256 of 14x14, 3x3/2 of 256 of 28x28, by 7x2 and 14x2: 94, 97,
// 89 and 100, 104, 97).
constexpr double kMissingAccumulatorCycles = 0.16;
constexpr int64_t kEnoughAccumulators = 16, kVeryFewRows = 8;  // of P: below, weights come late whatever the tile
// And where it reads more than two vectors of a panel that L1 does not hold (9x3 89 to 93, 8x3 87 to 100 from one shape
// to the next; 35x512x512 92 by 5x4, 98 by 12x2).
constexpr double kWidePanelCycles = 0.5;
// Of a product's tile, for each vector and broadcast element of a step. It has time for them, but the core is as fast
// as its power allows, and loads take of that (Granite Rapids, GFLOP/s, medians of seven runs in turns: 128x768x768 by
// 8x2 185, 9x3 197, 8x3 198, 6x4 205; 128x768x3072 183, 188, 184, 203; 197x384x384 by 11x2 200, 211, 209, 210;
// 256x128x128 by 8x2 194, 6x4 206. The loop of multiply-adds behind them is faster, too, so that per cents of it do not
// show it. Whole models, pairs: GPT-2 1.04 to 1.08, of which most is its blocks of k, ViT-small 1.015 to 1.06,
// BERT-base 1.00 to 1.04, least when there is power to spare, MiniLM level). Wide panels want more accumulators, or
// more of Q comes at a time than L2 gives (20x768x768 by 10x2 179, 5x4 166; 100x256x256 194 and 186; 35x512x512 by 12x2
// 184, 5x4 177).
constexpr double kLoadCycles = 0.16;
constexpr int64_t kEnoughOfWidePanels = 24, kManySteps = 256;
constexpr int64_t kRowsOfManyLoads = 16;  // 12x768x768 by 12x2 182, by 6x4 167

// Of a product's tile where steps wait for L2, for each of its rows: they come from there for every panel, or share
// their sets of L1, being a multiple of its ways apart (Zen 3, weights from memory, GFLOP/s by 6x2 and by 4x3: 192 rows
// by 768x2048 94 and 99, by 768x1792 96 and 99, by 768x3072 96 and 99, by 768x1024 96.5 and 98; by 768x768 and 768x512
// level).
constexpr double kLateRowCycles = 0.1;

// Bytes of a panel that a step brings to L1. Where Q lies in rows of its own, those are whole cache lines: panels of 24
// columns of f32 touch two lines for one and a half (64x3136x256 with AVX2: 84 GFLOP/s by 4x3, 93 by 6x2).
int64_t StepBytes(const GemmPlan& plan, int64_t vectors) {
  const int64_t bytes = vectors * plan.lanes * plan.element_bytes;
  if (plan.source != ColumnSource::kDirect) return bytes;
  const bool is_aligned = bytes % kLineBytes == 0 && plan.n * plan.element_bytes % kLineBytes == 0;
  return (bytes / kLineBytes + (is_aligned ? 0 : 1)) * kLineBytes;
}

bool HasLateRows(const GemmPlan& plan) {
  if (!plan.core.waits_for_l2() || plan.source != ColumnSource::kPacked || plan.transpose_output) return false;
  return BlockComesLate(plan) || plan.k * plan.element_bytes % kL1WayBytes == 0;
}

// Of a tile beside its multiply-adds, for each of its rows.
double RowCycles(const GemmPlan& plan) {
  if (ResultsGoFar(plan)) return kFarRowCycles;
  if (plan.core.multiply_adds != 1) return 0;
  return plan.transpose_output ? kScratchRowCycles : kRowCycles;
}

// Weights of many MB, of which few pixels make use, come late whatever the tile (3x3 of 512 channels of 7x7, weights
// from memory: 93% of the peak by 7x2, 81 by 14x2).
bool WaitsForFewAccumulators(const GemmPlan& plan) {
  const bool is_far = plan.transpose_output && plan.k * plan.n * plan.element_bytes > 2 * plan.core.l2_bytes;
  return plan.core.far_caches && plan.core.vector_bytes == 64 && plan.source == ColumnSource::kPacked &&
         plan.m >= kVeryFewRows && !is_far;
}

// Whether the tile is chosen by what its loads take of the power, too: of products, and of pixels that tasks copy, of
// many channels (us inside ResNet-50: 512 channels of 28x28 to 128 591 -> 551, to 256 1208 -> 1120, 3x3/2 of 128 of
// 56x56 1250 -> 1205; of few, or with far results, tiles of 6x4 lose as much: 128 of 28x28 to 512 568 -> 697, 7x7/2
// 1389 -> 1612).
bool CountsLoads(const GemmPlan& plan) {
  if (!plan.core.far_caches || plan.core.vector_bytes != 64 || plan.transpose_output) return false;
  if (plan.source == ColumnSource::kOnTheFly) return plan.k >= kManySteps && !ResultsGoFar(plan);
  return plan.source == ColumnSource::kPacked && plan.m >= kRowsOfManyLoads;
}

// Two fused multiply-adds and up to two loads a cycle, a chain's next only after its last, and half a vector a cycle
// from L2, where a panel that L1 does not hold comes from at every tile. `counts_loads`: what power they take, too.
double TileCycles(const GemmPlan& plan, int64_t rows, int64_t vectors, bool counts_loads) {
  if (rows == 0) return 0;
  const bool is_short =
      plan.core.slow_starts && plan.core.vector_bytes == 32 && rows == 5 && vectors == 2 && plan.unrolled_steps() > 1;
  const double chain = is_short ? kShortTileChainCycles : ChainCycles(plan.core);
  const int64_t step_bytes = StepBytes(plan, vectors);
  const bool in_l1 = plan.k * step_bytes <= plan.core.l1_panel_bytes();
  const double loading = in_l1 ? 0 : 2.0 * step_bytes / (plan.lanes * plan.element_bytes);
  double per_step = std::max({rows * vectors / 2.0, (rows + vectors) / LoadsPerCycle(plan.core), chain, loading});
  if (WaitsForFewAccumulators(plan)) {
    const bool is_wide = vectors > 2;
    const int64_t enough = is_wide && counts_loads ? kEnoughOfWidePanels : kEnoughAccumulators;
    per_step += kMissingAccumulatorCycles * static_cast<double>(std::max(enough - rows * vectors, int64_t{0}));
    if (is_wide && !in_l1 && !counts_loads) per_step += kWidePanelCycles;
  }
  if (HasLateRows(plan)) per_step += kLateRowCycles * static_cast<double>(rows);
  if (counts_loads) per_step += kLoadCycles * static_cast<double>(rows + vectors);
  return per_step * plan.k + (is_short ? kShortTileOverheadCycles : kTileOverheadCycles) +
         RowCycles(plan) * static_cast<double>(rows);
}

double Cycles(const GemmPlan& plan, bool counts_loads) {
  auto panel = [&](int64_t vectors) {
    return plan.whole_tiles() * TileCycles(plan, plan.mr, vectors, counts_loads) +
           plan.lower_tiles() * TileCycles(plan, plan.mr - 1, vectors, counts_loads) +
           TileCycles(plan, plan.m_tail(), vectors, counts_loads);
  };
  double cycles = plan.batch * ((plan.panels() - 1) * panel(plan.nv) + panel(plan.nv_last));
  if (plan.m_tail() > 0) cycles *= kTailPenalty;
  if (plan.lower_tiles() > 0) cycles *= kSharedTailPenalty;
  if (plan.nv_last != plan.nv) cycles *= kTailPenalty;
  // Else the narrower panel: 8x32 was seen 1-3% ahead of 8x48 wherever the two tie.
  return cycles * (1 + 0.004 * plan.nv);
}

}  // namespace

double EstimateCycles(const GemmPlan& plan) { return Cycles(plan, false); }

double TileCost(const GemmPlan& plan) { return Cycles(plan, CountsLoads(plan)); }

bool BlockComesLate(const GemmPlan& plan) {
  if (!plan.core.waits_for_l2() || plan.source != ColumnSource::kPacked || plan.m < kVeryFewRows) return false;
  const int64_t rows =
      std::min(plan.m, plan.core.row_block_bytes() / std::max<int64_t>(plan.k * plan.element_bytes, 1));
  // It holds other things, too (Zen 3: 49x1536x1536, by 30 rows of all k and by 49 of 256, 91 and 97 GFLOP/s;
  // 128x768x1536 97 and 99.5; of 1280 steps, which are fewer, level). Fewer rows have less time for what comes from
  // there (by all k and by 512: 16x768x3072 76 and 89, 12x1024x4096 67 and 85, 8x768x3072 56 and 66, 30x1024x1792 90
  // and 96, 16x1024x1536 85 and 88; 16x1024x1280 level or worse).
  const int64_t sixteenths = plan.m < kFewRows ? 10 : 13;
  return plan.k * (rows + 2 * plan.nr()) * plan.element_bytes > plan.core.l2_bytes * sixteenths / 16;
}

bool ResultsGoFar(const GemmPlan& plan) {
  return plan.core.far_caches && !plan.transpose_output &&
         plan.m * plan.n * plan.element_bytes > plan.core.l2_bytes / 2;
}

}  // namespace inlay::native
