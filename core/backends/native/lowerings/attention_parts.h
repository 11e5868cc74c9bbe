// What attention's kernels share: how the heads, rows, keys and values of a node lie, q's rows on their way to the
// first product, results on theirs to memory.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_ATTENTION_PARTS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_ATTENTION_PARTS_H_

#include "absl/status/status.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/lowerings/score_rows.h"
#include "core/backends/native/packing.h"

namespace inlay::native {

class AttentionParts {
 public:
  AttentionParts(FunctionEmitter& f, const Node& n, Matrices k, Matrices v);

  // The head's matrix where it lies.
  StridedMatrix Keys(Kernel& kernel, mlir::Value head) const { return MatrixOf(kernel, k, key_types, head); }
  StridedMatrix Values(Kernel& kernel, mlir::Value head) const { return MatrixOf(kernel, v, value_types, head); }
  // Of the scores, q and the result, but for the last index.
  Indices AtRow(Kernel& kernel, const Indices& at, mlir::Value row) const;
  // Rows [first, first + rows) of q at the batch element `at`, with whatever is computed on the way (a scale, and that
  // of k), as `stored`; from one to the next `stride` elements, zero beyond the head's.
  void CopyQ(Kernel& kernel, const Indices& at, mlir::Value first, mlir::Value rows, mlir::Value to, ir::DType stored,
             int64_t stride) const;
  void StoreContext(Kernel& kernel, const Indices& at, mlir::Value row, mlir::Value column, mlir::Value sums) const;
  // But for their stride and lanes.
  ScoreRows MakeScoreRows() const;

  FunctionEmitter& f;
  const Node& n;
  GemmTypes types, key_types, value_types;  // of q and the scores, k, v
  Matrices k, v;
  Shape batch, rows;  // heads; what each has as rows
  int64_t head_size;
  Extent keys;

 private:
  StridedMatrix MatrixOf(Kernel& kernel, const Matrices& m, const GemmTypes& of, mlir::Value head) const;
};

// With open dimensions.
void EmitOpenAttention(const AttentionParts& parts);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_ATTENTION_PARTS_H_
