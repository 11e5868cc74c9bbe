#include "core/backends/onednn/runtime/transpose.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/backends/onednn/runtime/layout.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace inlay::onednn {
namespace {

// [N,C,s...] with the channels last.
dnnl::memory::desc ChannelsLast(const Dims& dims) {
  Dims strides(dims.size());
  strides[1] = 1;
  int64_t stride = dims[1];
  for (size_t axis = dims.size() - 1; axis >= 2; --axis) {
    strides[axis] = stride;
    stride *= dims[axis];
  }
  strides[0] = stride;
  return PlainLayout(dims, strides);
}

// Columns [begin, end) of one matrix: reads 4 rows at a time, whole cache lines of each, and fills the lines of the
// result one piece after the other.
void TransposeColumns(const Transpose& t, const float* from, float* to, int64_t begin, int64_t end) {
  int64_t row = 0;
#if defined(__SSE__)
  for (; row + 4 <= t.rows; row += 4) {
    int64_t column = begin;
    for (; column + 4 <= end; column += 4) {
      const float* source = from + row * t.columns + column;
      __m128 a = _mm_loadu_ps(source), b = _mm_loadu_ps(source + t.columns);
      __m128 c = _mm_loadu_ps(source + 2 * t.columns), d = _mm_loadu_ps(source + 3 * t.columns);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* target = to + column * t.rows + row;
      _mm_storeu_ps(target, a);
      _mm_storeu_ps(target + t.rows, b);
      _mm_storeu_ps(target + 2 * t.rows, c);
      _mm_storeu_ps(target + 3 * t.rows, d);
    }
    for (; column < end; ++column) {
      for (int64_t i = row; i < row + 4; ++i) to[column * t.rows + i] = from[i * t.columns + column];
    }
  }
#endif
  for (; row < t.rows; ++row) {
    for (int64_t column = begin; column < end; ++column) to[column * t.rows + row] = from[row * t.columns + column];
  }
}

}  // namespace

bool AsTranspose(const dnnl::memory::desc& from, const dnnl::memory::desc& to, Transpose* transpose) {
  const Dims dims = from.get_dims();
  if (dims.size() < 3 || dims.size() > 5) return false;
  const int64_t pixels = std::accumulate(dims.begin() + 2, dims.end(), int64_t{1}, std::multiplies<int64_t>());
  const auto first = PlainLayout(dims), last = ChannelsLast(dims);
  if (SamePlacement(from, first) && SamePlacement(to, last)) {
    *transpose = {dims[0], dims[1], pixels};
    return true;
  }
  *transpose = {dims[0], pixels, dims[1]};
  return SamePlacement(from, last) && SamePlacement(to, first);
}

void RunTranspose(const Transpose& t, const float* from, float* to) {
  // As many lines of the result are open at once as there are columns in a piece: where they all fall into one set of
  // the L1 cache, 8 of them stay there, 16 don't.
  const int64_t piece = t.rows * sizeof(float) % 4096 == 0 ? 8 : 16;
  const int64_t pieces = (t.columns + piece - 1) / piece;
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t image = 0; image < t.batch; ++image) {
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t offset = image * t.rows * t.columns;
      TransposeColumns(t, from + offset, to + offset, i * piece, std::min((i + 1) * piece, t.columns));
    }
  }
}

}  // namespace inlay::onednn
