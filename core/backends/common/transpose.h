// Between nchw and nhwc: what stands at the borders of a region of convolutions. Header only, so that each runtime
// archive carries it; no exceptions, no memory.
//
// oneDNN's own reorder loses a factor of 2 to 8 where the channels' stride is a power of two (1024 x 14 x 14: 0.41 ms;
// here 0.05), and a ResNet has such borders only.
#ifndef INLAY_CORE_BACKENDS_COMMON_TRANSPOSE_H_
#define INLAY_CORE_BACKENDS_COMMON_TRANSPOSE_H_

#include <algorithm>
#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace inlay::backends {

// batch times: to[column][row] = from[row][column]. Split into NumPieces() pieces, which may run at the same time.
struct Transpose {
  int64_t batch = 0, rows = 0, columns = 0;

  // As many lines of the result are open at once as there are columns in a piece: where they all fall into one set of
  // the L1 cache, 8 of them stay there, 16 don't.
  int64_t ColumnsOfPiece() const { return rows * static_cast<int64_t>(sizeof(float)) % 4096 == 0 ? 8 : 16; }
  int64_t PiecesOfMatrix() const { return (columns + ColumnsOfPiece() - 1) / ColumnsOfPiece(); }
  int64_t NumPieces() const { return batch * PiecesOfMatrix(); }
};

// Columns [begin, end) of one matrix: reads 4 rows at a time, whole cache lines of each, and fills the lines of the
// result one piece after the other.
inline void TransposeColumns(const Transpose& t, const float* from, float* to, int64_t begin, int64_t end) {
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

// Pieces [begin, end) of all. `from` and `to` don't overlap.
inline void TransposePieces(const Transpose& t, const float* from, float* to, int64_t begin, int64_t end) {
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t offset = piece / t.PiecesOfMatrix() * t.rows * t.columns;
    const int64_t column = piece % t.PiecesOfMatrix() * t.ColumnsOfPiece();
    TransposeColumns(t, from + offset, to + offset, column, std::min(column + t.ColumnsOfPiece(), t.columns));
  }
}

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_TRANSPOSE_H_
