#include "core/backends/native/winograd_cost.h"

#include <algorithm>

#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

// Bytes a cycle at which transformed weights come from L2, and from what lies behind it: of cores with far caches less
// (Emerald Rapids: 256 channels of 14x14, whose weights are 9.4 MB, by F(4) 1.09 ms, by F(2), 4.2 MB, 0.65; 512 of 7x7
// by F(2), 16.8 MB, 1.9, direct 1.2).
constexpr double kNearBytes = 24;
double FarBytes(const Core& core) { return core.far_caches ? 3.5 : core.waits_for_l2() ? 5 : 7; }
// Zen 3: so many of a layer stay in L3 until the next block reads them, at this rate; and of what the multiplications
// hide some shows (six shapes with 9 to 38 MB of weights: a cycle for 15 to 30 bytes).
constexpr double kNearWeightBytes = 4 << 20, kL3Bytes = 14, kHiddenBytes = 25;
// A register tile's cycles for a vector of weights, above those that its multiplications hide.
constexpr double kReadCycles = 0.35;
// Where caches are far, of a byte of the planes, and of transformed input that the tasks share; in L2 and beyond
// (Emerald Rapids: 128 channels of 112x112 by F(4) 8.8 ms fused, 13.0 not, 256 of 56x56 8.6 and 12.2).
constexpr double kPlaneCycles = 0.1, kFarPlaneCycles = 0.35, kTileCycles = 0.2, kFarTileCycles = 1;
// Of a byte of transformed input that the tasks share and that lies beyond twice L2, where groups make few products of
// it (Zen 3, us, direct and by F(4), minima: 24 groups of 16 channels of 32x32 1467, 1824, 12 of 64x64 3198, 5538, 28
// of 28x28 1417, 1775; 8 of 32 of 56x56 by F(4) 5092, by F(2), fused, 3791).
constexpr double kGroupedTileCycles = 1;
// The direct way with strides takes so many times as long as estimated (Zen 3: 85 to 91% of the peak, not 97); where
// caches are far also so long for a byte of its planes (32 channels of 224x224 to 64: 6.0 ms, by F(4) 3.8).
constexpr double kStridedDirect = 1.07, kFarPhaseCycles = 1;

// Of a kernel along one axis, a tile of a vector of channels, for each of its points.
constexpr double kLineInput = 1.5, kLineOutput = 1.2;

double FloatBytes(int64_t elements) { return static_cast<double>(elements) * sizeof(float); }

double InputBytes(const WinogradPlan& plan) {
  return FloatBytes(plan.inputs() * plan.input_tiles() * plan.points() * plan.tile_channels() * plan.group_tasks());
}

// All blocks' products, and what their operands take to come.
double ProductCycles(const Core& core, const WinogradPlan& plan) {
  const double near = static_cast<double>(core.l2_bytes / 2), far_bytes = FarBytes(core);
  const GemmPlan& g = plan.gemm;
  const double blocks = static_cast<double>(plan.blocks()), panels = static_cast<double>(plan.panels());
  double multiplying = 0;
  for (const WinogradProducts& of : plan.product_kinds()) multiplying += blocks * EstimateCycles(plan.gemm_of(of));
  multiplying += blocks * panels * plan.points() * CeilDiv(g.m, g.mr) * g.k * g.nv * kReadCycles;
  // The first time they come from beyond L2: the other layers' lie there.
  const double weight_bytes = FloatBytes(plan.packed_weight_elements());
  const double again = plan.panels_outer ? 0 : (blocks - 1) * weight_bytes;
  const bool in_l3 = core.waits_for_l2() && weight_bytes > near && weight_bytes <= kNearWeightBytes;
  const double weights = weight_bytes / far_bytes + again / (in_l3                 ? kL3Bytes
                                                             : weight_bytes > near ? far_bytes
                                                                                   : kNearBytes);
  const double input_bytes =
      static_cast<double>(plan.group_panels() * plan.shape.kernel[0] * plan.chunks()) * InputBytes(plan);
  const bool are_far = plan.panels_outer && InputBytes(plan) > near;
  double cycles = std::max(multiplying, weights) + input_bytes / (are_far ? 2 * far_bytes : 8 * kNearBytes);
  if (core.waits_for_l2()) {
    cycles += (weight_bytes + (in_l3 ? 0 : again)) / kHiddenBytes;
    const double block_bytes = FloatBytes(plan.block_tiles() * plan.points() * plan.tile_channels());
    cycles += input_bytes * std::max(0.0, 1 - near / block_bytes) / (2 * kL3Bytes);
  }
  return cycles;
}

// Of a tile of a vector of channels, there and back.
struct TileCycles {
  double input, output;
};

// `small`: of F(2x2, 3x3).
TileCycles CyclesOfThree(const Core& core, const WinogradPlan& plan, bool small) {
  // What is not fused goes by way of a farther cache.
  if (core.waits_for_l2()) {  // Zen 3
    const double spread = plan.fused ? 1 : 1.5;
    if (plan.is_strided()) return small ? TileCycles{100 * spread, 25} : TileCycles{500 * spread, 150};
    return small ? TileCycles{45 * spread, 30} : TileCycles{200 * spread, 110};
  }
  const double spread = plan.fused ? 1 : 1.3;
  if (plan.is_strided()) return small ? TileCycles{90 * spread, 35} : TileCycles{300 * spread, 150};
  return small ? TileCycles{70 * spread, 50} : TileCycles{150 * spread, 120};  // Zen 5
}

TileCycles CyclesOfTile(const Core& core, const WinogradPlan& plan) {
  if (plan.is_line()) {
    const double points = static_cast<double>(plan.points()), spread = plan.fused ? 1 : 1.5;
    return {points * kLineInput * spread, points * kLineOutput};
  }
  // Others have the input tiles of F(2x2, 3x3) or F(4x4, 3x3), but more or fewer results.
  const int64_t points = plan.columns.points();
  TileCycles cycles = CyclesOfThree(core, plan, points <= (plan.is_strided() ? 5 : 4));
  if (!plan.is_strided() && points == 5) {  // between those
    const TileCycles small = CyclesOfThree(core, plan, true);
    cycles = {(small.input + cycles.input) / 2, (small.output + cycles.output) / 2};
  }
  if (plan.columns.taps == 2) cycles.output *= 1.4;
  if (plan.columns.taps > 3) cycles.output *= 0.5;
  return cycles;
}

double TransformCycles(const Core& core, const WinogradPlan& plan) {
  const TileCycles tile = CyclesOfTile(core, plan);
  const double tiles_in = static_cast<double>(plan.inputs() * plan.input_tiles() * plan.channel_vectors());
  const double tiles_out = static_cast<double>(plan.blocks() * plan.block_tiles() * plan.panels() * plan.gemm.nv);
  double cycles = tiles_in * tile.input + tiles_out * tile.output;
  if (core.far_caches && !plan.fused) {
    cycles += InputBytes(plan) * (InputBytes(plan) > core.l2_bytes ? kFarTileCycles : kTileCycles);
  } else if (plan.shape.groups > 1 && !plan.fused) {
    cycles += std::max(0.0, InputBytes(plan) - 2 * static_cast<double>(core.l2_bytes)) * kGroupedTileCycles;
  }
  return cycles;
}

// Squares of vectors, transposed: x to the planes, results back.
double TransposeCycles(const Core& core, const WinogradPlan& plan) {
  const ConvShape& s = plan.shape;
  const double square = 0.6 * plan.lanes * plan.lanes;
  const double in =
      static_cast<double>(s.n * s.in[0] * s.in[1] * CeilDiv(s.in[2], plan.lanes) * plan.channel_vectors());
  const double out = static_cast<double>(s.n * s.pixels() * plan.panels() * plan.gemm.nv) / plan.lanes;
  double cycles = (in + out) * square;
  if (core.far_caches) {
    const double bytes = FloatBytes(plan.planes_elements());
    cycles += bytes * (bytes > core.l2_bytes / 2 ? kFarPlaneCycles : kPlaneCycles);
  }
  return cycles;
}

}  // namespace

double WinogradCycles(const Core& core, const WinogradPlan& plan) {
  return ProductCycles(core, plan) + TransformCycles(core, plan) + TransposeCycles(core, plan);
}

double CyclesBeside(const Core& core, const ConvPlan& direct) {
  const double cycles = CyclesWithPadding(core, direct);
  if (direct.shape.stride[2] == 1 || !direct.padded_input) return cycles;
  return cycles * kStridedDirect + (core.far_caches ? FloatBytes(direct.padded_elements()) * kFarPhaseCycles : 0);
}

}  // namespace inlay::native
