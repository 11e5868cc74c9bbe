#include "core/backends/libxsmm/runtime/engine.h"

#include <libxsmm.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/backends/libxsmm/plan.h"
#include "core/backends/libxsmm/runtime/packing.h"

namespace inlay::libxsmm {
namespace {

using backends::ForEach;
using backends::GemmDescription;
using backends::GemmMatrices;
using backends::GemmTile;
using backends::GemmTiling;

// Rows of a tile: the kernels work on 6 rows at a time (4 vectors of 16 columns each: 24 accumulators), and A's rows of
// one block of K stay in the L1 cache beside B's.
constexpr int64_t kMostRows = 96;

// The kernels of one shape of tile. libxsmm is column-major: its M is our columns, its N our rows, its A our B.
struct Kernels {
  libxsmm_smmfunction_reducebatch_strd blocks = nullptr;  // C = sum over blocks of K
  libxsmm_smmfunction rest = nullptr;                     // C = or C +=, the last K % kb
};

class Engine : public backends::GemmEngine {
 public:
  Engine(const GemmDescription& d, const InlayCallContext& ctx, void* const* args)
      : m_(d.m), n_(d.n), k_(d.k), a_(d.a), b_(d.b) {
    nb_ = std::min(d.options.at("nb"), n_);
    kb_ = std::min(d.options.at("kb"), k_);
    if (nb_ < 1 || kb_ < 1) throw std::runtime_error("a block without elements");
    // As equal as can be, so that no tile is a narrow rest.
    const int64_t row_tiles = (m_ + kMostRows - 1) / kMostRows;
    mb_ = std::min(m_, ((m_ + row_tiles - 1) / row_tiles + 5) / 6 * 6);
    packs_a_ = PacksAAtRun(d);
    packs_b_ = PacksB(d);
    packs_b_at_run_ = PacksBAtRun(d);
    a_matrices_ = d.input_elements[d.a.input] / (m_ * k_);
    b_matrices_ = d.input_elements[d.b.input] / (k_ * n_);
    workspace_of_a_ = WorkspaceBytesOfA(d);
    Dispatch();
    if (!d.b_constant) return;
    packed_b_ = static_cast<float*>(backends::AllocateState(ctx, d.input_elements[d.b.input] * sizeof(float)));
    if (args[d.b.input] == nullptr) throw std::runtime_error("no weights were given");
    PackB(ctx, static_cast<const float*>(args[d.b.input]), packed_b_);
  }

  GemmTiling Tiling(int) const override { return {mb_, nb_}; }

  void Prepare(const InlayCallContext& ctx, GemmMatrices* matrices) const override {
    auto* workspace = static_cast<char*>(ctx.workspace);
    if (packs_a_) {
      auto* to = reinterpret_cast<float*>(workspace);
      PackA(ctx, static_cast<const float*>(matrices->a), to);
      matrices->a = to;
    }
    if (packs_b_at_run_) {
      auto* to = reinterpret_cast<float*>(workspace + workspace_of_a_);
      PackB(ctx, static_cast<const float*>(matrices->b), to);
      matrices->b = to;
    } else if (packs_b_) {
      matrices->b = packed_b_;
    }
  }

  void Multiply(const void* a, const void* b, void* c, const GemmTile& tile) const override {
    const float* rows = static_cast<const float*>(a) + tile.row * k_;
    const float* columns = static_cast<const float*>(b) + tile.column * (packs_b_ ? k_ : 1);
    float* out = static_cast<float*>(c) + tile.row * n_ + tile.column;
    const Kernels& kernels = kernels_[tile.rows != mb_][tile.columns != nb_];
    const unsigned long long blocks = k_ / kb_;  // NOLINT: libxsmm's type
    if (blocks > 0) kernels.blocks(columns, rows, out, &blocks);
    if (kernels.rest == nullptr) return;
    const int64_t done = static_cast<int64_t>(blocks) * kb_;
    kernels.rest(columns + done * (packs_b_ ? tile.columns : n_), rows + done, out);
  }

 private:
  void Dispatch() {
    libxsmm_init();
    for (int last_rows : {0, 1}) {
      for (int last_columns : {0, 1}) {
        const int64_t rows = last_rows ? m_ % mb_ : mb_, columns = last_columns ? n_ % nb_ : nb_;
        if (rows > 0 && columns > 0) kernels_[last_rows][last_columns] = Generate(rows, columns);
      }
    }
  }

  Kernels Generate(int64_t rows, int64_t columns) const {
    const libxsmm_blasint m = static_cast<libxsmm_blasint>(columns), n = static_cast<libxsmm_blasint>(rows);
    const libxsmm_blasint kb = static_cast<libxsmm_blasint>(kb_), rest = static_cast<libxsmm_blasint>(k_ % kb_);
    const libxsmm_blasint lda = static_cast<libxsmm_blasint>(packs_b_ ? columns : n_);
    const libxsmm_blasint ldb = static_cast<libxsmm_blasint>(k_), ldc = static_cast<libxsmm_blasint>(n_);
    const float one = 1, zero = 0;
    const int flags = LIBXSMM_GEMM_FLAG_NONE, prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
    constexpr int kBytes = sizeof(float);
    Kernels kernels;
    kernels.blocks =
        libxsmm_smmdispatch_reducebatch_strd(m, n, kb, static_cast<libxsmm_blasint>(kb_ * lda * kBytes), kb * kBytes,
                                             &lda, &ldb, &ldc, &one, &zero, &flags, &prefetch);
    if (rest > 0) kernels.rest = libxsmm_smmdispatch(m, n, rest, &lda, &ldb, &ldc, &one, &one, &flags, &prefetch);
    if (kernels.blocks == nullptr || (rest > 0 && kernels.rest == nullptr)) {
      throw std::runtime_error(std::string("no kernel for ") + std::to_string(rows) + "x" + std::to_string(columns) +
                               "x" + std::to_string(k_) + " on " + libxsmm_get_target_arch());
    }
    return kernels;
  }

  void PackA(const InlayCallContext& ctx, const float* from, float* to) const {
    ForEach(ctx, a_matrices_, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        CopyRowMajor({from + i * m_ * k_, a_.row_stride, a_.column_stride}, m_, k_, to + i * m_ * k_, k_);
      }
    });
  }

  void PackB(const InlayCallContext& ctx, const float* from, float* to) const {
    const int64_t panels = (n_ + nb_ - 1) / nb_;
    ForEach(ctx, b_matrices_ * panels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t matrix = i / panels * k_ * n_, column = i % panels * nb_;
        const int64_t columns = std::min(nb_, n_ - column);
        CopyRowMajor({from + matrix + column * b_.column_stride, b_.row_stride, b_.column_stride}, k_, columns,
                     to + matrix + column * k_, columns);
      }
    });
  }

  const int64_t m_, n_, k_;
  const backends::GemmOperand a_, b_;
  int64_t mb_, nb_, kb_;
  bool packs_a_, packs_b_, packs_b_at_run_;
  int64_t a_matrices_, b_matrices_, workspace_of_a_;
  float* packed_b_ = nullptr;
  Kernels kernels_[2][2];  // [the last rows][the last columns]
};

}  // namespace

std::unique_ptr<backends::GemmEngine> MakeEngine(const GemmDescription& description, const InlayCallContext& ctx,
                                                 void* const* args) {
  return std::make_unique<Engine>(description, ctx, args);
}

}  // namespace inlay::libxsmm
