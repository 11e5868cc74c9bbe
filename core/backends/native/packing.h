// Packing of a contraction's operands into the layouts that gemm.h reads. Emits MLIR at the builder's insertion point.
#ifndef INLAY_CORE_BACKENDS_NATIVE_PACKING_H_
#define INLAY_CORE_BACKENDS_NATIVE_PACKING_H_

#include <vector>

#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/kernel_builder.h"

namespace inlay::native {

// Transposes n vectors of n lanes; n a power of two.
std::vector<mlir::Value> TransposeSquare(KernelBuilder& kb, std::vector<mlir::Value> rows);

// A matrix as it lies: element (k, j) at k * k_stride + j * j_stride.
struct StridedMatrix {
  mlir::Value pointer;
  mlir::Type element;
  Extent k_stride = 0, j_stride = 0;
};

// to[k][vectors * lanes] = from(k, j) for k in [0, rows), j in [0, columns); widened to `accumulator`. Columns beyond
// are zero or left as they are. `to_stride` > 0: elements from one k to the next.
void EmitPackBlock(KernelBuilder& kb, const StridedMatrix& from, mlir::Value rows, int64_t vectors, int64_t columns,
                   int64_t lanes, mlir::Type accumulator, mlir::Value to, int64_t to_stride = 0);

// The same with a number of columns that the run decides.
void EmitPackBlock(KernelBuilder& kb, const StridedMatrix& from, mlir::Value rows, int64_t vectors, mlir::Value columns,
                   int64_t lanes, mlir::Type accumulator, mlir::Value to);

// The whole of Q in kPacked layout (one batch element: plan.k x plan.n).
void EmitPackColumns(KernelBuilder& kb, const GemmPlan& plan, const StridedMatrix& from, mlir::Type accumulator,
                     mlir::Value to);

// P(i, k) = from(k, i) as [tile][k][mr] (tiles of fewer rows padded): a RowOperand with tile_stride = k * mr,
// k_stride = mr, row_stride = 1. Elements keep their type. `to`: plan.packed_row_elements().
void EmitPackRows(KernelBuilder& kb, const GemmPlan& plan, const StridedMatrix& from, mlir::Value to);
// Where P(i, 0) lies then, in elements.
mlir::Value PackedRow(KernelBuilder& kb, const GemmPlan& plan, mlir::Value i);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_PACKING_H_
