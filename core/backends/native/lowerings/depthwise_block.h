// A pointwise convolution within the kernel of the depthwise one that reads it (depthwise_block_plan.h).
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_DEPTHWISE_BLOCK_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_DEPTHWISE_BLOCK_H_

#include <vector>

#include "core/backends/native/function_emitter.h"

namespace inlay::native {

// Puts such convolutions, with their tails, into the plans of those that read them: where these alone do, and where it
// pays.
void FuseDepthwiseBlocks(FunctionEmitter& f, std::vector<KernelPlan>* plans);

// Emits a plan with one within.
void EmitDepthwiseBlock(FunctionEmitter& f, const KernelPlan& plan);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_DEPTHWISE_BLOCK_H_
