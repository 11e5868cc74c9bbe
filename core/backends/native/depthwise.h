// Depthwise convolution: each input channel makes m / c output channels of its own. No contraction to speak of: a task
// pads one plane into scratch and slides the taps over it, vectorised along the flattened padded rows.
#ifndef INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_H_
#define INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_H_

#include "core/backends/native/conv.h"

namespace inlay::native {

void EmitDepthwiseTasks(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value begin, mlir::Value end,
                        mlir::Value scratch);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_H_
