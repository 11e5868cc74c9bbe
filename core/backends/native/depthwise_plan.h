// How a depthwise convolution is computed: which of the two ways of depthwise.h, and its tiles. Plain values, no MLIR.
// The rule is a count of cycles, its constants from kernels timed on Zen 5 with AVX-512 and AVX2 (most within 20%, some
// 3x3 on narrow images twice as far off): rows waste lanes where images are narrow, channels cost two transpositions.
#ifndef INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_PLAN_H_
#define INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_PLAN_H_

#include "core/backends/native/conv_plan.h"

namespace inlay::native {

// The weights of so many kernel rows of a column (kDepthwiseChannels: columns of a row) are in registers, and the code
// for them is unrolled.
inline constexpr int64_t kMaxUnrolledKernelRows = 11;
// Of a whole kernel that is unrolled along rows too: a loop of three turns costs a tenth.
inline constexpr int64_t kMaxUnrolledTaps = 9;

// Decides the method, plan->depthwise and cycles of a convolution whose groups are its channels; false where no way
// fits a worker's scratch.
bool PlanDepthwise(const Core& core, ConvPlan* plan);

// kDepthwise: the padded band, then the sums of a band. kDepthwiseChannels: x and the sums with a block's channels
// innermost, then the sums with pixels innermost. kDepthwiseLines: a band of x with a block's channels innermost.
int64_t DepthwisePaddedElements(const ConvPlan& plan);
int64_t DepthwiseScratchElements(const ConvPlan& plan);
// kDepthwiseChannels: from one channel's sums to the next's.
int64_t DepthwiseChannelPitch(const ConvPlan& plan);
// kDepthwiseLines: columns of x that a band sees.
int64_t DepthwiseLineColumns(const ConvPlan& plan);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_PLAN_H_
