// The loops of a matrix product, which matmul, conv and conv_transpose share: C[b][m][n] = sum over k of A[b][m][k] *
// B[b][k][n].
//
//   for each strip of NR columns: pack B's strip into scratch, padded to NR            (any B: im2col for convolutions)
//     for each MR rows: MR x NR accumulators in vector registers, then the store with what is fused behind it
#ifndef INLAY_CORE_BACKENDS_CSOURCE_GEMM_H_
#define INLAY_CORE_BACKENDS_CSOURCE_GEMM_H_

#include <functional>
#include <vector>

#include "core/backends/csource/kernel_emitter.h"

namespace inlay::csource {

struct Gemm {
  ir::DType dtype;  // of C; of A and B too, unless these are narrower integers
  int64_t batch = 1, m = 1, n = 1;
  // k as nested loops: extents and the distance in A (in elements) of each step; outermost first.
  struct KLoop {
    int64_t extent, a_stride;
  };
  std::vector<KLoop> k;
  const Tensor* a = nullptr;  // with memory
  int64_t a_row_stride = 0;
  // Where A[b][0][0] lies, in elements.
  std::function<Expr(const Expr& batch)> a_offset;
  // Called first in the loop over strips; may emit what the functions below use.
  std::function<void(const Expr& batch)> begin_batch;
  // Called in a loop over a strip's columns, before the packing: `j` is the column's place in the strip (below
  // `width`).
  std::function<void(int64_t width)> begin_strip;                        // outside of that loop; optional
  std::function<void(const Expr& j, const Expr& column)> column_begins;  // inside; optional
  // B[batch][k][column], in the type computed in.
  std::function<Expr(const std::vector<Expr>& k, const Expr& j, const Expr& column)> b;
  // Stores C[batch][m][n], `value` in the type computed in.
  std::function<void(const Expr& row, const Expr& column, const Expr& value)> store;

  int64_t depth() const;
};

void EmitGemm(KernelEmitter& e, const Gemm& gemm);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_GEMM_H_
