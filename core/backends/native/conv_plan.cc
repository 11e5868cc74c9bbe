#include "core/backends/native/conv_plan.h"

#include <algorithm>
#include <utility>

#include "core/backends/native/depthwise_plan.h"
#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {

namespace {

// Few output channels leave a tile one vector, which only many rows keep busy: up to what the registers hold.
constexpr int64_t kMinPixelTile = 4;
// Of a tile that crosses image rows, so that each of its pixels has an address of its own. Images of 7 and 14 columns
// have 7x1 and 14x1 else, whose loads or chains take a third longer than their multiply-adds (Zen 3, weights from
// memory, GFLOP/s, before and so: 3x3 of 512 channels of 7x7 92 -> 97, 3x3/2 of 512 of 14x14 80 -> 88; by panels
// before, 3x3 of 256 of 14x14 91 -> 95, of 128 of 28x28 94 -> 97, 5x5/2 of 64 of 28x28 to 128 89 -> 97).
constexpr int64_t kMaxCrossingPixels = 6;
// Of a group: fewer do not pay for a copy whose columns a stride takes apart (groups of 24 of 28x28 by 3x3/2: 89 in
// place, 71).
constexpr int64_t kManyOutputs = 64;
// Read in place, a tile is code for each column of the kernel, and of few image rows.
constexpr int64_t kMaxInPlaceTaps = 16;
constexpr int64_t kMaxInPlaceRows = 4;
constexpr double kNearWeightBytes = 4 << 20, kMemoryBytesPerCycle = 20;
constexpr double kFarBytesPerCycle = 8;  // from Intel's L3 as from memory
constexpr double kFarLineCycles = 3;     // of a line from L3 that comes late
// Where every tile asks for the next one's (Zen 4, GFLOP/s by pixels as P and by kPointwise, which reads them once: 128
// channels of 56x56 to 64 111.4 and 113.3, 256 of 75x75 to 96 110.8 and 113.2; 1536 of 14x14 to 384 111 and 104).
constexpr double kAskedLineCycles = 0.4;
// Of a line from memory, where pixels are more than a core has of an L3 that others share (Zen 3, 2048 channels of
// 33x33 to 256, dilation 18, padded: 330M cycles, of which 240M are counted else).
constexpr int64_t kSharedL3Bytes = 16 << 20;
constexpr double kMemoryLineCycles = 20;

// Of pixels that a task gathers from planes: of fewer, each part of their rows would have to. Of several taps that
// costs too much (Zen 3, 48 channels of 56x56 to 192 by 3x3/2: 2 to 4%).
constexpr int64_t kManyPanels = 16;

// Bytes of x that a step on k brings to L1 for a tile of `mr` pixels. Of a pointwise convolution: all of a small
// image's, which the other tiles read next, else a cache line, and the next where tiles begin anywhere in a line
// (Granite Rapids, weights from memory, per cent of the peak, for one line and for two: 1024 channels of 14x14 to 256
// 86 and 90, 1536 of 10x10 to 2048 81 and 89, 960 of 14x14 to 160 88 and 91, 728 of 19x19 82 and 87).
int64_t PixelStepBytes(const Core& core, const ConvPlan& plan, int64_t mr) {
  const ConvShape& s = plan.shape;
  const int64_t element_bytes = plan.gemm.element_bytes;
  constexpr int64_t kSmallPixels = 64;
  if (s.taps() == 1) {
    // A step takes as many cycles as a tile has accumulators, and the next tile's pixels are asked for.
    if (core.multiply_adds == 1) return 0;
    if (s.pixels() <= kSmallPixels) return s.pixels() * element_bytes;
    return core.far_caches && s.pixels() * element_bytes % kLineBytes != 0 ? 2 * kLineBytes : kLineBytes;
  }
  const bool is_aligned = IsPixelTile(s, mr);
  const int64_t out_rows = is_aligned ? std::max<int64_t>(mr / s.out[2], 1) : (mr - 2) / s.out[2] + 2;
  const int64_t rows = (out_rows - 1) * s.stride[1] + s.kernel[1];
  const int64_t columns = (std::min(mr, s.out[2]) - 1) * s.stride[2] + s.kernel[2];
  const int64_t window = s.kernel[0] * rows * (RoundUp(columns * element_bytes, kLineBytes) + kLineBytes);
  // The columns of a padded copy that a stride takes apart lie in lines of their own.
  if (!is_aligned) return std::min(window * s.stride[2], plan.plane_elements() * element_bytes) / s.taps();
  return std::min(window, s.in_elements() * element_bytes) / s.taps();
}

// What transposing the accumulators costs beside the tiles, and packing pixels: measured on Zen 5. With one
// multiply-add a cycle, most is done beside them (Zen 4, 192 channels of 14x14 to 64: 109.5 -> 113.6 GFLOP/s; for
// nothing, 32 of 28x28 to 192 would lose 13%).
double TransposedCycles(const GemmPlan& plan) {
  const double per_element = plan.core.multiply_adds == 1 ? 0.2 : 0.6;
  int64_t square = plan.lanes * plan.lanes, rest = plan.m % plan.lanes;
  double squares = static_cast<double>(plan.m / plan.lanes + (rest > 1 ? 1 : 0)) * plan.packed_columns() / plan.lanes;
  double scalars = rest == 1 ? static_cast<double>(plan.n) : 0;
  return EstimateCycles(plan) + plan.batch * (squares * square * per_element + scalars * 4);
}

// Of a tile, for each block of k after the first: sums from L1 and back.
constexpr double kBlockCycles = 48;

double BlockCycles(const GemmPlan& g) {
  if (!g.transpose_output) return 0;
  return static_cast<double>(g.batch * g.panels() * CeilDiv(g.m, g.mr) * (g.k_blocks() - 1)) * kBlockCycles;
}

// As TransposedCycles, where steps wait for nothing: squares are turned beside the multiply-adds, and what is left
// shows at every tile (AVX2 on Zen 4, 4x3 and 5x2 of 64, 96 and 128 steps).
double TiledCycles(const GemmPlan& plan) {
  constexpr double kElementCycles = 0.25, kTileCycles = 25;
  const double tiles = static_cast<double>(plan.batch * plan.panels() * CeilDiv(plan.m, plan.mr));
  const double elements = static_cast<double>(plan.batch * RoundUp(plan.m, plan.lanes) * plan.packed_columns());
  return EstimateCycles(plan) + BlockCycles(plan) + tiles * kTileCycles + elements * kElementCycles;
}

// Every panel of weights reads all pixels again, which lie apart (Zen 3, 1024 channels of 14x14 to 256: 82 GFLOP/s, 92
// by kPointwise; 1280 to 640: 57 to 67, and 95). Of a padded copy its own bytes count: a stride leaves few of x's
// (1024 of 14x14 to 2048, 1x1/2: 80 by kPanels, 90 by kPixelRows).
double FarPixelCycles(const GemmPlan& plan, int64_t pixel_bytes) {
  // Where caches are far, L2 should hold a panel of weights beside them (Granite Rapids, 512 channels of 28x28 to 128:
  // 76% of the peak, 95 by kPointwise).
  const int64_t near = plan.core.far_caches ? plan.core.near_bytes() : plan.core.l2_bytes;
  if (pixel_bytes <= near) return 0;
  const bool is_in_memory = plan.core.waits_for_l2() && pixel_bytes > kSharedL3Bytes;
  const double late = is_in_memory ? kMemoryLineCycles : kFarLineCycles;
  const double line = plan.core.waits_for_l3() ? late : plan.prefetch_p() ? kAskedLineCycles : 0;
  return line * plan.batch * plan.panels() * pixel_bytes / kLineBytes;
}

// Every panel of pixels reads all weights again; more than a core has of an L3 that others share come from memory, and
// in blocks of k late (Zen 3, 3x3/2 from 14x14, GFLOP/s: 256 channels to 512 56 to 66, 512 to 1024 32 to 44; by
// kPixelRows 81, and 64 to 77). From end to end 8 MB cost nothing. In blocks of rows weights come once, and pixels once
// for each of them.
double FarWeightCycles(const GemmPlan& g, int64_t pixel_bytes) {
  const double bytes = static_cast<double>(g.m) * g.k * g.element_bytes;
  if (HasFarRows(g)) {
    const double pixels = pixel_bytes > g.core.near_bytes() ? static_cast<double>(g.row_blocks() * pixel_bytes) : 0;
    return g.batch * ((g.row_blocks() > 1 ? bytes / 2 : g.panels() * bytes) + pixels) / kFarBytesPerCycle;
  }
  if (!g.core.waits_for_l3() || bytes <= kNearWeightBytes || g.k_blocks() <= 1) return 0;
  return g.batch * g.panels() * bytes / kMemoryBytesPerCycle;
}

// The taps of an axis [first, last) that any of the output places [begin, end] sees inside of x.
std::pair<int64_t, int64_t> TapsInside(const ConvShape& s, int axis, int64_t begin, int64_t end) {
  auto count = [&](int64_t x) { return std::min(CeilDiv(std::max<int64_t>(x, 0), s.dilation[axis]), s.kernel[axis]); };
  const int64_t first = count(s.pad[axis] - end * s.stride[axis]);
  return {first, std::max(first, count(s.spread_in(axis) + s.pad[axis] - begin * s.stride[axis]))};
}

// Of an axis' taps, those that see no padding.
double PartInside(const ConvShape& s, int axis) {
  int64_t inside = 0;
  for (int64_t tap = 0; tap < s.kernel[axis]; ++tap) {
    const int64_t at = tap * s.dilation[axis] - s.pad[axis];  // of the first result
    const int64_t first = std::max<int64_t>(CeilDiv(-at, s.stride[axis]), 0);
    const int64_t end = std::min(CeilDiv(s.spread_in(axis) - at, s.stride[axis]), s.out[axis]);
    inside += std::max<int64_t>(end - first, 0);
  }
  return static_cast<double>(inside) / static_cast<double>(s.kernel[axis] * s.out[axis]);
}

// More of the kernel's rows are no more than the estimate is off, and tiles of other methods come to them sooner.
constexpr double kMostSeen = 0.89;

// The part of the kernel's rows that runs of `step` output pixels compute where they skip padding; 1 where that is not
// worth it.
double PartSeen(const ConvShape& s, int64_t step) {
  const int64_t height = s.kernel[1];
  int64_t seen = 0;
  for (int64_t pixel = 0; pixel < s.pixels(); pixel += step) {
    const int64_t first = pixel / s.out[2], last = (std::min(pixel + step, s.pixels()) - 1) / s.out[2];
    const int64_t slice = first / s.out[1], last_slice = last / s.out[1];
    const auto [slices, slices_end] = TapsInside(s, 0, slice, last_slice);
    std::pair<int64_t, int64_t> rows(0, height);
    if (slice == last_slice) rows = TapsInside(s, 1, first % s.out[1], last % s.out[1]);
    seen += (slices_end - slices) * (rows.second - rows.first);
  }
  const double part = static_cast<double>(seen) / static_cast<double>(CeilDiv(s.pixels(), step) * s.kernel[0] * height);
  return part > kMostSeen ? 1 : part;
}

double PanelCycles(const ConvPlan& plan, int64_t pixel_bytes) {
  const GemmPlan& g = plan.gemm;
  double cycles = EstimateCycles(g);
  if (g.source != ColumnSource::kOnTheFly) return cycles;
  const bool is_whole = plan.method == ConvMethod::kPointwise || plan.shape.out[2] % g.lanes == 0;
  const double width = static_cast<double>(plan.shape.out[2]), crossing = static_cast<double>(g.nr()) / width;
  double pieces = is_whole ? 1 : plan.has_panels_in_rows() ? 1 + crossing : (g.lanes - 2.0) / width + 2;
  const int64_t copies = HasFarRows(g) ? 1 : g.row_blocks();  // what blocks of rows copy again is counted above
  return cycles + FarWeightCycles(g, pixel_bytes) +
         g.batch * copies * (g.packed_columns() / g.lanes) * g.k * (0.5 + 0.75 * pieces);
}

}  // namespace

static constexpr int64_t kMinBandTasks = 8;
// Of a sequence: how many parts threads want, if each has so many cycles to do.
static constexpr int64_t kMinParts = 16;
static constexpr double kMinPartCycles = 4000;
static constexpr double kBandCycles = 50;  // of a task, beside its tiles

bool IsPixelTile(const ConvShape& s, int64_t mr) {
  if (s.out[2] % mr == 0) return true;
  return s.out[0] == 1 && mr % s.out[2] == 0 && mr / s.out[2] <= s.out[1];
}

ConvShape TransposedConvShape(int64_t n, int64_t c, int64_t m, int64_t groups, const Spatial& in, const Spatial& kernel,
                              const Spatial& stride, const Spatial& dilation, const Spatial& pad, const Spatial& out) {
  ConvShape s;
  s.n = n;
  s.c = c;
  s.m = m;
  s.groups = groups;
  s.in = in;
  s.kernel = kernel;
  s.dilation = dilation;
  s.out = out;
  s.input_dilation = stride;
  s.reversed = true;
  for (int d = 0; d < 3; ++d) s.pad[d] = (kernel[d] - 1) * dilation[d] - pad[d];
  return s;
}

// Cycles of padding what the plan pads: rows, and vectors of each phase. Measured on Zen 5.
double PadCycles(const Core& core, const ConvPlan& plan) {
  double rows = static_cast<double>(plan.phases[0] * plan.padded[0]) * (plan.phases[1] * plan.padded[1]);
  int64_t vectors = plan.phases[2] * CeilDiv(plan.padded[2], plan.lanes);
  double plane = rows * (4 + 3.0 * vectors), planes = static_cast<double>(plan.shape.n) * plan.shape.c;
  if (plan.method == ConvMethod::kBands) return plane * planes * plan.bands();
  double bytes = static_cast<double>(plan.padded_elements()) * plan.gemm.element_bytes;
  // Written to L3, and read from there.
  return plane * planes + (bytes > core.l2_bytes ? bytes / 12 : 0);
}

double CyclesWithPadding(const Core& core, const ConvPlan& plan) {
  return plan.cycles + (plan.padded_input ? PadCycles(core, plan) : 0);
}

// The plan with a band of so many rows, or of a sequence's columns.
static ConvPlan PlanBands(const Core& core, const ConvPlan& plan, int64_t band, int64_t band_width = 0) {
  ConvPlan result = plan;
  const ConvShape& s = plan.shape;
  result.method = ConvMethod::kBands;
  result.padded_input = result.skips_padding = false;
  result.band = band;
  result.band_width = band_width;
  result.SetPadded(band);
  result.gemm = PlanGemm(core, ColumnSource::kDirect, plan.gemm.element_bytes, s.n * s.groups, s.m / s.groups,
                         result.band_columns(), result.group_channels() * s.taps());
  const GemmPlan& g = result.gemm;
  // Of the epilogue: a vector or a scalar of a row, and where in the rows the vectors of a tile lie.
  int64_t pixels = band * s.out[2], tiles = CeilDiv(g.m, g.mr);
  double epilogue = g.m * (pixels / g.lanes * 4.0 + pixels % g.lanes * 5.0) + tiles * (pixels / g.lanes) * 12.0;
  // Results of one row are stored from the registers.
  if (result.cuts_row()) epilogue = kBandCycles;
  result.cycles = (EstimateCycles(g) + g.batch * epilogue) * result.bands();
  return result;
}

static bool IsSequence(const ConvShape& s) {
  return s.in[1] == 1 && s.out[1] == 1 && s.kernel[1] == 1 && s.pad[1] == 0;
}

// Whether a sequence, or its results, lie beyond L2 and few steps use each value: there its parts are faster than the
// estimate says (Zen 3, ms: 16 channels of 500,000 by 7 taps 31 -> 23, one of 160,000 to 512 by 10/5 15.7 -> 8.9), of
// more steps they are not (80 of 8,000 to 128 by 3 taps 6.1 -> 6.7).
static bool IsFarSequence(const Core& core, const ConvPlan& plan) {
  constexpr int64_t kFewSteps = 128;
  const ConvShape& s = plan.shape;
  const int64_t elements = s.n * std::max(s.c * s.in_elements(), s.m * s.pixels());
  return IsSequence(s) && plan.group_channels() * s.taps() <= kFewSteps &&
         elements * plan.gemm.element_bytes > core.l2_bytes;
}

// The cheapest number of bands; none if no band's planes fit a task's scratch.
static void ConsiderBands(const Core& core, ConvPlan* plan) {
  const ConvShape& s = plan->shape;
  const Spatial ones{1, 1, 1};
  if (s.reversed || s.input_dilation != ones || s.in[0] != 1 || s.out[0] != 1 || s.kernel[0] != 1) return;
  const ConvPlan other = *plan;
  // Ties go to the others, but where values that lie beyond L2 are used a few times each.
  double least = (IsFarSequence(core, other) ? 1.03 : 0.97) * CyclesWithPadding(core, other);
  const auto consider = [&](const ConvPlan& candidate) {
    const double cycles = candidate.cycles + PadCycles(core, candidate);
    if (candidate.scratch_bytes() > kMaxScratchBytes || cycles >= least) return;
    least = cycles;
    *plan = candidate;
  };
  // Threads want a few tasks each.
  int64_t last = 0;
  if (IsSequence(s)) {
    const auto fewest = std::clamp<int64_t>(least / kMinPartCycles, 1, kMinParts);
    // From as many as fit a task's scratch on, a sixteenth more each time.
    const int64_t plane_bytes = s.in[2] * plan->group_channels() * plan->gemm.element_bytes;
    int64_t parts = std::max<int64_t>(plane_bytes / kMaxScratchBytes, 1);
    for (; parts <= CeilDiv(s.out[2], plan->lanes); parts += CeilDiv(parts, 16)) {
      const int64_t width = RoundUp(CeilDiv(s.out[2], parts), plan->lanes);
      if (width == last || s.n * s.groups * CeilDiv(s.out[2], width) < fewest) continue;
      last = width;
      consider(PlanBands(core, other, 1, width));
    }
    return;
  }
  for (int64_t bands = 1; bands <= s.out[1]; ++bands) {
    const int64_t band = CeilDiv(s.out[1], bands);
    if (band == last || (s.n * s.groups * bands < kMinBandTasks && band > 1)) continue;
    last = band;
    consider(PlanBands(core, other, band));
  }
}

// From a plane to where tiles read it, of each pixel; and of one whose neighbours the convolution skips.
constexpr double kTiledPixelCycles = 0.45, kTiledStridedPixelCycles = 1.6;

// Pixels copied as tiles read them. Where a step's operands are late from L2, pixels that lie in planes want small
// blocks of k, each of which takes the sums from L1 and back.
static void ConsiderTiledInput(const Core& core, ConvPlan* plan) {
  const ConvShape& s = plan->shape;
  const Spatial ones{1, 1, 1}, zeros{0, 0, 0};
  if (!core.waits_for_l2() || s.taps() > 1 || s.input_dilation != ones || s.pad != zeros) return;
  ConvPlan tiled = *plan;
  tiled.method = ConvMethod::kPixelRows;
  tiled.padded_input = tiled.tiled_input = true;
  tiled.skips_padding = false;
  tiled.gemm = PlanTransposedGemm(core, plan->gemm.element_bytes, s.n * s.groups, s.pixels(), s.m / s.groups,
                                  s.c / s.groups, /*mr=*/0, /*step_bytes=*/0);
  tiled.cycles = TiledCycles(tiled.gemm);
  const double pixels = static_cast<double>(s.n * s.c * s.pixels());
  const double copy = pixels * (s.is_pointwise() ? kTiledPixelCycles : kTiledStridedPixelCycles);
  const double other = CyclesWithPadding(core, *plan) + BlockCycles(plan->gemm);
  if (tiled.cycles + copy < other) *plan = tiled;
}

// Whether tiles of `mr` pixels can be read where they lie.
static bool CanReadInPlace(const ConvShape& s, int64_t mr, int64_t element_bytes) {
  // Channels that share their sets of L1: 384 of 32x32 with stride 2 at 219 GFLOP/s, 245 padded.
  if (s.c / s.groups > kL1Ways && s.in_elements() * element_bytes % kL1WayBytes == 0) return false;
  return s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.input_dilation == Spatial{1, 1, 1} &&
         s.kernel[2] <= kMaxInPlaceTaps && mr / s.out[2] <= kMaxInPlaceRows;
}

// Read in place, the kernel's columns are one loop after the other, each of which reads every third vector of the
// weights, say: from L2 little more than a quarter of a vector a cycle. 384 channels of 32x32, stride 2: 245 GFLOP/s
// padded, 180 in place by 4x3.
static double InPlaceSlowdown(const GemmPlan& g) {
  if (g.k * g.nr() * g.element_bytes <= g.core.l1_panel_bytes()) return 1;
  return std::max(1.0, 7.0 / static_cast<double>(g.mr));
}

// The part of their time that tiles of `mr` pixels take that are read in place: columns of padding are left out, rows
// of it by tiles of one row, and most of what that would be is saved (Zen 3, 256 channels of 33x33, dilation 18, by
// 11x1: 24M cycles of 56M for 41% of the taps), less by small tiles. Of dilated kernels it can be most (the same,
// AVX-512 on Emerald Rapids: 3.2 ms, by Winograd 4.6), and of kernels as large as the image; of others it is no more
// than the estimate is off.
static double PartComputed(const ConvShape& s, int64_t mr) {
  if (s.dilation == Spatial{1, 1, 1} && PartInside(s, 1) > kMostSeen) return 1;
  const double part = PartInside(s, 2) * (mr <= s.out[2] ? PartInside(s, 1) : 1);
  constexpr int64_t kLargeTile = 7;
  const double saved = mr >= kLargeTile ? 0.9 : 0.75;
  return 1 - saved * (1 - part);
}

ConvPlan PlanConv(const Core& core, const ConvShape& shape, int64_t element_bytes, bool widened) {
  ConvPlan plan;
  plan.shape = shape;
  plan.lanes = core.vector_bytes / element_bytes;
  plan.gemm.lanes = plan.lanes;
  plan.gemm.element_bytes = element_bytes;
  plan.gemm.core = core;
  for (int d = 0; d < 3; ++d) {
    plan.phases[d] = shape.kernel[d] == 1 ? 1 : shape.stride[d];
  }
  plan.SetPadded(shape.out[1]);
  if (shape.groups == shape.c && shape.c > 1) {
    if (PlanDepthwise(core, &plan)) return plan;
    // Else a contraction with as many rows as a channel makes: slow, and rare.
    plan.SetPadded(shape.out[1]);
  }
  const bool pointwise = shape.is_pointwise();
  plan.method = pointwise ? ConvMethod::kPointwise : ConvMethod::kPanels;
  plan.padded_input = !pointwise;
  const int64_t channels = shape.c / shape.groups;
  const bool copies = !pointwise || CopiesRows(core, shape.m / shape.groups, channels, shape.pixels() * element_bytes);
  const ColumnSource source = copies ? ColumnSource::kOnTheFly : ColumnSource::kDirect;
  plan.gemm = PlanGemm(core, source, element_bytes, shape.n * shape.groups, shape.m / shape.groups, shape.pixels(),
                       channels * shape.taps(), TailRows::kShared);
  // A block of k is whole channels, so that the packer's loops are over channels and taps.
  auto whole_channels = [&](int64_t kc) { return std::min(CeilDiv(kc, shape.taps()), channels) * shape.taps(); };
  if (pointwise && copies) BlockFarRows(&plan.gemm);
  plan.gemm.kc = whole_channels(plan.gemm.kc);
  const int64_t pixel_bytes = channels * shape.in_elements() * element_bytes;
  const int64_t plane_bytes = channels * plan.plane_elements() * element_bytes;
  plan.gemm.prefetch = pointwise && RowsComeLate(core, pixel_bytes);
  plan.cycles = PanelCycles(plan, pixel_bytes);
  // What is not a zero must be multiplied; and no run of pixels sees less than they do one by one.
  const bool may_skip = !pointwise && !widened && PartInside(shape, 0) * PartInside(shape, 1) <= kMostSeen;
  auto part_seen = [&](int64_t pixels) { return may_skip ? PartSeen(shape, pixels) : 1; };
  if (const double part = part_seen(plan.gemm.nr()); part < 1) {
    plan.skips_padding = true;
    plan.gemm.k_unit = plan.row_steps();
    // Whole rows of a channel, in unrolled steps, of one slice of the kernel.
    plan.gemm.kc = std::min(RoundUp(plan.gemm.kc, 4 * shape.kernel[2]), shape.kernel[1] * plan.row_steps());
    plan.cycles *= part;
  }
  if (shape.reversed) return plan;
  auto consider = [&](int64_t mr) {
    GemmPlan rows =
        PlanTransposedGemm(core, element_bytes, shape.n * shape.groups, shape.pixels(), shape.m / shape.groups,
                           channels * shape.taps(), mr, PixelStepBytes(core, plan, mr));
    rows.kc = whole_channels(rows.kc);
    const double tiles = TransposedCycles(rows), part = mr > 0 ? part_seen(mr) : 1;
    double cycles = part * tiles + FarPixelCycles(rows, pointwise ? pixel_bytes : plane_bytes);
    const double padding = plan.padded_input || plan.pixels_in_place() ? PadCycles(core, plan) : 0;
    // Tiles of no more than an image row ask for the pixels of the next (prefetches_pixels): one panel waits for none.
    const double again = mr <= shape.out[2] ? 1 - 1.0 / static_cast<double>(rows.panels()) : 1;
    // Widening each scalar as it is read would take as long as its multiplications.
    const double strided =
        PartComputed(shape, mr) * InPlaceSlowdown(rows) * (tiles + again * FarPixelCycles(rows, pixel_bytes));
    const bool in_place = mr > 0 && IsPixelTile(shape, mr) && !widened && CanReadInPlace(shape, mr, element_bytes) &&
                          strided < cycles + padding;
    if (in_place) cycles = strided;
    // Ties go to the smaller tile: less code, and no slower.
    const double least = plan.cycles + (plan.padded_input ? padding : 0);
    if (cycles + (in_place ? 0 : padding) >= (plan.method == ConvMethod::kPixelRows ? 0.99 : 1.0) * least) return;
    plan.method = ConvMethod::kPixelRows;
    plan.gemm = rows;
    plan.cycles = cycles;
    plan.padded_input = !pointwise && !in_place;
    plan.skips_padding = plan.padded_input && part < 1;
  };
  if (shape.taps() == 1) {
    consider(0);
  } else {
    for (int64_t mr = kMinPixelTile; mr + 2 <= core.registers; ++mr) {
      // Where L1 holds a group's pixels, 14x1 has its loads in time, and needs no copy (groups of 16 channels of 7x7:
      // 93 GFLOP/s in place, 87 by tiles that cross).
      const bool pays = pixel_bytes > core.l1_bytes && (shape.stride[2] == 1 || shape.m / shape.groups >= kManyOutputs);
      const bool crosses = core.waits_for_l2() && shape.out[0] == 1 && mr <= kMaxCrossingPixels && pays;
      if (IsPixelTile(shape, mr) || crosses) consider(mr);
    }
  }
  if (!pointwise) ConsiderBands(core, &plan);
  ConsiderTiledInput(core, &plan);
  return plan;
}

void CutForThreads(ConvPlan* plan) {
  const bool strided =
      plan->method == ConvMethod::kPanels && plan->shape.taps() == 1 && plan->gemm.panels() >= kManyPanels;
  if (strided || plan->method == ConvMethod::kPointwise || plan->method == ConvMethod::kPixelRows) {
    CutForThreads(&plan->gemm);
  }
}

void ConvPlan::SetPadded(int64_t out_rows) {
  for (int d = 0; d < 3; ++d) {
    const int64_t columns = cuts_row() ? band_width : shape.out[2];
    const int64_t out = d == 0 ? shape.out[0] : d == 1 ? out_rows : columns;
    padded[d] = out + (shape.kernel[d] - 1) * shape.dilation[d] / shape.stride[d];
  }
}

int64_t ConvPlan::slack_elements() const {
  // A vector of the last panel may start at the last row and end lanes rows further down.
  return (lanes / shape.out[2] + 2 + gemm.nv * lanes / shape.out[2]) * padded[2] + padded[1] * padded[2] + lanes;
}

int64_t ConvPlan::padded_elements() const {
  if (method != ConvMethod::kDepthwise && !padded_input) return 0;
  if (tiled_input) return gemm.batch * gemm.packed_row_elements();
  return (method == ConvMethod::kDepthwise ? 1 : shape.n * shape.c) * plane_elements() + slack_elements();
}

bool ConvPlan::prefetches_pixels() const {
  return pixels_in_place() && gemm.core.waits_for_l3() && gemm.mr <= shape.out[2] &&
         shape.n * shape.c * shape.in_elements() * gemm.element_bytes > gemm.core.l2_bytes;
}

int64_t ConvPlan::band_plane_elements() const {
  // The last panel's vectors may run on beyond the last plane.
  int64_t elements = group_channels() * plane_elements() + gemm.packed_columns();
  return RoundUp(elements, lanes);
}

int64_t ConvPlan::tasks() const {
  if (method == ConvMethod::kBands) return gemm.batch * bands();
  if (method == ConvMethod::kDepthwise) return shape.n * shape.c;
  if (has_channel_lanes()) return shape.n * channel_blocks();
  return gemm.tasks();
}

int64_t ConvPlan::packed_weight_elements() const {
  if (method == ConvMethod::kDepthwise) return 0;
  if (has_channel_lanes()) return channel_blocks() * shape.taps() * lanes;
  if (method == ConvMethod::kPixelRows) return shape.groups * gemm.k * gemm.packed_columns();
  return shape.groups * gemm.packed_row_elements();
}

int64_t ConvPlan::scratch_bytes() const {
  if (method == ConvMethod::kBands) {
    return (band_plane_elements() + gemm.mr * gemm.packed_columns()) * gemm.element_bytes;
  }
  if (pixels_in_place()) return gemm.scratch_bytes() + zero_row_elements() * gemm.element_bytes;
  return is_depthwise() ? DepthwiseScratchElements(*this) * gemm.element_bytes : gemm.scratch_bytes();
}

}  // namespace inlay::native
