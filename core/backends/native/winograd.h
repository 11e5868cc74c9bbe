// Emits convolutions as a WinogradPlan says: three kernels, each over all tasks of the one before. The caller owns
// functions, buffers and the epilogue, which is called as conv.h's is, some elements twice.
#ifndef INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_H_
#define INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_H_

#include "core/backends/native/gemm.h"
#include "core/backends/native/winograd_plan.h"

namespace inlay::native {

// w [m, c / groups, (depth,) rows, columns], as the convolution has it, to plan.packed_weight_elements() of f32: G g
// G^T, computed in f64.
void EmitWinogradWeights(KernelBuilder& kb, const WinogradPlan& plan, mlir::Value w, mlir::Value to);

// Items [begin, end) of plan.plane_line_items(): x to plan.planes_elements() of f32, channels innermost, padded.
void EmitWinogradPlanes(KernelBuilder& kb, const WinogradPlan& plan, mlir::Value x, mlir::Value begin, mlir::Value end,
                        mlir::Value to);

// Items [begin, end) of plan.transform_tasks(): planes to plan.shared_input_elements().
void EmitWinogradInput(KernelBuilder& kb, const WinogradPlan& plan, mlir::Value planes, mlir::Value begin,
                       mlir::Value end, mlir::Value to);

struct WinogradKernel {
  WinogradPlan plan;
  mlir::Value input;    // the planes (plan.fused) or what EmitWinogradInput made of them
  mlir::Value weights;  // packed
  Epilogue epilogue;    // (image, channel, flattened pixel, value)
};

// Tasks [begin, end) of plan.tasks(). `scratch`: plan.scratch_bytes() of this worker, 64-byte aligned.
void EmitWinogradTasks(KernelBuilder& kb, const WinogradKernel& kernel, mlir::Value begin, mlir::Value end,
                       mlir::Value scratch);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_H_
