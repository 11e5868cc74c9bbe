#include "core/backends/native/conv_phases.h"

#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

const Spatial kOnes{1, 1, 1}, kZeros{0, 0, 0};

// Whole patches are taken by blocks of channels, which the direct way's estimate does not see (Zen 3, 224x224 of 3
// channels, 32x32/32 to 768: 3670 us, so 2468; 16x16/16 to 768 2453, 2413; 2x2/2 of 96 of 56x56 to 192 would be 2%
// slower).
constexpr double kClearly = 0.98;

}  // namespace

std::optional<ConvPhases> SplitByStride(const ConvPlan& direct) {
  const ConvShape& s = direct.shape;
  if (s.stride == kOnes || s.dilation != kOnes || s.input_dilation != kOnes || s.reversed) return std::nullopt;
  ConvPhases result;
  ConvPlan& planes = result.planes;
  planes.shape = s;
  planes.lanes = direct.lanes;
  planes.gemm.element_bytes = direct.gemm.element_bytes;
  planes.phases = s.stride;
  planes.padded_input = true;
  planes.SetPadded(s.out[1]);
  ConvShape& shape = result.shape;
  shape.n = s.n;
  shape.c = s.c;
  shape.m = s.m;
  shape.groups = s.groups;
  shape.in = planes.padded;
  shape.out = s.out;
  for (int axis = 0; axis < 3; ++axis) {
    if (s.kernel[axis] < s.stride[axis]) return std::nullopt;
    shape.c *= s.stride[axis];
    shape.kernel[axis] = CeilDiv(s.kernel[axis], s.stride[axis]);
  }
  return result;
}

std::optional<PatchPlan> PlanPatches(const Core& core, const ConvPlan& direct) {
  const ConvShape& s = direct.shape;
  if (s.kernel != s.stride || s.pad != kZeros || s.groups > 1) return std::nullopt;
  for (int axis = 0; axis < 3; ++axis) {
    if (s.out[axis] * s.stride[axis] > s.in[axis]) return std::nullopt;
  }
  const std::optional<ConvPhases> phases = SplitByStride(direct);
  if (!phases) return std::nullopt;
  const PatchPlan plan{phases->planes, PlanConv(core, phases->shape, direct.gemm.element_bytes)};
  const double cycles = PadCycles(core, plan.planes) + CyclesWithPadding(core, plan.pointwise);
  if (cycles >= kClearly * CyclesWithPadding(core, direct)) return std::nullopt;
  return plan;
}

}  // namespace inlay::native
