// Emits convolutions as a ConvPlan says. As in gemm.h, the caller owns functions, buffers and the epilogue, which gets
// (batch = image * groups + group, row = channel within the group, column = flattened output pixel).
#ifndef INLAY_CORE_BACKENDS_NATIVE_CONV_H_
#define INLAY_CORE_BACKENDS_NATIVE_CONV_H_

#include "core/backends/native/conv_plan.h"
#include "core/backends/native/conv_planes.h"
#include "core/backends/native/gemm.h"

namespace inlay::native {

// If plan.padded_input: tasks [begin, end) of plan.copy_tasks(), which make the copy that all of EmitConvTasks read.
// `to`: plan.padded_elements() of accumulator type (f16 and bf16 are widened here).
void EmitPadInput(KernelBuilder& kb, const ConvPlan& plan, mlir::Value x, const InputElements& elements,
                  mlir::Type accumulator, mlir::Value begin, mlir::Value end, mlir::Value to);

// w to the layout of the tasks, plan.packed_weight_elements() of `packed` (which has the elements' type, or
// the accumulator's where plan.widens_weights()); not for kDepthwise, whose tasks read the weights as they are.
void EmitPackConvWeights(KernelBuilder& kb, const ConvPlan& plan, mlir::Value w, mlir::Type element, mlir::Type packed,
                         mlir::Value to);

struct ConvKernel {
  ConvPlan plan;
  mlir::Type accumulator;
  MultiplyAdd multiply_add;  // not of depthwise ones
  mlir::Value input;         // x, or (plan.padded_input) its padded copy
  InputElements input_elements;
  mlir::Value weights;  // packed (kDepthwise: as they are)
  mlir::Type weight_element;
  Epilogue epilogue;
  Ahead ahead;  // as a GemmKernel's
  bool inline_epilogue = false;
  TileEmitter tile;  // unless null: of kPointwise and kPanels, in place of register tiles; stores its sums
};

// Tasks [begin, end) of plan.tasks(). `scratch`: plan.scratch_bytes() of this worker.
void EmitConvTasks(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value begin, mlir::Value end,
                   mlir::Value scratch);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CONV_H_
