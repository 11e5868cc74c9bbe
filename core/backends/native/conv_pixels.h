// ConvMethod::kPixelRows read in place: tiles of pixels straight from x, without a padded copy.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CONV_PIXELS_H_
#define INLAY_CORE_BACKENDS_NATIVE_CONV_PIXELS_H_

#include <vector>

#include "core/backends/native/conv.h"

namespace inlay::native {

// A TileEmitter of a plan that is pixels_in_place(). `zeros`: as many as x has columns.
std::vector<mlir::Value> EmitPixelTile(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value zeros,
                                       const TileRequest& tile, const std::vector<mlir::Value>& accumulators);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CONV_PIXELS_H_
