// Copies of matrices in the order that the kernels read.
#ifndef INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_PACKING_H_
#define INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_PACKING_H_

#include <cstdint>

namespace inlay::libxsmm {

// A matrix whose element (i, j) is at i * row_stride + j * column_stride; one of them is 1.
struct Matrix {
  const float* data;
  int64_t row_stride, column_stride;
};

// rows x columns from `from` to `to`, row-major with `width` elements a row.
void CopyRowMajor(const Matrix& from, int64_t rows, int64_t columns, float* to, int64_t width);

}  // namespace inlay::libxsmm

#endif  // INLAY_CORE_BACKENDS_LIBXSMM_RUNTIME_PACKING_H_
