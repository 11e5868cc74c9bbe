#include "core/backends/native/gemm.h"

#include <algorithm>
#include <numeric>

#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

constexpr int64_t kManyPanels = 8;
// From memory, at 15 GB/s (Granite Rapids, 1024x4096 by 4 rows: 2 KiB 89% of reading it, 4 KiB 90, 8 and 16 KiB 104 and
// 99, 64 KiB 95).
constexpr int64_t kAheadBytes = 8 << 10;

// Emits one task. A panel is emitted once for the full ones and once more where the last differs.
class TaskEmitter {
 public:
  TaskEmitter(KernelBuilder& kb, const GemmKernel& kernel, Value task, Value scratch)
      : kb_(kb), g_(kernel), plan_(kernel.plan), scratch_(scratch) {
    const int64_t panels = plan_.panels(), row_blocks = plan_.row_blocks();
    panel_ = kb.Rem(plan_.rows_fastest ? kb.Div(task, row_blocks) : task, panels);
    row_block_ = kb.Rem(plan_.rows_fastest ? task : kb.Div(task, panels), row_blocks);
    batch_ = kb.Div(task, panels * row_blocks);
    if (plan_.batch == 1) batch_ = kb.Int(0);
    if (!g_.tile) p_ = Base(g_.p.pointer, g_.p.element, g_.p.batch_offset);
    if (plan_.source != ColumnSource::kOnTheFly || !g_.q.pack) q_ = Base(g_.q.pointer, g_.q.element, g_.q.batch_offset);
    packed_ = kb.At(scratch, RoundUp(plan_.accumulator_elements() * plan_.element_bytes, kLineBytes), kb.b.getI8Type());
  }

  void Emit() {
    Value is_last = kb_.Equal(panel_, kb_.Int(plan_.panels() - 1));
    bool partial = plan_.n_last() < plan_.nr();
    // Padded columns cost nothing to compute: only a narrower panel, or one that must not be read in full, is worth
    // code of its own; or many others, whose results then go from the registers to where they belong.
    const bool spares_others =
        g_.inline_epilogue && plan_.k_blocks() <= 1 && !g_.transpose_output && plan_.panels() >= kManyPanels;
    bool separate = plan_.nv_last != plan_.nv || (partial && (plan_.source != ColumnSource::kPacked || spares_others));
    if (plan_.panels() == 1) {
      Panel(plan_.nv_last, plan_.n_last(), kb_.Int(plan_.n_last()));
    } else if (separate) {
      kb_.If(
          is_last, [&] { Panel(plan_.nv_last, plan_.n_last(), kb_.Int(plan_.n_last())); },
          [&] { Panel(plan_.nv, plan_.nr(), kb_.Int(plan_.nr())); });
    } else if (partial) {
      Panel(plan_.nv, plan_.nr(), kb_.Min(kb_.Int(plan_.nr()), kb_.Sub(kb_.Int(plan_.n), kb_.Mul(panel_, plan_.nr()))));
    } else {
      Panel(plan_.nv, plan_.nr(), kb_.Int(plan_.nr()));
    }
  }

 private:
  Value Base(Value pointer, Type element, const BatchOffset& offset) {
    return offset ? kb_.At(pointer, offset(kb_, batch_), element) : pointer;
  }

  using TileLoop = std::function<void(const std::function<void(int64_t rows, Value tile)>& body)>;

  // `readable`: columns of Q that may be read; `columns`: those that exist in C.
  void Panel(int64_t nv, int64_t readable, Value columns) {
    nv_ = nv;
    readable_ = readable;
    columns_ = columns;
    const int64_t whole = plan_.whole_tiles();
    tile_begin_ = kb_.Mul(row_block_, plan_.tiles_of_block());
    const Value block_end = kb_.Min(kb_.Int(plan_.tiles()), kb_.Add(tile_begin_, plan_.tiles_of_block()));
    const Value whole_end = kb_.Min(kb_.Int(whole), block_end);
    tile_end_ = plan_.lower_tiles() > 0 ? block_end : whole_end;
    Value is_last_block = kb_.Equal(row_block_, kb_.Int(plan_.row_blocks() - 1));
    const TileLoop all_tiles = [&](const std::function<void(int64_t rows, Value tile)>& body) {
      ForTiles(tile_begin_, whole_end, [&](Value tile) { body(plan_.mr, tile); });
      if (plan_.lower_tiles() > 0) {
        kb_.For(kb_.Max(tile_begin_, kb_.Int(whole)), block_end, 1, [&](Value tile) { body(plan_.mr - 1, tile); });
      }
      if (plan_.m_tail() > 0) kb_.If(is_last_block, [&] { body(plan_.m_tail(), kb_.Int(whole)); });
    };
    row_begin_ = RowOf(tile_begin_);
    const Value rows = kb_.Sub(kb_.Min(kb_.Int(plan_.m), RowOf(block_end)), row_begin_);
    if (g_.transpose_output) {
      TransposedPanel(rows, kb_.Sub(block_end, kb_.Int(1)), all_tiles);
      return;
    }
    // The last block of k goes from the registers to where it belongs.
    const bool finishes = plan_.k_blocks() <= 1 || !g_.tile;
    const int64_t blocks = std::max<int64_t>(plan_.k_blocks() - (finishes ? 1 : 0), 0);
    if (!finishes || blocks > 0) {
      const Value zero = kb_.Zero(KernelBuilder::Vector(plan_.lanes, g_.accumulator));
      kb_.For(kb_.Int(0), kb_.Mul(rows, nv_), 1,
              [&](Value i) { kb_.Store(zero, kb_.At(scratch_, kb_.Mul(i, plan_.lanes), g_.accumulator)); });
    }
    auto steps = [&](Value begin, Value end) {
      return g_.steps ? g_.steps(kb_, panel_, begin, end) : GemmKernel::Steps(begin, end);
    };
    kb_.For(blocks, [&](Value block) {
      const Value begin = kb_.Mul(block, plan_.kc), end = kb_.Min(kb_.Int(plan_.k), kb_.Add(begin, plan_.kc));
      const auto [k_begin, k_end] = steps(begin, end);
      Value q = ColumnBlock(k_begin, k_end);
      all_tiles([&](int64_t tile_rows, Value tile) {
        if (g_.ahead && !finishes) kb_.If(kb_.Equal(block, kb_.Int(blocks - 1)), [&] { AskForAll(tile_rows, tile); });
        const Value slab = SlabOf(tile_rows, tile);
        const std::vector<Value> in = LoadAll(tile_rows, slab);
        StoreAll(Tile(tile_rows, tile, q, k_begin, k_end, in), slab);
      });
    });
    if (finishes) {
      const auto [k_begin, k_end] = steps(kb_.Int(blocks * plan_.kc), kb_.Int(plan_.k));
      Value q = ColumnBlock(k_begin, k_end);
      all_tiles([&](int64_t tile_rows, Value tile) { LastTile(tile_rows, tile, q, k_begin, k_end, blocks > 0); });
    } else {
      EpilogueOverSlab(row_begin_, rows, scratch_);
    }
  }

  // The first row of a tile, whichever it is.
  Value RowOf(Value tile) {
    const Value row = kb_.Mul(tile, plan_.mr);
    if (plan_.lower_tiles() == 0) return row;
    return kb_.Sub(row, kb_.Max(kb_.Sub(tile, kb_.Int(plan_.whole_tiles())), kb_.Int(0)));
  }

  // The same, of a tile of which it is known how many rows it has.
  Value RowOf(int64_t rows, Value tile) {
    return IsLower(rows) ? kb_.Add(kb_.Mul(tile, rows), plan_.whole_tiles()) : kb_.Mul(tile, plan_.mr);
  }

  bool IsLower(int64_t rows) const { return plan_.lower_tiles() > 0 && rows < plan_.mr; }

  // Of a tile's sums over blocks of k.
  Value SlabOf(int64_t rows, Value tile) {
    return kb_.At(scratch_, kb_.Mul(kb_.Sub(RowOf(rows, tile), row_begin_), nv_ * plan_.lanes), g_.accumulator);
  }

  // Whether a block's first tile packs the panel as it reads it: beside its multiply-adds the stores cost nothing (64
  // rows, AVX2 on Zen 4: 108 -> 113 GFLOP/s of 116).
  bool FirstTilePacks() const {
    if (plan_.source != ColumnSource::kOnTheFly || g_.q.pack || g_.tile || !g_.p.inner.empty()) return false;
    const int64_t first_of_last_block = (plan_.row_blocks() - 1) * plan_.tiles_of_block();
    return g_.q.column_stride == 1 && first_of_last_block < plan_.whole_tiles();
  }

  void ForTiles(Value begin, Value end, const std::function<void(Value tile)>& body) {
    if (FirstTilePacks()) {
      packs_ = true;
      body(begin);
      packs_ = false;
      begin = kb_.Add(begin, kb_.Int(1));
    }
    kb_.For(begin, end, 1, body);
  }

  // Pointer to the panel's row k_begin: packs it where it must be, unless the first tile does.
  Value ColumnBlock(Value k_begin, Value k_end) {
    switch (plan_.source) {
      case ColumnSource::kOnTheFly:
        q_stride_ = nv_ * plan_.lanes;
        if (!FirstTilePacks()) PackBlock(k_begin, k_end);
        return packed_;
      case ColumnSource::kPacked: {
        q_stride_ = nv_ * plan_.lanes;
        Value panel = kb_.At(q_, kb_.Mul(panel_, plan_.k * plan_.nr()), g_.q.element);
        return kb_.At(panel, kb_.Mul(k_begin, q_stride_), g_.q.element);
      }
      case ColumnSource::kDirect:
        q_stride_ = g_.q.k_stride;
        return RowAt(k_begin, panel_);
    }
    return {};
  }

  void PackBlock(Value k_begin, Value k_end) {
    if (g_.q.pack) {
      g_.q.pack(kb_, PackRequest{batch_, panel_, k_begin, k_end, packed_, nv_, readable_});
      return;
    }
    const StridedMatrix block{RowAt(k_begin, panel_), g_.q.element, g_.q.k_stride, g_.q.column_stride};
    EmitPackBlock(kb_, block, kb_.Sub(k_end, k_begin), nv_, readable_, plan_.lanes, g_.accumulator, packed_);
  }

  // Where row k of a panel of Q lies that nobody packed.
  Value RowAt(Value k, Value panel) {
    Value columns = kb_.At(q_, kb_.Mul(panel, plan_.nr() * g_.q.column_stride), g_.q.element);
    return kb_.At(columns, kb_.Mul(k, g_.q.k_stride), g_.q.element);
  }

  // The tiles of a panel until another follows, and which of them a tile is.
  int64_t TilesOfPanel() const { return CeilDiv(plan_.rows_fastest ? plan_.m : plan_.mc, plan_.mr); }
  Value InPanel(Value tile) { return plan_.rows_fastest ? tile : kb_.Sub(tile, tile_begin_); }

  int64_t LineOfQ() const { return kLineBytes / (g_.q.element.getIntOrFloatBitWidth() / 8); }  // in elements

  // How the tiles share out the next panel's rows, which lie apart, so that no prefetcher of the processor's follows
  // them: from `first_tile` on each asks for a line of some rows, a step in `every` for one. All of a tile's share at
  // once wait for each other (Emerald Rapids, 256 channels of 56x56 to 64: 79 and 83% of the peak), and so do those of
  // a line a step, for which the core has no fill buffers (Granite Rapids, the same: 70, with a line in four steps 88);
  // a tile that copies its own panel waits enough.
  struct RowsAsked {
    int64_t first_tile = 0, every = 1;
  };
  RowsAsked AsksForRows() const {
    const int64_t tiles = TilesOfPanel(), lines = CeilDiv(plan_.nr(), LineOfQ());
    if (tiles - 1 < 2 * lines || plan_.unrolled_steps() == 1) return {};
    RowsAsked asked{FirstTilePacks() ? 1 : 0, plan_.unrolled_steps()};
    while (lines * asked.every > tiles - asked.first_tile) asked.every /= 2;
    return asked;
  }

  std::vector<Value> Tile(int64_t rows, Value tile, Value q, Value k_begin, Value k_end, const std::vector<Value>& in,
                          bool asks_for_results = false) {
    Value prefetch, prefetch_step;
    int64_t ask_every = 1, prefetch_lines = 1;
    const bool is_many = rows == plan_.mr || IsLower(rows);  // of tiles
    const bool unrolls = g_.p.inner.empty() && is_many && !packs_;
    if (plan_.prefetch && plan_.source != ColumnSource::kPacked) {
      if (const RowsAsked asked = AsksForRows(); !packs_ || asked.first_tile == 0) {
        const int64_t line = LineOfQ(), lines = CeilDiv(plan_.nr(), line);
        if (unrolls) ask_every = asked.every;
        Value turn = kb_.Min(kb_.Sub(InPanel(tile), kb_.Int(asked.first_tile)), kb_.Int(lines * asked.every - 1));
        Value row = RowAt(kb_.Add(k_begin, kb_.Div(turn, lines)), kb_.Add(panel_, 1));
        prefetch = kb_.At(row, kb_.Add(kb_.Mul(kb_.Rem(turn, lines), line), line - 1), g_.q.element);
        prefetch_step = kb_.Int(g_.q.k_stride * kLineBytes / line);
      }
    } else if (plan_.prefetch) {
      const int64_t row_bytes = plan_.nr() * kLineBytes / LineOfQ();
      // The tiles of this panel share out the next one, so that it has come from memory when its first tile needs it.
      // One that is alone reads all of Q as it lies, and asks for what comes soon.
      const int64_t step = std::max<int64_t>(row_bytes / TilesOfPanel(), 1);
      const bool alone = TilesOfPanel() == 1 && !g_.tile;
      if (!g_.tile) prefetch_lines = CeilDiv(step, kLineBytes);
      prefetch_step = kb_.Int(step);
      Value from = kb_.At(q, alone ? kAheadBytes : plan_.kc * row_bytes, kb_.b.getI8Type());
      prefetch = kb_.At(from, kb_.Mul(InPanel(tile), plan_.kc * step), kb_.b.getI8Type());
    }
    if (g_.tile) {
      const int64_t columns = plan_.source == ColumnSource::kDirect ? readable_ : nv_ * plan_.lanes;
      const TileRequest request{rows,  nv_,      batch_,        tile,      q,       k_begin,
                                k_end, prefetch, prefetch_step, q_stride_, columns, scratch_};
      return g_.tile(kb_, request, in);
    }
    int64_t inner = 1;
    for (const InnerLoop& loop : g_.p.inner) inner *= loop.extent;
    RegisterTile t;
    t.rows = rows;
    t.vectors = nv_;
    t.lanes = plan_.lanes;
    t.accumulator = g_.accumulator;
    t.multiply_add = g_.multiply_add;
    auto from_k = [&](Value offset) {
      return kb_.At(kb_.At(p_, offset, g_.p.element), kb_.Mul(kb_.Div(k_begin, inner), g_.p.k_stride), g_.p.element);
    };
    if (!g_.p.row_offset) t.p = from_k(TileOffset(tile, RowOf(rows, tile)));
    for (int64_t r = 0; g_.p.row_offset && r < rows; ++r) {
      t.p_row_pointers.push_back(from_k(g_.p.row_offset(kb_, tile, r)));
    }
    t.inner = g_.p.inner;
    if (g_.p.bound_inner) g_.p.bound_inner(kb_, tile, &t.inner);
    t.p_element = g_.p.element;
    t.p_row_stride = g_.p.row_stride;
    t.p_rows = g_.p.rows;
    t.p_k_stride = g_.p.k_stride;
    const bool in_rows = plan_.source == ColumnSource::kDirect || packs_;
    const bool copied = plan_.source == ColumnSource::kOnTheFly && !packs_;
    t.q = packs_ ? RowAt(k_begin, panel_) : q;
    t.q_element = copied ? g_.accumulator : g_.q.element;
    t.q_k_stride = packs_ ? g_.q.k_stride : q_stride_;
    t.q_columns = in_rows ? readable_ : nv_ * plan_.lanes;
    if (packs_) t.copy = packed_;
    t.prefetch = prefetch;
    t.prefetch_step = prefetch_step;
    t.prefetch_lines = prefetch_lines;
    t.ask_every = ask_every;
    if (asks_for_results) {
      t.lines_ahead = LinesAhead(rows);
      t.ask = [=, this](KernelBuilder&, Value line) { Ask(rows, tile, line); };
    }
    if (plan_.prefetch_p() && plan_.transpose_output && t.inner.empty()) {
      t.next_p = NextPixels(tile, k_begin, k_end);
      t.next_p_step = t.p_k_stride;
    } else if (plan_.prefetch_p() && t.p_k_stride == 1 && t.p_row_stride == plan_.k && is_many) {
      t.next_p = kb_.At(t.p, rows * plan_.k, g_.p.element);
      t.next_p_step = rows;
    }
    t.few_registers = plan_.core.has_few_registers();
    if (unrolls) t.unrolled = plan_.unrolled_steps();
    return EmitRegisterTile(kb_, t, kb_.Int(0), kb_.Div(kb_.Sub(k_end, k_begin), inner), in);
  }

  // The last row of the next tile's P: of those that lie side by side, the one whose line no tile has met. After the
  // last tile of the row block the first one follows, in the next block of k.
  Value NextPixels(Value tile, Value k_begin, Value k_end) {
    const Value next = kb_.Add(tile, kb_.Int(1)), goes_on = kb_.Less(next, tile_end_);
    const Value other = kb_.Select(goes_on, next, tile_begin_);
    const Value row = kb_.Add(TileOffset(other, RowOf(other)), (plan_.mr - 1) * g_.p.row_stride);
    return kb_.At(kb_.At(p_, row, g_.p.element), kb_.Mul(kb_.Select(goes_on, k_begin, k_end), g_.p.k_stride),
                  g_.p.element);
  }

  // Where a tile's P lies, whose first row is `row`.
  Value TileOffset(Value tile, Value row) {
    if (g_.p.tile_offset) return g_.p.tile_offset(kb_, tile);
    return g_.p.tile_stride != 0 ? kb_.Mul(tile, g_.p.tile_stride) : kb_.Mul(row, g_.p.row_stride);
  }

  // Lines of C that a tile asks for: in each run of it that the tile writes, as many as wherever the run may begin in
  // a line. Transposed, the next tile goes on with the run, and asks for its end.
  int64_t LinesAhead(int64_t rows) const { return (g_.transpose_output ? nv_ * plan_.lanes : rows) * LinesOfRun(rows); }

  int64_t LineOfC() const { return kLineBytes / plan_.element_bytes; }  // in elements

  int64_t LinesOfRun(int64_t rows) const {
    const int64_t line = LineOfC();
    if (g_.transpose_output) return CeilDiv(rows, line);
    return CeilDiv(nv_ * plan_.lanes + line - std::gcd(std::gcd(plan_.n, plan_.nr()), line), line);
  }

  void Ask(int64_t rows, Value tile, Value line) {
    const int64_t lines = LinesOfRun(rows);
    const Value run = kb_.Div(line, lines), at = kb_.Rem(line, lines), last = kb_.Sub(columns_, kb_.Int(1));
    const Value row = RowOf(rows, tile), column = kb_.Mul(panel_, plan_.nr());
    if (g_.transpose_output) {
      g_.ahead(kb_, batch_, kb_.Add(column, kb_.Min(run, last)), kb_.Add(row, kb_.Mul(at, LineOfC())));
    } else {
      const Value in_run = kb_.Min(kb_.Mul(at, LineOfC()), last);
      g_.ahead(kb_, batch_, kb_.Add(row, run), kb_.Add(column, in_run));
    }
  }

  void AskForAll(int64_t rows, Value tile) {
    if (g_.ahead) kb_.For(LinesAhead(rows), [&](Value line) { Ask(rows, tile, line); });
  }

  // A tile's last steps, on top of the slab's sums where it `adds`, and its epilogue.
  void LastTile(int64_t rows, Value tile, Value q, Value k_begin, Value k_end, bool adds) {
    const bool asks_in_steps = g_.ahead && !g_.tile && plan_.core.asks_in_steps();
    if (!asks_in_steps) AskForAll(rows, tile);
    const Value slab = adds ? SlabOf(rows, tile) : scratch_;
    std::vector<Value> sums(rows * nv_, kb_.Zero(KernelBuilder::Vector(plan_.lanes, g_.accumulator)));
    if (adds) sums = LoadAll(rows, slab);
    std::vector<Value> acc = Tile(rows, tile, q, k_begin, k_end, sums, asks_in_steps);
    const Value row = RowOf(rows, tile);
    int64_t columns;
    bool full = IsConstant(columns_, &columns) && columns == nv_ * plan_.lanes;
    if (!g_.inline_epilogue || !full) {
      StoreAll(acc, slab);  // what a tile of its own has not stored
      EpilogueOverSlab(row, kb_.Int(rows), slab);
      return;
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < nv_; ++v) {
        g_.epilogue(kb_, batch_, kb_.Add(row, r), kb_.Add(kb_.Mul(panel_, plan_.nr()), v * plan_.lanes),
                    acc[r * nv_ + v]);
      }
    }
  }

  void StoreAll(const std::vector<Value>& values, Value to) {
    for (size_t i = 0; i < values.size(); ++i) kb_.Store(values[i], kb_.At(to, i * plan_.lanes, g_.accumulator));
  }

  std::vector<Value> LoadAll(int64_t rows, Value from) {
    const Type vector = KernelBuilder::Vector(plan_.lanes, g_.accumulator);
    std::vector<Value> values;
    for (int64_t i = 0; i < rows * nv_; ++i) {
      values.push_back(kb_.Load(vector, kb_.At(from, i * plan_.lanes, g_.accumulator)));
    }
    return values;
  }

  void EpilogueOverSlab(Value row_begin, Value rows, Value slab) {
    Value first_column = kb_.Mul(panel_, plan_.nr());
    Type vector = KernelBuilder::Vector(plan_.lanes, g_.accumulator);
    Value vectors = kb_.Div(columns_, plan_.lanes);
    // Where they come out even, two vectors at a time, computed side by side, or three: they share the loads of the
    // epilogue's constants.
    int64_t columns, step = 1;
    if (IsConstant(columns_, &columns))
      step = columns / plan_.lanes % 2 == 0 ? 2 : columns / plan_.lanes % 3 == 0 ? 3 : 1;
    const Type pair = KernelBuilder::Vector(2 * plan_.lanes, g_.accumulator);
    kb_.For(kb_.Int(0), rows, 1, [&](Value r) {
      Value from = kb_.At(slab, kb_.Mul(r, nv_ * plan_.lanes), g_.accumulator);
      Value row = kb_.Add(row_begin, r);
      auto apply = [&](Value column, Type type) {
        g_.epilogue(kb_, batch_, row, kb_.Add(first_column, column),
                    kb_.Load(type, kb_.At(from, column, g_.accumulator)));
      };
      kb_.For(kb_.Int(0), vectors, step, [&](Value v) {
        if (step == 2) return apply(kb_.Mul(v, plan_.lanes), pair);
        for (int64_t i = 0; i < step; ++i) apply(kb_.Mul(kb_.Add(v, i), plan_.lanes), vector);
      });
      const int64_t rest = plan_.n % plan_.lanes;
      if (rest == 0) return;
      // Of the last panel alone.
      kb_.For(kb_.Mul(vectors, plan_.lanes), columns_, rest, [&](Value column) {
        ForParts(rest, [&](int64_t done, int64_t lanes) { apply(kb_.Add(column, done), VectorOf(lanes)); });
      });
    });
  }

  // So many elements by whole vectors and shorter ones, halves of halves: a long epilogue of elements one by one would
  // be most of the work (80,000 rows of 31 by 31 with a sigmoid: 6.6 ms, of which 5 went to 15 columns).
  void ForParts(int64_t rest, const std::function<void(int64_t done, int64_t lanes)>& body) {
    int64_t done = 0;
    for (int64_t lanes = plan_.lanes; lanes > 0; lanes /= 2) {
      if ((rest & lanes) == 0) continue;
      body(done, lanes);
      done += lanes;
    }
  }

  Type VectorOf(int64_t lanes) const {
    return lanes == 1 ? g_.accumulator : Type(KernelBuilder::Vector(lanes, g_.accumulator));
  }

  // Squares of vectors go to C in the last block of k, while L1 holds them, each a tile after the one that completes
  // it: those wait for no multiply-add that is under way, and are turned beside them (Zen 4, 256 channels of 14x14 to
  // 1024, in one block of k, from the registers to C, which is asked for in steps: 110.7 -> 113.2 GFLOP/s of 117;
  // without any of this work 116).
  void TransposedPanel(Value rows, Value last_tile, const TileLoop& all_tiles) {
    const int64_t lanes = plan_.lanes, blocks = std::max<int64_t>(plan_.k_blocks(), 1);
    const bool asks_in_steps = g_.ahead && !g_.tile && blocks == 1 && plan_.core.asks_in_steps();
    kb_.For(blocks, [&](Value block) {
      const Value is_last = kb_.Equal(block, kb_.Int(blocks - 1));
      const Value k_begin = kb_.Mul(block, plan_.kc);
      const Value k_end = kb_.Min(kb_.Int(plan_.k), kb_.Add(k_begin, plan_.kc));
      const Value q = ColumnBlock(k_begin, k_end);
      // None before the first block.
      const Value has_sums = kb_.LaneMask(lanes, kb_.Int(0), kb_.Mul(kb_.Min(block, kb_.Int(1)), lanes));
      all_tiles([&](int64_t tile_rows, Value tile) {
        if (g_.ahead && !asks_in_steps) kb_.If(is_last, [&] { AskForAll(tile_rows, tile); });
        const Value begin = kb_.Sub(RowOf(tile_rows, tile), row_begin_);
        auto sum_at = [&](int64_t i) {
          return kb_.At(SumsOf(kb_.Add(begin, i / nv_)), i % nv_ * lanes, g_.accumulator);
        };
        std::vector<Value> sums(tile_rows * nv_, kb_.Zero(KernelBuilder::Vector(lanes, g_.accumulator)));
        for (size_t i = 0; blocks > 1 && i < sums.size(); ++i) sums[i] = kb_.MaskedLoad(sum_at(i), has_sums, sums[i]);
        sums = Tile(tile_rows, tile, q, k_begin, k_end, sums, asks_in_steps);
        for (size_t i = 0; i < sums.size(); ++i) kb_.Store(sums[i], sum_at(i));
        const Value before = kb_.Max(kb_.Sub(RowOf(kb_.Sub(tile, kb_.Int(1))), row_begin_), kb_.Int(0));
        kb_.For(Squares(before), kb_.Select(is_last, Squares(begin), Squares(before)), lanes,
                [&](Value i) { TransposeRows(i, lanes); });
      });
    });
    const Value whole = Squares(rows), last_begin = kb_.Sub(RowOf(last_tile), row_begin_);
    kb_.For(Squares(last_begin), whole, lanes, [&](Value i) { TransposeRows(i, lanes); });
    // What is left of the rows: none, or as many of each block that has any; else one element at a time.
    const int64_t last = plan_.m - (plan_.row_blocks() - 1) * plan_.mc;
    const int64_t rest = last % lanes, others = plan_.row_blocks() == 1 ? 0 : plan_.mc % lanes;
    const bool is_known = (plan_.row_blocks() - 1) * plan_.tiles_of_block() <= plan_.whole_tiles();
    if (is_known && rest == 0 && others == 0) return;
    if (is_known && rest > 1 && (others == 0 || others == rest)) {
      kb_.For(whole, rows, rest, [&](Value i) { TransposeRows(i, rest); });
      return;
    }
    kb_.For(kb_.Int(0), columns_, 1, [&](Value j) {
      kb_.For(whole, rows, 1, [&](Value i) {
        g_.epilogue(kb_, batch_, kb_.Add(kb_.Mul(panel_, plan_.nr()), j), kb_.Add(row_begin_, i),
                    kb_.Load(g_.accumulator, kb_.At(SumsOf(i), j, g_.accumulator)));
      });
    });
  }

  // Rows of whole squares among so many.
  Value Squares(Value rows) { return kb_.Mul(kb_.Div(rows, plan_.lanes), plan_.lanes); }

  // Of a row of a transposed row block.
  Value SumsOf(Value row) {
    const int64_t held = plan_.slab_elements() / plan_.nr();
    return kb_.At(scratch_, kb_.Mul(held < plan_.mc ? kb_.Rem(row, held) : row, nv_ * plan_.lanes), g_.accumulator);
  }

  // `count` of them, from the i-th on, square by square.
  void TransposeRows(Value i, int64_t count) {
    const int64_t lanes = plan_.lanes, width = nv_ * lanes;
    const Type vector = KernelBuilder::Vector(lanes, g_.accumulator);
    const Value first = kb_.Mul(panel_, plan_.nr()), row = kb_.Add(row_begin_, i);
    kb_.For(kb_.Int(0), columns_, lanes, [&](Value j) {
      const Value from = kb_.At(SumsOf(i), j, g_.accumulator), column = kb_.Add(first, j);
      std::vector<Value> square(lanes, kb_.Zero(vector));
      for (int64_t r = 0; r < count; ++r) square[r] = kb_.Load(vector, kb_.At(from, r * width, g_.accumulator));
      square = TransposeSquare(kb_, square);
      if (g_.inline_epilogue && count == lanes && plan_.n % lanes == 0) {
        for (int64_t c = 0; c < lanes; ++c) g_.epilogue(kb_, batch_, kb_.Add(column, c), row, square[c]);
        return;
      }
      const Value turned = kb_.At(scratch_, plan_.slab_elements(), g_.accumulator);
      StoreAll(square, turned);
      const int64_t step = count == lanes && plan_.n % 2 == 0 && lanes % 2 == 0 ? 2 : 1;
      kb_.For(kb_.Int(0), kb_.Min(kb_.Int(lanes), kb_.Sub(columns_, j)), step, [&](Value pair) {
        for (int64_t v = 0; v < step; ++v) {
          const Value c = kb_.Add(pair, v);
          ForParts(count, [&](int64_t done, int64_t part) {
            const Value at = kb_.At(turned, kb_.Add(kb_.Mul(c, lanes), done), g_.accumulator);
            g_.epilogue(kb_, batch_, kb_.Add(column, c), kb_.Add(row, done), kb_.Load(VectorOf(part), at));
          });
        }
      });
    });
  }

  KernelBuilder& kb_;
  const GemmKernel& g_;
  const GemmPlan& plan_;
  Value scratch_, packed_;
  Value panel_, row_block_, batch_, p_, q_;
  // Of the panel being emitted.
  int64_t nv_ = 0, readable_ = 0, q_stride_ = 0;
  Value columns_, tile_begin_, tile_end_, row_begin_;  // tile_end_: of those that are no tail
  bool packs_ = false;                                 // the tile being emitted
};

}  // namespace

void EmitGemmTasks(KernelBuilder& kb, const GemmKernel& kernel, Value begin, Value end, Value scratch) {
  kb.For(begin, end, 1, [&](Value task) {
    if (kernel.prepare) {
      const int64_t panels = kernel.plan.panels();  // of one batch element; they vary fastest
      const Value first = kb.Select(kb.Equal(task, begin), kb.Int(0), kb.Rem(task, panels));
      kb.If(kb.Equal(first, kb.Int(0)), [&] { kernel.prepare(kb, kb.Div(task, panels)); });
    }
    TaskEmitter(kb, kernel, task, scratch).Emit();
  });
}

}  // namespace inlay::native
