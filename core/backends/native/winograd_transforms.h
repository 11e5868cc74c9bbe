// Winograd's transforms, one way: of a column, then of a row of a tile. The points are winograd_plan.h's.
#ifndef INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_TRANSFORMS_H_
#define INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_TRANSFORMS_H_

#include <vector>

#include "core/backends/native/kernel_builder.h"
#include "core/backends/native/winograd_plan.h"

namespace inlay::native {

// B^T d: axis_inputs() to axis_points().
std::vector<mlir::Value> InputTransform(KernelBuilder& kb, const WinogradPlan& plan, const std::vector<mlir::Value>& d);

// A^T v: axis_products() to m.
std::vector<mlir::Value> OutputTransform(KernelBuilder& kb, const WinogradPlan& plan,
                                         const std::vector<mlir::Value>& v);

// G g: taps() to axis_points().
std::vector<mlir::Value> WeightTransform(KernelBuilder& kb, const WinogradPlan& plan,
                                         const std::vector<mlir::Value>& g);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_TRANSFORMS_H_
