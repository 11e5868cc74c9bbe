// Winograd's transforms, one way: of a column, then of a row of a tile. The points are winograd_plan.h's.
#ifndef INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_TRANSFORMS_H_
#define INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_TRANSFORMS_H_

#include <vector>

#include "core/backends/native/kernel_builder.h"
#include "core/backends/native/winograd_plan.h"

namespace inlay::native {

// B^T d: axis.inputs() to axis.points().
std::vector<mlir::Value> InputTransform(KernelBuilder& kb, const WinogradAxis& axis, const std::vector<mlir::Value>& d);

// A^T v: axis.products() to axis.m.
std::vector<mlir::Value> OutputTransform(KernelBuilder& kb, const WinogradAxis& axis,
                                         const std::vector<mlir::Value>& v);

// G g: axis.tile_taps() to axis.points().
std::vector<mlir::Value> WeightTransform(KernelBuilder& kb, const WinogradAxis& axis,
                                         const std::vector<mlir::Value>& g);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_TRANSFORMS_H_
