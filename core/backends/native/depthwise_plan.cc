#include "core/backends/native/depthwise_plan.h"

#include <algorithm>

#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

// What a task writes and reads again at once should leave room in L1 for x and the result.
int64_t BandBytes(const Core& core) { return core.l1_bytes / 2; }
// The planes of a block of channels should stay in L2.
int64_t ChannelsBytes(const Core& core) { return core.l2_bytes * 5 / 32; }
// Tiles where rows are missing are code of their own: few of them, and not long.
constexpr int64_t kMaxDirectKernelRows = 44;
constexpr int64_t kMaxTileCode = 1024;   // multiply-adds of a tile and a kernel column
constexpr double kEpilogueCycles = 2.5;  // of a vector
constexpr double kLineTapCycles = 0.55;  // of kDepthwiseLines, a tap and a vector
// Of kDepthwiseLines: of a square, for each of its vectors, of 8 and of 16 lanes.
constexpr double kLineSquareCycles = 1.4, kWideSquareCycles = 4;
constexpr double kMaskCycles = 2.5;  // of a vector that is loaded

const Spatial kOnes{1, 1, 1};

bool IsPlane(const ConvShape& s) { return s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1; }

// Taps that fall into the input, summed over the outputs of an axis.
int64_t ValidTaps(const ConvShape& s, int axis) {
  int64_t taps = 0;
  for (int64_t o = 0; o < s.out[axis]; ++o) {
    int64_t first = o * s.stride[axis] - s.pad[axis];
    taps += std::max<int64_t>(std::min(s.kernel[axis], s.in[axis] - first) - std::max<int64_t>(-first, 0), 0);
  }
  return taps;
}

// Whether taps can read x where it lies. Masked loads make the padding (slow on processors without masks), two vectors
// and two shuffles a stride of two, for which two columns of weights must be in registers.
bool IsDirect(const Core& core, const ConvShape& s) {
  const int64_t pad_end = (s.out[1] - 1) * s.stride[1] + s.kernel[1] - s.pad[1] - s.in[1];
  const bool rows = s.kernel[1] <= kMaxDirectKernelRows && s.pad[1] < s.kernel[1] && pad_end < s.kernel[1];
  // Several filters a channel share a copy.
  const bool stride =
      s.stride == kOnes || (s.stride == Spatial{1, 2, 2} && s.m == s.c && 2 * s.kernel[1] + 4 <= core.registers);
  return core.vector_bytes >= 32 && IsPlane(s) && stride && rows && s.dilation == kOnes && s.input_dilation == kOnes;
}

// The most accumulators beside a column of weights, an input vector and a mask, cut evenly. Where memory is what
// limits, a tile of fewer rows is fewer streams to be prefetched (3x3 with stride 2 at 56x56: 40 us with 14 rows, 33
// with 7).
void ChooseRowTile(const Core& core, ConvPlan* plan) {
  const ConvShape& s = plan->shape;
  DepthwiseTile& tile = plan->depthwise;
  const int64_t weights = std::min(s.kernel[1], kMaxUnrolledKernelRows);
  int64_t most = std::min(core.registers - weights - 2, core.registers / 2);
  most = std::clamp<int64_t>(kMaxTileCode / s.kernel[1], 1, most);
  if (tile.direct && s.kernel[1] <= 3) most = std::min<int64_t>(most, 8);
  if (tile.direct && s.stride[1] == 2) most = std::min(most, core.registers / 4);
  tile.rows = CeilDiv(s.out[1], CeilDiv(s.out[1], most));
  const int64_t chunks = CeilDiv(s.out[2], plan->lanes);
  tile.vectors = std::clamp<int64_t>(core.registers * 3 / 8 / tile.rows, 1, chunks);
  // All of a small kernel's weights, so that an input row is met once (3x3 with stride 2 at 112x112: 96 us else, 86).
  const bool all = s.taps() + tile.rows * tile.vectors + 4 <= core.registers;
  tile.kernel_columns = all ? s.kernel[2] : s.stride[2];
}

bool PlanRows(const Core& core, ConvPlan* plan) {
  const ConvShape& s = plan->shape;
  plan->method = ConvMethod::kDepthwise;
  DepthwiseTile& tile = plan->depthwise;
  tile.direct = IsDirect(core, s);
  ChooseRowTile(core, plan);
  auto fits = [&](int64_t band, int64_t bytes) {
    plan->band = band;
    plan->SetPadded(band);
    return plan->scratch_bytes() <= bytes;
  };
  if (!IsPlane(s) || s.input_dilation != kOnes) return fits(s.out[1], kMaxScratchBytes);
  if (fits(s.out[1], BandBytes(core))) return true;
  while (!fits(tile.rows, kMaxScratchBytes)) {
    if (tile.rows == 1) return false;
    tile.rows = (tile.rows + 1) / 2;
  }
  return true;
}

// Vectors of a row whose columns not all taps have (depthwise.cc masks those of a whole group).
int64_t EdgeVectors(const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  const int64_t width = plan.depthwise.vectors * plan.lanes, groups = CeilDiv(s.out[2], width);
  int64_t inside = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * width * s.stride[2] - s.pad[2];
    if (begin >= 0 && begin + width * s.stride[2] + s.kernel[2] - 1 <= s.in[2]) ++inside;
  }
  return CeilDiv(s.out[2], plan.lanes) - inside * plan.depthwise.vectors;
}

// Cycles of a channel: two multiply-adds a cycle, one load of a vector that crosses a line.
double RowCycles(const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  const DepthwiseTile& tile = plan.depthwise;
  const double chunks = CeilDiv(s.out[2], plan.lanes);
  const int64_t rows_seen = tile.direct ? ValidTaps(s, 1) : s.out[1] * s.kernel[1];
  const double taps = static_cast<double>(rows_seen) * s.kernel[0] * s.kernel[2] * chunks;
  const double loads = CeilDiv(s.out[1], tile.rows) * ((tile.rows - 1) * s.stride[1] + s.kernel[1]) *
                       static_cast<double>(s.kernel[0] * s.kernel[2]) * chunks;
  // A tile of a kernel of one row makes masks for each of its taps and vectors, unless they are constants.
  const bool masks = tile.direct && s.kernel[1] == 1 && s.kernel[2] > kMaxUnrolledTaps;
  const double masking = masks ? kMaskCycles * CeilDiv(s.out[1], tile.rows) * s.kernel[2] * EdgeVectors(plan) : 0;
  const double copied = static_cast<double>(plan.phases[1] * plan.phases[2] * plan.padded[1]) *
                        CeilDiv(s.out[1], plan.band) * CeilDiv(plan.padded[2], plan.lanes);
  const double copy = tile.direct ? 0 : 2.5 * copied * s.c / s.m;
  return s.out[0] * std::max(taps / 2, loads) + masking + copy + kEpilogueCycles * CeilDiv(s.pixels(), plan.lanes) + 15;
}

// Cycles of a block of channels.
double ChannelCycles(const Core& core, const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  const double taps = static_cast<double>(ValidTaps(s, 1)) * ValidTaps(s, 2);
  const int64_t vectors = CeilDiv(s.pixels(), plan.lanes), squares = CeilDiv(s.in_elements(), plan.lanes) + vectors;
  const double square = plan.lanes * (plan.scratch_bytes() <= core.l1_bytes * 5 / 6 ? 2 : 3.5);
  return taps / 2 + squares * square + kEpilogueCycles * vectors * plan.lanes;
}

bool CanBeChannels(const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  return IsPlane(s) && s.dilation == kOnes && s.input_dilation == kOnes && s.kernel[2] <= kMaxUnrolledKernelRows &&
         plan.lanes > 1 && s.m >= plan.lanes && s.out[2] <= 4 * plan.lanes;
}

bool CanBeLines(const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  return IsPlane(s) && s.kernel[1] == 1 && s.pad[1] == 0 && (s.out[1] - 1) * s.stride[1] < s.in[1] &&
         s.dilation == kOnes && s.input_dilation == kOnes && plan.lanes > 1 &&
         std::min({s.m, s.out[2], s.in[2]}) >= plan.lanes;
}

// A kernel's columns, where those of a band are many times as many.
constexpr int64_t kBandColumns = 256;

// Cycles of a block of channels.
double LineCycles(const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  const int64_t bands = CeilDiv(s.out[2], plan.band), vectors = bands * CeilDiv(plan.band, plan.lanes);
  const int64_t squares = vectors + bands * CeilDiv(DepthwiseLineColumns(plan), plan.lanes);
  const double lanes = static_cast<double>(plan.lanes), square = plan.lanes > 8 ? kWideSquareCycles : kLineSquareCycles;
  return s.out[1] * lanes *
         (static_cast<double>(vectors * s.kernel[2]) * kLineTapCycles + square * squares + kEpilogueCycles * vectors);
}

}  // namespace

bool PlanDepthwise(const Core& core, ConvPlan* plan) {
  const ConvShape& s = plan->shape;
  bool fits = PlanRows(core, plan);
  plan->cycles = fits ? RowCycles(*plan) * s.n * s.m : 0;
  const ConvPlan rows = *plan;
  auto consider = [&](const ConvPlan& other, int64_t most_bytes) {
    if (other.scratch_bytes() > most_bytes || (fits && other.cycles >= plan->cycles)) return;
    *plan = other;
    fits = true;
  };
  if (CanBeLines(rows)) {
    ConvPlan lines = rows;
    lines.method = ConvMethod::kDepthwiseLines;
    lines.band = CeilDiv(s.out[2], CeilDiv(s.out[2], std::max(kBandColumns, 4 * s.kernel[2])));
    lines.cycles = LineCycles(lines) * s.n * lines.channel_blocks();
    consider(lines, kMaxScratchBytes);
  }
  if (CanBeChannels(rows)) {
    ConvPlan channels = rows;
    channels.method = ConvMethod::kDepthwiseChannels;
    const int64_t most = std::min(core.registers - s.kernel[2] - 3, core.registers / 2);
    channels.depthwise.columns = CeilDiv(s.out[2], CeilDiv(s.out[2], most));
    channels.cycles = ChannelCycles(core, channels) * s.n * channels.channel_blocks();
    consider(channels, ChannelsBytes(core));
  }
  return fits;
}

int64_t DepthwiseChannelPitch(const ConvPlan& plan) { return RoundUp(plan.shape.pixels(), plan.lanes); }

int64_t DepthwiseLineColumns(const ConvPlan& plan) {
  return (plan.band - 1) * plan.shape.stride[2] + plan.shape.kernel[2];
}

int64_t DepthwisePaddedElements(const ConvPlan& plan) { return RoundUp(plan.padded_elements(), plan.lanes); }

int64_t DepthwiseScratchElements(const ConvPlan& plan) {
  const ConvShape& s = plan.shape;
  if (plan.method == ConvMethod::kDepthwiseChannels) {
    return (RoundUp(s.in_elements(), plan.lanes) + 2 * DepthwiseChannelPitch(plan)) * plan.lanes;
  }
  if (plan.method == ConvMethod::kDepthwiseLines) {
    return (DepthwiseLineColumns(plan) + 2 * plan.lanes) * plan.lanes;
  }
  return DepthwisePaddedElements(plan) + s.out[0] * plan.band * s.out[2] + plan.lanes;
}

}  // namespace inlay::native
