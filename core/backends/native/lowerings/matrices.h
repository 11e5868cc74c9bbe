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

  // Address of the first matrix.
  mlir::Value Pointer(Kernel& k, mlir::Type element) const;

  // Where batch element `i` of `result` begins, `strides` those of this operand's batch axes.
  BatchOffset OffsetOf(FunctionEmitter& f, const Shape& result, Shape strides) const;
};

// The state that holds constant matrices packed for `plan` (kPacked), all of them one after another; _init fills it.
Buffer PackConstant(FunctionEmitter& f, const Matrices& b, const GemmPlan& plan, const GemmTypes& types);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_MATRICES_H_
