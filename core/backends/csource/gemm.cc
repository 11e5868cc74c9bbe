#include "core/backends/csource/gemm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace inlay::csource {
namespace {

struct Tile {
  int64_t rows, vectors, lanes;
  int64_t columns() const { return vectors * lanes; }
};

// Accumulators fill the registers but for B's vectors and one of A: 12 x 2 of 32 with AVX-512, 6 x 2 of 16 else. Rows
// are shared out evenly: 13 are 7 and 6, not 12 and 1.
Tile TileOf(const KernelEmitter& e, const Gemm& gemm) {
  if (e.plain()) return {std::min<int64_t>(gemm.m, 4), gemm.n > 1 ? 2 : 1, 1};  // scalars
  const int64_t most = e.target().HasFeature("avx512f") ? 12 : 6;
  const int64_t blocks = (gemm.m + most - 1) / most;
  const int64_t lanes = e.Lanes(gemm.dtype);
  return {(gemm.m + blocks - 1) / blocks, gemm.n > lanes ? 2 : 1, lanes};
}

class Emitter {
 public:
  Emitter(KernelEmitter& e, const Gemm& gemm)
      : e_(e), g_(gemm), dtype_(ComputeDType(gemm.dtype)), tile_(TileOf(e, gemm)), type_(StorageType(dtype_)) {
    // Loops over A that are one loop, as the channels and taps of a convolution's weights are.
    for (const Gemm::KLoop& loop : gemm.k) {
      if (!k_.empty() && k_.back().a_stride == loop.extent * loop.a_stride) {
        k_.back() = {k_.back().extent * loop.extent, loop.a_stride};
      } else {
        k_.push_back(loop);
      }
    }
  }

  void Run() {
    const int64_t strips = (g_.n + tile_.columns() - 1) / tile_.columns();
    // May alias: it is also read and written element by element.
    if (e_.plain()) {
      e_.c().Line("typedef ", type_, " Vector;");
    } else {
      e_.c().Line("typedef ", type_, " Vector __attribute__((vector_size(", tile_.lanes * ir::ByteSize(dtype_),
                  "), may_alias));");
    }
    panel_ = e_.Scratch(type_, g_.depth() * tile_.columns() * ir::ByteSize(dtype_));
    const double work = static_cast<double>(g_.m * g_.depth() * tile_.columns()) / static_cast<double>(tile_.lanes);
    e_.Units(g_.batch * strips, 2 * work, [&](const Expr& unit) {
      const Expr batch = e_.LetIndex(unit / Expr(strips));
      const Expr begin = e_.LetIndex(unit % Expr(strips) * Expr(tile_.columns()));
      const Expr width = e_.LetIndex(Smaller(Expr(g_.n) - begin, Expr(tile_.columns())));
      if (g_.begin_batch) g_.begin_batch(batch);
      if (g_.begin_strip) g_.begin_strip(tile_.columns());
      if (g_.column_begins) {
        e_.For(0, tile_.columns(), [&](const Expr& j) { g_.column_begins(j, Column(begin, width, j)); });
      }
      Pack(begin, width);
      const Expr a = e_.LetIndex(g_.a_offset(batch));
      e_.For(0, g_.m, [&](const Expr& row) { Block(a, row, begin, width); }, tile_.rows);
    });
  }

 private:
  // Columns beyond the last repeat it: they are computed and not stored.
  Expr Column(const Expr& begin, const Expr& width, const Expr& j) {
    return e_.LetIndex(begin + (g_.n % tile_.columns() == 0 ? j : Smaller(j, width - 1)));
  }

  void Pack(const Expr& begin, const Expr& width) {
    PackFrom(0, 0, {}, [&](const Expr& place, const std::vector<Expr>& k) {
      e_.For(
          0, tile_.columns(),
          [&](const Expr& j) {
            const Expr value = g_.b(k, j, Column(begin, width, j));
            e_.c().Line(At(panel_, place * Expr(tile_.columns()) + j).text, " = ", value.text, ";");
          },
          1, true);
    });
  }

  using PackBody = std::function<void(const Expr&, const std::vector<Expr>&)>;
  void PackFrom(size_t loop, const Expr& place, std::vector<Expr> k, const PackBody& body) {
    if (loop == g_.k.size()) return body(e_.LetIndex(place), k);
    e_.For(0, g_.k[loop].extent, [&](const Expr& i) {
      std::vector<Expr> deeper = k;
      deeper.push_back(i);
      PackFrom(loop + 1, place * Expr(g_.k[loop].extent) + i, deeper, body);
    });
  }

  std::string Acc(int64_t r, int64_t v) const { return absl::StrCat("acc", r, "_", v); }

  void Block(const Expr& a, const Expr& row, const Expr& begin, const Expr& width) {
    const Expr base = e_.Pointer(*g_.a);
    const absl::string_view stored = StorageType(g_.a->dtype);
    for (int64_t r = 0; r < tile_.rows; ++r) {
      // Rows beyond the last repeat it.
      const Expr index = g_.m % tile_.rows == 0 ? row + Expr(r) : Smaller(row + Expr(r), Expr(g_.m - 1));
      const Expr place = a + e_.LetIndex(index) * Expr(g_.a_row_stride);
      e_.c().Line("const ", stored, " *restrict a", r, " = ", base.text, " + ", place.text, ";");
    }
    for (int64_t r = 0; r < tile_.rows; ++r) {
      for (int64_t v = 0; v < tile_.vectors; ++v) e_.c().Line("Vector ", Acc(r, v), e_.plain() ? " = 0;" : " = {0};");
    }
    Multiply(0, 0, 0);
    const std::string tile = e_.Fresh("tile");
    e_.c().Line(e_.plain() ? "" : "_Alignas(64) ", type_, " ", tile, "[", tile_.rows, " * ", tile_.columns(), "];");
    for (int64_t r = 0; r < tile_.rows; ++r) {
      for (int64_t v = 0; v < tile_.vectors; ++v) {
        e_.c().Line("*(Vector *)(", tile, " + ", r * tile_.columns() + v * tile_.lanes, ") = ", Acc(r, v), ";");
      }
    }
    const Expr rows = e_.LetIndex(Smaller(Expr(g_.m) - row, Expr(tile_.rows)));
    e_.For(0, g_.m % tile_.rows == 0 ? Expr(tile_.rows) : rows, [&](const Expr& r) {
      const Expr here = e_.LetIndex(row + r);
      e_.For(
          0, g_.n % tile_.columns() == 0 ? Expr(tile_.columns()) : width,
          [&](const Expr& j) {
            const Expr column = e_.LetIndex(begin + j);
            const Expr value = e_.Let(type_, At(Expr::Name(tile), r * Expr(tile_.columns()) + j));
            g_.store(here, column, value);
          },
          1, true);
    });
  }

  void Multiply(size_t loop, const Expr& place, const Expr& offset) {
    if (loop < k_.size()) {
      e_.For(0, k_[loop].extent, [&](const Expr& i) {
        Multiply(loop + 1, place * Expr(k_[loop].extent) + i, offset + i * Expr(k_[loop].a_stride));
      });
      return;
    }
    const Expr k = e_.LetIndex(place), at = e_.LetIndex(offset);
    e_.c().Line("const Vector *b = (const Vector *)(", panel_.text, " + ", (k * Expr(tile_.columns())).text, ");");
    for (int64_t v = 0; v < tile_.vectors; ++v) e_.c().Line("const Vector b", v, " = b[", v, "];");
    for (int64_t r = 0; r < tile_.rows; ++r) {
      Expr x = At(Expr::Name(absl::StrCat("a", r)), at);
      if (g_.a->dtype == ir::DType::kF16) x = Call("inlay_load_f16", {x});
      if (g_.a->dtype == ir::DType::kBF16) x = Call("inlay_load_bf16", {x});
      const std::string name = absl::StrCat("x", r);
      e_.c().Line("const ", type_, " ", name, " = ", x.text, ";");
      for (int64_t v = 0; v < tile_.vectors; ++v) Accumulate(Acc(r, v), name, absl::StrCat("b", v));
    }
  }

  void Accumulate(const std::string& acc, const std::string& a, const std::string& b) {
    if (!e_.plain() || ir::IsFloat(dtype_)) return e_.c().Line(acc, " += ", a, " * ", b, ";");
    const Expr sum = Sum(dtype_, Expr::Name(acc), Product(dtype_, Expr::Name(a), Expr::Name(b)));
    e_.c().Line(acc, " = ", Wrapped(dtype_, sum).text, ";");
  }

  KernelEmitter& e_;
  const Gemm& g_;
  const ir::DType dtype_;
  const Tile tile_;
  const absl::string_view type_;
  std::vector<Gemm::KLoop> k_;
  Expr panel_;
};

}  // namespace

int64_t Gemm::depth() const {
  int64_t depth = 1;
  for (const KLoop& loop : k) depth *= loop.extent;
  return depth;
}

void EmitGemm(KernelEmitter& e, const Gemm& gemm) { Emitter(e, gemm).Run(); }

}  // namespace inlay::csource
