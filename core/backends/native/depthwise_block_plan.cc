#include "core/backends/native/depthwise_block_plan.h"

#include <algorithm>

#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

constexpr int64_t kBytes = 4;  // f32 alone
// The planes of a task, which are written and read while the pixels that they come from stay in L2 as well.
int64_t ExpandedBytes(const Core& core) { return core.l2_bytes * 7 / 32; }
constexpr int64_t kPageBytes = 4096;  // planes as far apart share their sets of L1
constexpr int64_t kMostChannels = 32;
constexpr int64_t kMinTasks = 16, kFewChannels = 8;  // threads want a few each, tiles some rows
// Bytes a cycle, written and read again. Between two kernels, images of up to 2.4 MB cost nothing to speak of, for L3
// is read ahead of its use; those of 4.8 and 7.2 MB cost this (MobileNetV2's, batch 1 and 4). Where L3 is far, images
// of 1.8 MB gain as well (Emerald Rapids, MobileNetV2's of 56x56: the model 1.3%).
int64_t ReadAheadBytes(const Core& core) { return core.far_caches ? core.l2_bytes / 2 : 3 << 20; }
constexpr double kNear = 48;
double FarBytes(const Core& core) { return core.far_caches ? 6 : 12; }
// Pixels are read where they lie, each channel a stream. More of them than a prefetcher follows come late from behind
// L2, each line alone (Granite Rapids, us as one and apart: 64 channels of 147x147 to 128 4888 and 3066, 128 of 74x74
// to 256 3251 and 2417, 256 of 37x37 to 728 3855 and 3180; 32 of 112x112 to 128 1129 and 1227, 16 of 112x112 to 96,
// 3x3/2 389 and 617, 96 of 56x56 to 192, whose pixels L2 holds, 906 and 879).
constexpr int64_t kFollowedStreams = 32;
constexpr double kLateLineCycles = 64;
// Of one image, two bands at least where that computes no more than this part of the rows twice: then two threads each
// have their half of it.
constexpr int64_t kRowsOfOneAgain = 12;

const Spatial kOnes{1, 1, 1}, kZeros{0, 0, 0};

bool IsImage(const ConvShape& s) { return s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1; }

bool ArePair(const ConvShape& e, const ConvShape& d) {
  return IsImage(e) && IsImage(d) && e.taps() == 1 && e.groups == 1 && e.stride == kOnes && e.pad == kZeros &&
         e.in == e.out && !e.reversed && !d.reversed && d.input_dilation == kOnes && d.groups == d.c && d.m == d.c &&
         d.c > 1 && e.m == d.c && e.out == d.in && e.n == d.n && d.taps() > 1 && d.pad[1] >= 0 && d.pad[2] >= 0;
}

// Rows (or columns) that an output sees.
int64_t Reach(const ConvShape& s, int axis) { return (s.kernel[axis] - 1) * s.dilation[axis] + 1; }

// Cycles of `bytes` that are written and read again, of which up to `near` are so in passing.
double Traffic(const Core& core, int64_t bytes, int64_t near) {
  return static_cast<double>(bytes) / (bytes <= near ? kNear : FarBytes(core));
}

// The plan of tasks of so many channels and rows; none where it does not fit.
std::optional<DepthwiseBlockPlan> PlanTasks(const Core& core, const ConvShape& expand, const ConvShape& depthwise,
                                            int64_t channels, int64_t rows) {
  DepthwiseBlockPlan plan;
  plan.expand = expand;
  plan.depthwise = depthwise;
  plan.channels = channels;
  plan.rows = rows;
  const int64_t height = depthwise.in[1], width = depthwise.in[2];
  const int64_t reach = Reach(depthwise, 1);
  ConvShape shape = depthwise;
  shape.n = 1;
  shape.c = shape.m = shape.groups = channels;
  if (plan.is_whole()) {
    plan.in_rows = plan.plane_rows = height;
  } else {
    plan.in_rows = (rows - 1) * shape.stride[1] + reach;
    if (plan.in_rows > height) return std::nullopt;
    const int64_t below = (depthwise.out[1] - 1) * shape.stride[1] + reach - shape.pad[1] - height;
    plan.edge_rows = std::max({shape.pad[1], below, int64_t{0}});
    plan.plane_rows = plan.in_rows + plan.edge_rows;
    if (plan.plane_rows * width * kBytes % kPageBytes == 0) ++plan.plane_rows;
    shape.in[1] = plan.plane_rows;
    shape.out[1] = rows;
    shape.pad[1] = 0;
  }
  plan.gemm = PlanGemm(core, ColumnSource::kDirect, kBytes, 1, channels, plan.in_rows * width, expand.c);
  if (plan.expanded_elements() * kBytes > ExpandedBytes(core)) return std::nullopt;
  plan.planes = PlanConv(core, shape, kBytes);
  if (plan.gemm.row_blocks() != 1 || plan.gemm.k_blocks() != 1 || !plan.planes.is_depthwise()) return std::nullopt;
  // Rows between two bands are computed twice; the pixels are read once for each block of channels.
  const int64_t rows_computed = height + (plan.bands() - 1) * (reach - shape.stride[1]);
  const double gemms = static_cast<double>(depthwise.n * plan.blocks() * rows_computed) / plan.in_rows;
  const int64_t expanded = plan.expanded_elements() * kBytes, pixels = expand.c * plan.in_rows * width * kBytes;
  const double traffic =
      Traffic(core, expanded, core.near_bytes()) + Traffic(core, pixels, core.near_bytes() - expanded) / 2;
  const int64_t image = expand.c * expand.in_elements() * kBytes;
  const bool are_late = core.far_caches && expand.c > kFollowedStreams && image > core.near_bytes();
  const double late = are_late ? kLateLineCycles * static_cast<double>(depthwise.n * image) / kLineBytes : 0;
  plan.cycles = gemms * EstimateCycles(plan.gemm) + plan.tasks() * (plan.planes.cycles + traffic) + late;
  return plan;
}

double CyclesApart(const Core& core, const ConvShape& expand, const ConvShape& depthwise) {
  const int64_t expanded = depthwise.n * depthwise.c * depthwise.in_elements() * kBytes;
  return PlanConv(core, expand, kBytes).cycles + PlanConv(core, depthwise, kBytes).cycles +
         Traffic(core, expanded, ReadAheadBytes(core));
}

}  // namespace

int64_t DepthwiseBlockPlan::edge_elements() const { return RoundUp(edge_rows * depthwise.in[2], gemm.lanes); }

int64_t DepthwiseBlockPlan::expanded_elements() const {
  return edge_elements() + RoundUp(channels * plane_elements(), gemm.lanes) + gemm.lanes;
}

int64_t DepthwiseBlockPlan::scratch_bytes() const {
  return RoundUp(expanded_elements() * kBytes, kLineBytes) + std::max(gemm.scratch_bytes(), planes.scratch_bytes());
}

std::optional<DepthwiseBlockPlan> PlanDepthwiseBlock(const Core& core, const ConvShape& expand,
                                                     const ConvShape& depthwise, DepthwiseBlockChoice choice) {
  if (!ArePair(expand, depthwise) || choice.bands == DepthwiseBlockChoice::kNever) return std::nullopt;
  const bool by_rule = choice.bands == DepthwiseBlockChoice::kByRule;
  const int64_t again = Reach(depthwise, 1) - depthwise.stride[1];
  const int64_t fewest = by_rule && depthwise.n == 1 && again * kRowsOfOneAgain <= depthwise.in[1] ? 2 : 1;
  const double apart = CyclesApart(core, expand, depthwise);
  std::optional<DepthwiseBlockPlan> best;
  auto is_better = [&](const DepthwiseBlockPlan& plan) {
    if (by_rule) {
      const bool is_cut_fine = plan.tasks() >= kMinTasks || plan.channels <= kFewChannels;
      return is_cut_fine && plan.cycles < (best ? best->cycles : apart);
    }
    if (plan.bands() > choice.bands) return false;
    if (!best || plan.bands() != best->bands()) return !best || plan.bands() > best->bands();
    return plan.cycles < best->cycles;
  };
  for (int64_t channels = std::min(kMostChannels, depthwise.c); channels > 1; --channels) {
    if (depthwise.c % channels != 0) continue;
    int64_t last = 0;
    for (int64_t bands = fewest; bands <= depthwise.out[1]; ++bands) {
      const int64_t rows = CeilDiv(depthwise.out[1], bands);
      if (rows == last) continue;
      last = rows;
      auto plan = PlanTasks(core, expand, depthwise, channels, rows);
      if (plan && is_better(*plan)) best = plan;
    }
  }
  return best;
}

}  // namespace inlay::native
