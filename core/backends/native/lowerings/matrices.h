// A contraction's operand as matrices where it lies.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRICES_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRICES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/lowerings/views.h"

namespace inlay::native {

struct GemmTypes;

// An operand as matrices of a view: `batch` in front, rows x columns last, transposed if asked for, rank 1 promoted.
struct Matrices {
  View view;
  Shape batch, batch_strides;
  Extent rows = 1, columns = 1, row_stride = 0, column_stride = 0;

  static absl::StatusOr<Matrices> Of(const Tensor& tensor, bool left, bool transposed);

  // Whether all batches' rows are row_stride apart, one batch after the other.
  bool OneMatrix() const;

  // The last axes of `batch`, or as many as there are, away: they have an extent of 1, or rows take them.
  void DropBatches(size_t axes);

  // Address of the first matrix.
  mlir::Value Pointer(Kernel& k, mlir::Type element) const;

  // Where batch element `i` of `result` begins, `strides` those of this operand's batch axes.
  BatchOffset OffsetOf(FunctionEmitter& f, const Shape& result, Shape strides) const;
};

// Where the kernels of gemm.h find the columns of b, for `m` rows of a.
ColumnSource SourceOf(const Core& core, const Matrices& b, bool constant, int64_t m, int64_t element_bytes);

// How the batch elements, rows and columns of a product are those of its result.
struct ProductShape {
  ProductShape(const Tensor& result, const Extent& rows, bool vector_a, bool vector_b);

  // One b for all: the rows of all batch elements become rows of one product. How many there were.
  Extent TakeBatchesForRows();
  Extent TakeBatchesForRows(size_t axes);  // the last ones of `batch`
  // The same where a's rows allow it, which are then those of one matrix: whether it did. Of several b, of the last
  // axes along which b stays the same.
  bool MergeBatches(Matrices* a, Matrices* b);
  Indices At(Kernel& k, mlir::Value batch, mlir::Value row, mlir::Value column, int64_t lanes) const;

  Shape batch, rows;
  bool vector_a, vector_b;  // whose result has no rows, or no columns
};

// What becomes of the sums of `gemm`: results of `n`, or what its tail makes of them.
void StoreProduct(FunctionEmitter& f, Kernel& kernel, const Node& n, const ProductShape& shape, GemmKernel* gemm);

// Left operands of f16 or bf16 in f32, row after row, for several panels: each element is widened once and not by each
// of them (Granite Rapids, f16, 128x768x768 1.29 -> 0.77 ms, onnxruntime 0.88). Their strides become those of that.
Buffer Widened(FunctionEmitter& f, const GemmTypes& types, Matrices* matrices);

// The state that holds constant matrices packed for `plan` (kPacked), all of them one after another; _init fills it.
Buffer PackConstant(FunctionEmitter& f, const Matrices& b, const GemmPlan& plan, const GemmTypes& types);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRICES_H_
