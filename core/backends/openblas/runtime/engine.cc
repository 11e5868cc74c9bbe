#include "core/backends/openblas/runtime/engine.h"

#include <cblas.h>

#include <algorithm>
#include <cstring>

namespace inlay::openblas {
namespace {

using backends::GemmDescription;
using backends::GemmTile;
using backends::GemmTiling;

void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k, const float* a, blasint lda,
          const float* b, blasint ldb, float* c, blasint ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}
void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k, const double* a, blasint lda,
          const double* b, blasint ldb, double* c, blasint ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}
void Gemv(CBLAS_TRANSPOSE t, blasint rows, blasint columns, const float* matrix, blasint ld, const float* x, float* y) {
  cblas_sgemv(CblasRowMajor, t, rows, columns, 1, matrix, ld, x, 1, 1, y, 1);
}
void Gemv(CBLAS_TRANSPOSE t, blasint rows, blasint columns, const double* matrix, blasint ld, const double* x,
          double* y) {
  cblas_dgemv(CblasRowMajor, t, rows, columns, 1, matrix, ld, x, 1, 1, y, 1);
}

CBLAS_TRANSPOSE Transposed(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

template <typename T>
class Engine : public backends::GemmEngine {
 public:
  explicit Engine(const GemmDescription& d)
      : products_(d.num_products()),
        m_(d.m),
        n_(d.n),
        k_(d.k),
        a_transposed_(d.a_transposed()),
        b_transposed_(d.b_transposed()) {}

  // OpenBLAS packs its arguments at each call: as few calls as there are threads, along the longer side.
  GemmTiling Tiling(int num_threads) const override {
    if (num_threads <= 1 || products_ >= num_threads) return {m_, n_};
    auto part = [num_threads](int64_t extent) { return ((extent + num_threads - 1) / num_threads + 15) / 16 * 16; };
    return n_ >= m_ ? GemmTiling{m_, part(n_)} : GemmTiling{part(m_), n_};
  }

  void Multiply(const void* a_data, const void* b_data, void* c_data, const GemmTile& tile) const override {
    const T* a = static_cast<const T*>(a_data) + tile.row * (a_transposed_ ? 1 : k_);
    const T* b = static_cast<const T*>(b_data) + tile.column * (b_transposed_ ? k_ : 1);
    T* c = static_cast<T*>(c_data) + tile.row * n_ + tile.column;
    const auto rows = static_cast<blasint>(tile.rows), columns = static_cast<blasint>(tile.columns);
    const auto m = static_cast<blasint>(m_), n = static_cast<blasint>(n_), k = static_cast<blasint>(k_);
    const blasint lda = a_transposed_ ? m : k, ldb = b_transposed_ ? k : n;
    if (m_ == 1 && !a_transposed_) {  // one row: B^T a
      std::memset(c, 0, columns * sizeof(T));
      b_transposed_ ? Gemv(CblasNoTrans, columns, k, b, ldb, a, c) : Gemv(CblasTrans, k, columns, b, ldb, a, c);
    } else if (n_ == 1 && !b_transposed_) {  // one column: A b
      std::memset(c, 0, rows * sizeof(T));
      a_transposed_ ? Gemv(CblasTrans, k, rows, a, lda, b, c) : Gemv(CblasNoTrans, rows, k, a, lda, b, c);
    } else {
      Gemm(Transposed(a_transposed_), Transposed(b_transposed_), rows, columns, k, a, lda, b, ldb, c, n);
    }
  }

 private:
  const int64_t products_, m_, n_, k_;
  const bool a_transposed_, b_transposed_;
};

}  // namespace

std::unique_ptr<backends::GemmEngine> MakeEngine(const GemmDescription& description, const InlayCallContext&,
                                                 void* const*) {
  if (description.dtype == "f64") return std::make_unique<Engine<double>>(description);
  return std::make_unique<Engine<float>>(description);
}

}  // namespace inlay::openblas
