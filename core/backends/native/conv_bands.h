// ConvMethod::kBands: convolutions of few channels a group.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CONV_BANDS_H_
#define INLAY_CORE_BACKENDS_NATIVE_CONV_BANDS_H_

#include "core/backends/native/conv.h"

namespace inlay::native {

// As EmitConvTasks. A task = a band of output rows of a batch element; bands vary fastest.
void EmitBandTasks(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value begin, mlir::Value end,
                   mlir::Value scratch);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CONV_BANDS_H_
