#include "core/backends/libxsmm/runtime/packing.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace inlay::libxsmm {

void CopyRowMajor(const Matrix& from, int64_t rows, int64_t columns, float* to, int64_t width) {
  if (from.column_stride == 1) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(to + i * width, from.data + i * from.row_stride, columns * sizeof(float));
    }
    return;
  }
  // Transposed: 4 x 4 in registers.
  int64_t i = 0;
#if defined(__SSE__)
  for (; i + 4 <= rows; i += 4) {
    int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      const float* source = from.data + i + j * from.column_stride;
      __m128 a = _mm_loadu_ps(source), b = _mm_loadu_ps(source + from.column_stride);
      __m128 c = _mm_loadu_ps(source + 2 * from.column_stride), d = _mm_loadu_ps(source + 3 * from.column_stride);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* target = to + i * width + j;
      _mm_storeu_ps(target, a);
      _mm_storeu_ps(target + width, b);
      _mm_storeu_ps(target + 2 * width, c);
      _mm_storeu_ps(target + 3 * width, d);
    }
    for (; j < columns; ++j) {
      for (int64_t r = i; r < i + 4; ++r) to[r * width + j] = from.data[r + j * from.column_stride];
    }
  }
#endif
  for (; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[i * width + j] = from.data[i + j * from.column_stride];
  }
}

}  // namespace inlay::libxsmm
