// Reading and making the padded planes of conv_plan.h; shared by conv.cc and depthwise.cc.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CONV_PLANES_H_
#define INLAY_CORE_BACKENDS_NATIVE_CONV_PLANES_H_

#include <functional>
#include <vector>

#include "core/backends/native/conv_plan.h"
#include "core/backends/native/kernel_builder.h"

namespace inlay::native {

// What x holds, and what the kernels compute with instead.
struct InputElements {
  mlir::Type stored;
  // Of elements as stored, scalars or vectors; unless given, they are widened to the accumulator's type.
  std::function<mlir::Value(KernelBuilder&, mlir::Value)> converted = nullptr;
  int32_t padding = 0;  // the bits of what stands for elements beyond the edges (of 32 bits, unless 0)

  mlir::Value Convert(KernelBuilder& kb, mlir::Value x, mlir::Type accumulator) const {
    return converted ? converted(kb, x) : kb.Widen(x, accumulator);
  }
};

// A run of stride vectors, by phase: lane l of result p is their element l * stride + p.
std::vector<mlir::Value> Deinterleave(KernelBuilder& kb, const std::vector<mlir::Value>& run);

// One plane of x to its padded copy, or the part of it that the output rows from `out_row` on see.
void EmitPadPlane(KernelBuilder& kb, const ConvPlan& plan, mlir::Value x, const InputElements& elements,
                  mlir::Type accumulator, mlir::Value out_row, mlir::Value to);

// Of a sequence, where plan.cuts_row(): what the output columns from `first` on see.
void EmitPadPart(KernelBuilder& kb, const ConvPlan& plan, mlir::Value x, const InputElements& elements,
                 mlir::Type accumulator, mlir::Value first, mlir::Value to);

// What `task` of plan.copy_tasks() copies of x for tiles, where plan.tiled_input.
void EmitTilePixels(KernelBuilder& kb, const ConvPlan& plan, mlir::Value x, const InputElements& elements,
                    mlir::Type accumulator, mlir::Value task, mlir::Value to);

// Offset in a plane of the tap (d, h, w): where the padded coordinate (d, h, w) * dilation lies.
mlir::Value TapOffset(KernelBuilder& kb, const ConvPlan& plan, mlir::Value d, mlir::Value h, mlir::Value w);

// A vector of consecutive output pixels, seen from rows that are `row_stride` apart rather than dense: the pieces of
// rows that it is made of. pointer[s] + l is right for the lanes of mask[s].
struct PixelVector {
  std::vector<mlir::Value> pointers, masks;  // no masks: one piece
};
// Whether all of a plane's pixels follow each other there as they do in the result.
bool PixelsAdjoin(const ConvPlan& plan, int64_t rows_per_slice);
// Pixels [first, first + lanes) over the plane at `plane`, whose rows are padded[2] and slices padded[1] rows long.
// `in_row`: they are known to lie in one row.
PixelVector LocatePixels(KernelBuilder& kb, const ConvPlan& plan, mlir::Value plane, mlir::Type element,
                         mlir::Value first, int64_t rows_per_slice, bool in_row = false);
mlir::Value LoadPixels(KernelBuilder& kb, const ConvPlan& plan, const PixelVector& pixels, mlir::Value offset,
                       mlir::Type element);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CONV_PLANES_H_
