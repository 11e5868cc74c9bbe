// Strided convolutions as others of stride 1, of more channels: of the input's planes, padded and split by the stride
// (conv_planes.h), each is one. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CONV_PHASES_H_
#define INLAY_CORE_BACKENDS_NATIVE_CONV_PHASES_H_

#include <optional>

#include "core/backends/native/conv_plan.h"

namespace inlay::native {

struct ConvPhases {
  ConvPlan planes;  // how they are copied
  // Of stride 1 and without padding. Channel c and phase (d, h, w) are a channel, whose kernel has every stride-th tap;
  // its last may be missing.
  ConvShape shape;
};
// Of strided convolutions whose kernel is no narrower than the stride.
std::optional<ConvPhases> SplitByStride(const ConvPlan& direct);

// A convolution of patches, each of which another output sees: the phases' has a kernel of one tap.
struct PatchPlan {
  ConvPlan planes;
  ConvPlan pointwise;
};
// Where that is estimated to be faster than the direct plan.
std::optional<PatchPlan> PlanPatches(const Core& core, const ConvPlan& direct);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CONV_PHASES_H_
