// Matmul with open dimensions: tiles and panels of sizes that are known, how many of them the run says.
//
// A task is a panel of columns and a block of rows of one batch element, as in gemm.h. Constant weights are packed by
// _init; then rows of a are read where they lie, k in one go or in blocks that L1 holds, and the last tiles of a block
// have a row less each, or the last one begins earlier instead of being smaller (its rows are computed twice).
// Otherwise the task packs b's panel and a's tiles, a block of k at a time. Integers, and bf16 where the processor
// multiplies it, are words (word_products.h), b of known size and packed. Of gather_matmul, rows are copied in the
// order of the matrices of b, and a task has those of one (row_groups.h).
#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowerings/dot_products.h"
#include "core/backends/native/lowerings/few_rows.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/lowerings/row_groups.h"
#include "core/backends/native/lowerings/word_products.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Value;

// What the tile is chosen for where an extent is open.
constexpr int64_t kNominalExtent = 128;
// The same of rows that may share the tail, where registers are few: no multiple of any tile's, as most counts are; of
// 128, tiles of four rows would win.
constexpr int64_t kUnevenRows = 121;
constexpr int64_t kFewRows = 4;  // of the second tile, for fewer rows than the first has
constexpr int64_t kSlabBytes = 64 << 10;
// Of a matrix of gather_matmul in 16 bits: for so many it stays as narrow, which is half of what comes from memory, and
// for more it is widened when it is packed.
constexpr int64_t kMostNarrowRows = 32;
constexpr int64_t kMaxWholeK = 512, kBlockK = 256;  // where both operands are packed
constexpr int64_t kPackedRows = 128;

int64_t Nominal(const Extent& e) { return e.is_static() ? std::max<int64_t>(e.value(), 1) : kNominalExtent; }

// In place of the elements of a and b.
struct OpenWords {
  WordProducts products;
  Buffer rows;                    // of a
  std::optional<GemmPlan> tiles;  // of AMX, if they are to multiply
};

class OpenMatmul {
 public:
  OpenMatmul(FunctionEmitter& f, const Node& n, Matrices a, Matrices b, std::optional<OpenWords> words = std::nullopt)
      : OpenMatmul(f, n, std::move(a), std::move(b), nullptr, std::move(words)) {}

  // Of gather_matmul.
  OpenMatmul(FunctionEmitter& f, const Node& n, Matrices b, const Tensor& which)
      : OpenMatmul(f, n, InOrder(f, n.in(0)), std::move(b), &which, std::nullopt) {}

  void Emit() {
    const bool narrow = !words_ && which_ == nullptr && types_.dtype != types_.accumulator_dtype;
    if (words_) rows_ = words_->rows;
    if (narrow && !pack_rows_ && Nominal(columns_) > plan_.nr()) rows_ = Widened(f_, types_, &a_);
    if (words_ && words_->tiles) registers_.emplace(f_);
    if (words_) {
      const bool transposed = n_.in(1).rank() > 1 && n_.attrs->BoolOr("transpose_b", false);
      const PackedWords packed = PackWords(f_, n_.in(1), words_->products, transposed, plan_);
      packed_ = packed.words;
      excess_ = packed.excess;
    } else if (packed_before_) {
      packed_ = PackConstant(f_, b_, plan_, types_);
    }
    if (which_ != nullptr) {
      groups_.emplace(f_, *which_, Product(b_.batch).value(), mc_);
      rows_ = groups_->Sorted(f_, n_.in(0), a_.row_stride.value());
    }
    Extent tasks = (groups_ ? groups_->most_blocks() : Product(batch_shape_) * row_blocks_) * panels_;
    double each = 2.0 * plan_.nr() / (4.0 * plan_.lanes);
    const Extent rows = which_ == nullptr ? Extent::Min(m_, mc_) : Extent(std::min(RowsOfGroup(), mc_));
    f_.Parallel(tasks, Cycles(rows * k_) * each + 50, [&](Kernel& kernel, Value begin, Value end) {
      kernel.shapes = shapes_;
      if (groups_) {  // as many of the tasks that there are
        const auto part = [&](Value i) {
          return kernel.o.Div(kernel.o.Mul(i, groups_->Count(kernel)), groups_->most_blocks());
        };
        begin = part(begin);
        end = part(end);
      }
      Value scratch = kernel.Scratch(q_offset_ + RoundUp(q_elements() * types_.accumulator_bytes, kLineBytes));
      if (registers_) registers_->Begin(kernel);
      kernel.o.For(begin, end, 1, [&](Value task) { Task(kernel, task, scratch).Emit(*this); });
      if (registers_) registers_->End(kernel);
    });
  }

 private:
  OpenMatmul(FunctionEmitter& f, const Node& n, Matrices a, Matrices b, const Tensor* which,
             std::optional<OpenWords> words)
      : f_(f),
        n_(n),
        types_(f, words ? words->products.type() : n.in(0).dtype),
        a_(std::move(a)),
        b_(std::move(b)),
        which_(which),
        words_(std::move(words)) {
    const Tensor& out = n.out();
    vector_a_ = n.in(0).rank() == 1;
    vector_b_ = n.in(1).rank() == 1;
    m_ = a_.rows;
    k_ = a_.columns;
    columns_ = b_.columns;
    batch_shape_.assign(out.dims.begin(), out.dims.end() - (vector_a_ ? 0 : 1) - (vector_b_ ? 0 : 1));
    row_shape_ = {m_};
    const bool is_one_b = which == nullptr && Product(b_.batch) == Extent(1);
    if (is_one_b && !vector_a_ && Product(a_.batch) == Product(batch_shape_) && a_.OneMatrix()) {
      // One b for all: the rows of all batch elements are rows of one product.
      row_shape_ = batch_shape_;
      row_shape_.push_back(m_);
      a_.rows = m_ = m_ * Product(batch_shape_);
      a_.batch.clear();
      a_.batch_strides.clear();
      batch_shape_.clear();
      flat_rows_ = !vector_b_ && f.MergeDims(n, {out.rank() - 1, 1}, &shapes_);
      if (!flat_rows_) shapes_.clear();
    }
    packed_before_ = words_ || (f.IsConstantParam(*b_.view.base) && k_ != Extent(0));
    if (which != nullptr && packed_before_ && RowsOfGroup() <= kMostNarrowRows) types_.KeepNarrow(f.cpu());
    MakePlan();
  }

  // As RowGroups copies it.
  static Matrices InOrder(FunctionEmitter& f, const Tensor& a) {
    Matrices m;
    m.rows = a.dims[0];
    m.columns = a.dims[1];
    m.column_stride = 1;
    // An odd number of lines: rows that are a power of two apart share few sets of a cache.
    const int64_t line = kLineBytes / GemmTypes(f, a.dtype).accumulator_bytes;
    m.row_stride = (CeilDiv(a.dims[1].value(), line) | 1) * line;
    return m;
  }

  // That a matrix may have: as many as the others, or a few times more.
  int64_t RowsOfGroup() const {
    const int64_t groups = Product(b_.batch).value();
    return m_.is_static() ? std::clamp(2 * m_.value() / groups, kFewRows, kUnevenRows) : kUnevenRows;
  }

  void MakePlan() {
    const Core& core = f_.cpu().core;
    pack_rows_ = !packed_before_ || !a_.row_stride.is_static() || !a_.column_stride.is_static();
    const bool is_uneven = !pack_rows_ && !m_.is_static() && core.has_few_registers();
    const int64_t rows = which_ != nullptr ? RowsOfGroup() : is_uneven ? kUnevenRows : Nominal(m_);
    plan_ = PlanGemm(core, packed_before_ ? ColumnSource::kPacked : ColumnSource::kOnTheFly, types_.accumulator_bytes,
                     1, rows, Nominal(columns_), Nominal(k_), pack_rows_ ? TailRows::kOneTile : TailRows::kShared);
    if (words_ && words_->tiles) plan_ = *words_->tiles;
    plan_.nv_last = plan_.nv;
    bool whole = !pack_rows_ || (k_.is_static() && k_.value() <= kMaxWholeK);
    kc_ = whole ? k_ : Extent(kBlockK);
    int64_t block = kPackedRows;
    if (!pack_rows_) block = std::max(core.row_block_bytes() / (Nominal(k_) * types_.accumulator_bytes), 4 * plan_.mr);
    blocks_k_ = !pack_rows_ && !words_ && plan_.k_blocks() > 1;
    if (blocks_k_) block = plan_.mc;
    block = std::min(block, kSlabBytes / (plan_.nr() * types_.accumulator_bytes));
    mc_ = RoundUp(m_.is_static() ? std::min(block, m_.value()) : block, plan_.mr);
    row_blocks_ = CeilDiv(m_, mc_);
    panels_ = CeilDiv(columns_, plan_.nr());
    full_panels_ = columns_.IsMultipleOf(plan_.nr());
    inline_epilogue_ =
        !pack_rows_ && !blocks_k_ && full_panels_ && !(words_ && words_->tiles) && InlineEpilogue(f_, n_);
    const int64_t row_bytes = columns_.is_static() ? columns_.value() * ir::ByteSize(f_.StoredTensor(n_).dtype) : 0;
    asks_for_results_ = !pack_rows_ && AsksForResults(core, Nominal(m_) * row_bytes, row_bytes, false);
    int64_t slab = inline_epilogue_ ? 0 : mc_ * plan_.nr();
    p_offset_ = RoundUp(slab * types_.accumulator_bytes, kLineBytes);
    q_offset_ = p_offset_ + RoundUp(pack_rows_ ? plan_.mr * kc_.value() * types_.accumulator_bytes : 0, kLineBytes);
  }
  bool blocked() const { return kc_ != k_ || k_ == Extent(0); }
  int64_t q_elements() const { return packed_before_ ? 0 : kc_.value() * plan_.nr(); }
  int64_t packed_matrix() const { return plan_.k * plan_.packed_columns(); }
  // Of b's batch, where each has `elements`.
  Shape PackedStrides(int64_t elements) const {
    Shape strides = RowMajorStrides(b_.batch);
    for (Extent& s : strides) s = s * elements;
    return strides;
  }

  // The code of a task.
  class Task {
   public:
    Task(Kernel& kernel, Value task, Value scratch) : kernel_(kernel), o_(kernel.o), task_(task), scratch_(scratch) {}

    void Emit(const OpenMatmul& g) {
      g_ = &g;
      acc_ = g.types_.Accumulator(o_);
      stored_ = g.types_.Stored(o_);
      vector_ = KernelBuilder::Vector(plan().lanes, acc_);
      panel_ = o_.Rem(task_, g.panels_);
      Value block = o_.Div(task_, g.panels_), batch;
      if (g.groups_) {
        const RowGroups::Block rows = g.groups_->At(kernel_, block);
        batch = rows.group;
        row_begin_ = rows.first;
        rows_ = rows.rows;
      } else {
        row_begin_ = o_.Mul(o_.Rem(block, g.row_blocks_), g.mc_);
        batch = o_.Div(block, g.row_blocks_);
        if (Product(g.batch_shape_) == Extent(1)) batch = o_.Int(0);
        batch_at_ = Delinearise(o_, batch, g.batch_shape_);
        rows_ = o_.Min(o_.Int(g.mc_), o_.Sub(o_.Int(g.m_), row_begin_));
      }
      first_column_ = o_.Mul(panel_, plan().nr());
      columns_ =
          g.full_panels_ ? o_.Int(plan().nr()) : o_.Min(o_.Int(plan().nr()), o_.Sub(o_.Int(g.columns_), first_column_));
      p_element_ = g.rows_ ? acc_ : stored_;
      q_element_ = acc_;
      const Value a = g.rows_ ? kernel_.Pointer(*g.rows_) : g.a_.Pointer(kernel_, stored_);
      p_ = Matrix(g.a_, a, g.a_.batch_strides, batch, p_element_);
      if (g.packed_before_) {
        q_element_ = g.types_.Packed(o_);
        q_ = Matrix(g.b_, kernel_.Pointer(g.packed_), g.PackedStrides(g.packed_matrix()), batch, q_element_);
        q_ = o_.At(q_, o_.Mul(panel_, g.k_ * plan().nr()), q_element_);
        if (g.words_ && g.words_->products.excess() != 0) {
          excess_ = Matrix(g.b_, kernel_.Pointer(g.excess_), g.PackedStrides(plan().packed_columns()), batch, acc_);
        }
      } else {
        q_ = Matrix(g.b_, g.b_.Pointer(kernel_, stored_), g.b_.batch_strides, batch, stored_);
        q_ = o_.At(q_, o_.Mul(first_column_, g.b_.column_stride), stored_);
      }
      if (!g.pack_rows_) {
        RowsWhereTheyLie();
      } else {
        PackedRows();
      }
      if (!g.inline_epilogue_) EpilogueOverSlab();
    }

   private:
    const GemmPlan& plan() const { return g_->plan_; }
    Value Bytes(int64_t offset) { return o_.At(scratch_, offset, o_.b.getI8Type()); }

    Value Matrix(const Matrices& m, Value pointer, const Shape& strides, Value batch, mlir::Type element) {
      BatchOffset offset = m.OffsetOf(g_->f_, g_->groups_ ? m.batch : g_->batch_shape_, strides);
      return offset ? o_.At(pointer, offset(o_, batch), element) : pointer;
    }

    std::vector<Value> Zeros(int64_t rows) { return std::vector<Value>(rows * plan().nv, o_.Zero(vector_)); }
    Value Slab(Value row) { return o_.At(scratch_, o_.Mul(row, plan().nr()), acc_); }
    void StoreTile(const std::vector<Value>& values, Value to) {
      for (size_t i = 0; i < values.size(); ++i) o_.Store(values[i], o_.At(to, i * plan().lanes, acc_));
    }

    Values LoadTile(int64_t rows, Value from) {
      Values values = Zeros(rows);
      for (size_t i = 0; i < values.size(); ++i) values[i] = o_.Load(vector_, o_.At(from, i * plan().lanes, acc_));
      return values;
    }
    void ClearSlab(Value rows) {
      o_.For(o_.Int(0), o_.Mul(rows, plan().nv), 1,
             [&](Value i) { o_.Store(o_.Zero(vector_), o_.At(scratch_, o_.Mul(i, plan().lanes), acc_)); });
    }

    RegisterTile Tile(int64_t rows, Value q) {
      RegisterTile t;
      t.rows = rows;
      t.vectors = plan().nv;
      t.lanes = plan().lanes;
      t.accumulator = acc_;
      t.q = q;
      t.q_element = q_element_;
      t.q_k_stride = t.q_columns = plan().nr();
      if (g_->words_) t.multiply_add = g_->words_->products.multiply_add(o_, /*p_is_x=*/true);
      return t;
    }

    // A row's few sums would wait for each other: several for each, of every fourth k.
    std::vector<Value> OneRow(const RegisterTile& t) {
      const int64_t k = g_->k_.value(), chains = 4, nv = plan().nv, main = k / chains * chains;
      RegisterTile part = t;
      part.prefetch = nullptr;
      auto step = [&](Value at, int64_t chain, const std::vector<Value>& in) {
        part.p = o_.At(t.p, o_.Mul(o_.Add(at, chain), t.p_k_stride), t.p_element);
        part.q = o_.At(t.q, o_.Mul(o_.Add(at, chain), t.q_k_stride), t.q_element);
        return EmitRegisterTile(o_, part, o_.Int(0), o_.Int(1), in);
      };
      Values sums = o_.For(o_.Int(0), o_.Int(main), chains, Zeros(chains), [&](Value at, const Values& in) {
        Values out;
        for (int64_t c = 0; c < chains; ++c) {
          Values next = step(at, c, Values(in.begin() + c * nv, in.begin() + (c + 1) * nv));
          out.insert(out.end(), next.begin(), next.end());
        }
        return out;
      });
      Values total(sums.begin(), sums.begin() + nv);
      for (int64_t i = nv; i < chains * nv; ++i)
        total[i % nv] = o_.AddN(g_->types_.accumulator_dtype, total[i % nv], sums[i]);
      for (int64_t i = main; i < k; ++i) total = step(o_.Int(i), 0, total);
      return total;
    }

    // Weights: tiles of as many rows as there are for, all of k at once or in blocks.
    void RowsWhereTheyLie() {
      const int64_t mr = plan().mr, few = std::min(kFewRows, mr);
      // Whole tiles; a rest of more than a small tile is one that begins earlier, a smaller rest one or two small ones.
      Value whole = o_.Div(o_.Add(rows_, mr - few - 1), mr);
      const Value by_small = o_.Less(rows_, o_.Int(std::max(mr, 2 * few + 1)));
      whole = mr == few ? o_.Div(rows_, mr) : o_.Select(by_small, o_.Int(0), whole);
      const bool may_share = mr > few && !g_->registers_, has_lower = may_share && mr - 1 > few;
      Value lower = o_.Int(0);
      if (may_share) {
        // Or as many tiles, of which the last have a row less each, if that makes it: no row is computed twice.
        const Value tiles = o_.Div(o_.Add(rows_, mr - 1), mr), missing = o_.Sub(o_.Mul(tiles, mr), rows_);
        const Value shares = o_.Less(missing, o_.Add(tiles, 1));
        whole = o_.Select(shares, o_.Sub(tiles, missing), whole);
        if (has_lower) lower = o_.Select(shares, missing, o_.Int(0));
      }
      const Value lower_begin = o_.Min(o_.Mul(whole, mr), rows_);
      const Value done = o_.KernelBuilder::Add(lower_begin, o_.Mul(lower, mr - 1));
      Value small = o_.Div(o_.Add(o_.Sub(rows_, done), few - 1), few);
      small = o_.Select(o_.Less(rows_, o_.Int(few)), o_.Int(0), small);
      if (g_->registers_ && mr > kTileRows) {  // fewer rows than a whole tile of AMX, by half ones
        const Value fits = o_.And(o_.Less(o_.Int(kTileRows - 1), rows_), o_.Less(rows_, o_.Int(mr)));
        const Value halves = o_.Div(o_.Add(rows_, kTileRows - 1), kTileRows);
        Tiles(kTileRows, o_.Int(0), o_.Int(0), o_.Select(fits, halves, o_.Int(0)), nullptr);
        small = o_.Select(fits, o_.Int(0), small);
      }
      const Value large = o_.KernelBuilder::Add(whole, lower), all = o_.KernelBuilder::Add(large, small);
      Value prefetch_step;
      if (plan().prefetch) {
        prefetch_step = ShareOfRow(o_, plan().nr() * g_->types_.packed_bytes(), all);
      }
      Value in_blocks = o_.Int(0);
      if (g_->blocks_k_) {
        // What a tile that begins earlier computes twice it can't add twice.
        in_blocks = o_.Min(whole, o_.Div(rows_, mr));
        ClearSlab(rows_);
        o_.For(o_.Int(0), o_.Int(g_->k_), plan().kc, [&](Value begin) {
          const Steps steps = {begin, o_.Min(o_.KernelBuilder::Add(begin, plan().kc), o_.Int(g_->k_))};
          Tiles(mr, o_.Int(0), o_.Int(0), in_blocks, prefetch_step, steps);
          if (has_lower) Tiles(mr - 1, lower_begin, whole, lower, prefetch_step, steps);
        });
      }
      Tiles(mr, o_.Mul(in_blocks, mr), in_blocks, o_.Sub(whole, in_blocks), prefetch_step);
      if (has_lower && !g_->blocks_k_) Tiles(mr - 1, lower_begin, whole, lower, prefetch_step);
      if (mr > 1) Tiles(few, done, large, small, prefetch_step);
      if (few > 1) Tiles(1, o_.Int(0), o_.Int(0), o_.Select(o_.Less(rows_, o_.Int(few)), rows_, o_.Int(0)), nullptr);
    }

    struct Steps {
      Value begin, end;
    };

    // `count` tiles from row `first` on, of which the last begins earlier rather than reach beyond the block. Some
    // steps of k are added to what the slab holds.
    void Tiles(int64_t rows, Value first, Value before, Value count, Value prefetch_step,
               std::optional<Steps> steps = std::nullopt) {
      Value last = o_.Sub(rows_, o_.Int(rows));
      o_.For(o_.Int(0), count, 1, [&](Value tile) {
        Value row = o_.Min(o_.KernelBuilder::Add(first, o_.Mul(tile, rows)), last);
        RegisterTile t = Tile(rows, q_);
        t.p = o_.At(p_, o_.Mul(o_.KernelBuilder::Add(row_begin_, row), g_->a_.row_stride), p_element_);
        t.p_element = p_element_;
        t.p_row_stride = g_->a_.row_stride.value();
        t.p_k_stride = g_->a_.column_stride.value();
        if (prefetch_step) {
          t.prefetch_step = prefetch_step;
          Value from = o_.At(q_, g_->k_ * plan().nr(), q_element_);
          Value asked = o_.Mul(o_.KernelBuilder::Add(before, tile), prefetch_step);
          t.prefetch = o_.At(from, o_.Mul(asked, g_->k_), o_.b.getI8Type());
        }
        if (g_->asks_for_results_) AskForResults(rows, row);
        if (g_->registers_ && rows >= kTileRows) return MatrixTile(t, row);
        t.unrolled = rows == 1 ? 1 : plan().unrolled_steps();
        if (steps) {
          return StoreTile(EmitRegisterTile(o_, t, steps->begin, steps->end, LoadTile(rows, Slab(row))), Slab(row));
        }
        Values acc = rows == 1 ? OneRow(t) : EmitRegisterTile(o_, t, o_.Int(0), o_.Int(g_->k_), Zeros(rows));
        if (!g_->inline_epilogue_) return StoreTile(acc, Slab(row));
        for (int64_t r = 0; r < rows; ++r) {
          Indices at = RowIndices(o_.Add(o_.KernelBuilder::Add(row_begin_, row), r));
          for (int64_t v = 0; v < plan().nv; ++v) {
            Store(at, o_.Add(first_column_, v * plan().lanes), acc[r * plan().nv + v]);
          }
        }
      });
    }

    // The same by AMX.
    void MatrixTile(const RegisterTile& t, Value row) {
      RowOperand p;
      p.pointer = t.p;
      p.element = t.p_element;
      p.row_stride = t.p_row_stride;
      const TileRequest request{t.rows,      t.vectors,      {},         o_.Int(0),       t.q,
                                o_.Int(0),   o_.Int(g_->k_), t.prefetch, t.prefetch_step, t.q_k_stride,
                                t.q_columns, Slab(row)};
      const char* product = g_->words_->products.tile_product(/*p_is_x=*/true);
      g_->registers_->Tile(kernel_, plan(), p, product, t.multiply_add)(o_, request, {});
    }

    void AskForResults(int64_t rows, Value row) {
      o_.For(rows, [&](Value r) {
        const Indices at = RowIndices(o_.KernelBuilder::Add(row_begin_, o_.KernelBuilder::Add(row, r)));
        // A row may begin anywhere in a line: its last column is asked for, too.
        const Value last = o_.Sub(columns_, o_.Int(1));
        for (int64_t v = 0; v <= plan().nv; ++v) {
          Indices element = at;
          element.push_back(Index(o_.KernelBuilder::Add(first_column_, o_.Min(o_.Int(v * plan().lanes), last)), 1));
          kernel_.PrefetchResult(g_->n_.out(), element, plan().lanes);
        }
      });
    }

    // A block of k at a time: the panel of b and each tile of a packed; sums in the slab.
    void PackedRows() {
      const int64_t mr = plan().mr;
      bool blocked = g_->blocked();
      Value tiles = o_.Div(o_.Add(rows_, mr - 1), mr);
      if (blocked) ClearSlab(o_.Mul(tiles, mr));
      o_.For(o_.Int(0), o_.Int(g_->k_), std::max<int64_t>(g_->kc_.value(), 1), [&](Value k_begin) {
        Value steps = blocked ? o_.Min(o_.Int(g_->kc_), o_.Sub(o_.Int(g_->k_), k_begin)) : o_.Int(g_->k_);
        Value q = ColumnBlock(k_begin, steps);
        o_.For(o_.Int(0), tiles, 1, [&](Value tile) {
          Value row = o_.Mul(tile, mr), slab = Slab(row);
          RegisterTile t = Tile(mr, q);
          t.p = RowTile(row, k_begin, steps);
          t.p_element = acc_;
          t.p_row_stride = g_->kc_.value();
          StoreTile(EmitRegisterTile(o_, t, o_.Int(0), steps, blocked ? LoadTile(mr, slab) : Zeros(mr)), slab);
        });
      });
    }

    Value ColumnBlock(Value k_begin, Value steps) {
      if (g_->packed_before_) return o_.At(q_, o_.Mul(k_begin, plan().nr()), q_element_);
      Value to = Bytes(g_->q_offset_);
      StridedMatrix from{o_.At(q_, o_.Mul(k_begin, g_->b_.row_stride), stored_), stored_, g_->b_.row_stride,
                         g_->b_.column_stride};
      const GemmPlan& p = plan();
      auto full = [&] { EmitPackBlock(o_, from, steps, p.nv, p.nr(), p.lanes, acc_, to); };
      if (g_->full_panels_) {
        full();
      } else {
        o_.If(o_.Equal(columns_, o_.Int(p.nr())), full,
              [&] { EmitPackBlock(o_, from, steps, p.nv, columns_, p.lanes, acc_, to); });
      }
      return to;
    }

    // Rows [row, row + mr) as [mr][kc]; those beyond the last are the last.
    Value RowTile(Value row, Value k_begin, Value steps) {
      Value to = Bytes(g_->p_offset_);
      const Extent& stride = g_->a_.column_stride;
      o_.For(plan().mr, [&](Value r) {
        Value which = o_.Min(o_.KernelBuilder::Add(row, r), o_.Sub(rows_, o_.Int(1)));
        Value offset = o_.Mul(o_.KernelBuilder::Add(row_begin_, which), g_->a_.row_stride);
        Value from = o_.At(p_, o_.KernelBuilder::Add(offset, o_.Mul(k_begin, stride)), p_element_);
        Value line = o_.At(to, o_.Mul(r, g_->kc_), acc_);
        Value done = o_.Int(0);
        if (stride == Extent(1)) {
          mlir::Type vector = KernelBuilder::Vector(plan().lanes, p_element_);
          done = o_.Mul(o_.Div(steps, plan().lanes), plan().lanes);
          o_.For(o_.Int(0), done, plan().lanes, [&](Value k) {
            o_.Store(o_.Widen(o_.Load(vector, o_.At(from, k, p_element_)), acc_), o_.At(line, k, acc_));
          });
        }
        o_.For(done, steps, 1, [&](Value k) {
          Value element = o_.Load(p_element_, o_.At(from, o_.Mul(k, stride), p_element_));
          o_.Store(o_.Widen(element, acc_), o_.At(line, k, acc_));
        });
      });
      return to;
    }

    Indices RowIndices(Value row) {
      if (g_->groups_) return {Index(g_->groups_->Row(kernel_, row))};
      if (g_->flat_rows_) return {Index(row)};
      Indices at = batch_at_;
      if (!g_->vector_a_) {
        for (const Index& i : Delinearise(o_, row, g_->row_shape_)) at.push_back(i);
      }
      return at;
    }

    void Store(const Indices& row, Value column, Value value) {
      if (excess_) value = o_.SubI(value, o_.Load(value.getType(), o_.At(excess_, column, acc_)));
      Indices at = row;
      if (!g_->vector_b_) at.push_back(Index(column, Ops::Lanes(value) == 1 ? 0 : 1));
      kernel_.StoreResult(g_->n_.out(), at, value);
    }

    void EpilogueOverSlab() {
      Value vectors = o_.Div(columns_, plan().lanes);
      o_.For(o_.Int(0), rows_, 1, [&](Value r) {
        Value from = Slab(r);
        Indices at = RowIndices(o_.KernelBuilder::Add(row_begin_, r));
        auto apply = [&](Value column, mlir::Type type) {
          Store(at, o_.KernelBuilder::Add(first_column_, column), o_.Load(type, o_.At(from, column, acc_)));
        };
        o_.For(o_.Int(0), vectors, 1, [&](Value v) { apply(o_.Mul(v, plan().lanes), vector_); });
        if (g_->columns_.IsMultipleOf(plan().lanes)) return;
        o_.For(o_.Mul(vectors, plan().lanes), columns_, 1, [&](Value c) { apply(c, acc_); });
      });
    }

    Kernel& kernel_;
    Ops& o_;
    Value task_, scratch_;
    const OpenMatmul* g_ = nullptr;
    mlir::Type acc_, stored_, p_element_, q_element_, vector_;
    Value panel_, row_begin_, rows_, first_column_, columns_, p_, q_, excess_;
    Indices batch_at_;
  };

  FunctionEmitter& f_;
  const Node& n_;
  GemmTypes types_;
  Matrices a_, b_;
  bool vector_a_, vector_b_, packed_before_, flat_rows_ = false, pack_rows_, blocks_k_, full_panels_, inline_epilogue_;
  bool asks_for_results_;
  Extent m_, k_, columns_, kc_, row_blocks_, panels_;
  Shape batch_shape_, row_shape_;
  ShapeMap shapes_;
  GemmPlan plan_;
  int64_t mc_, p_offset_, q_offset_;
  const Tensor* which_;
  std::optional<RowGroups> groups_;  // as `which_` says
  std::optional<OpenWords> words_;
  std::optional<MatrixTiles> registers_;
  std::optional<Buffer> rows_;  // of a, as accumulators have them: words, widened, or in order
  Buffer packed_, excess_;
};

// Whether it was emitted.
bool EmitOpenDotProducts(FunctionEmitter& f, const Node& n, Matrices a, Matrices b) {
  if (!a.columns.is_static() || !b.columns.is_static() || a.columns == Extent(0)) return false;
  ProductShape shape(n.out(), a.rows, n.in(0).rank() == 1, n.in(1).rank() == 1);
  if (!shape.MergeBatches(&a, &b)) return false;
  const GemmTypes types(f, n.in(0).dtype);
  const GemmPlan other = PlanGemm(f.cpu().core, ColumnSource::kPacked, types.accumulator_bytes, 1, Nominal(a.rows),
                                  b.columns.value(), a.columns.value(), TailRows::kOneTile);
  const auto dots = PlanDotProducts(other, types, a, b, f.IsConstantParam(*b.view.base));
  if (dots.has_value()) EmitDotProducts(f, n, *dots, types, a, b, shape);
  return dots.has_value();
}

// The same.
bool EmitOpenFewRows(FunctionEmitter& f, const Node& n, Matrices a, Matrices b) {
  if (f.IsConstantParam(*b.view.base)) return false;
  const GemmTypes types(f, n.in(0).dtype);
  ProductShape shape(n.out(), a.rows, n.in(0).rank() == 1, n.in(1).rank() == 1);
  shape.MergeBatches(&a, &b);
  const auto few = PlanFewRows(f.cpu().core, types, a.rows, a.column_stride, b);
  if (few) EmitFewRowsMatmul(f, n, *few, types, a, b, shape);
  return few.has_value();
}

}  // namespace

absl::Status EmitOpenMatmul(FunctionEmitter& f, const Node& n) {
  if (n.out().IsEmpty()) return absl::OkStatus();
  auto a = Matrices::Of(n.in(0), true, n.in(0).rank() > 1 && n.attrs->BoolOr("transpose_a", false));
  auto b = Matrices::Of(n.in(1), false, n.in(1).rank() > 1 && n.attrs->BoolOr("transpose_b", false));
  if (!a.ok()) return a.status();
  if (!b.ok()) return b.status();
  if (EmitOpenDotProducts(f, n, *a, *b) || EmitOpenFewRows(f, n, *a, *b)) return absl::OkStatus();
  OpenMatmul(f, n, *std::move(a), *std::move(b)).Emit();
  return absl::OkStatus();
}

absl::Status EmitGatherMatmul(FunctionEmitter& f, const Node& n) {
  if (n.out().IsEmpty()) return absl::OkStatus();
  auto b = Matrices::Of(n.in(1), false, n.attrs->BoolOr("transpose_b", false));
  if (!b.ok()) return b.status();
  OpenMatmul(f, n, *std::move(b), n.in(2)).Emit();
  return absl::OkStatus();
}

absl::Status EmitOpenWordMatmul(FunctionEmitter& f, const Node& n, const WordProducts& products) {
  const Tensor &a = n.in(0), &b = n.in(1);
  if (n.out().IsEmpty()) return absl::OkStatus();
  const bool transposed = b.rank() > 1 && n.attrs->BoolOr("transpose_b", false);
  Matrices columns;
  columns.rows = Extent(products.words(a.dims.back().value()));
  columns.columns = b.rank() == 1 ? Extent(1) : b.dims[b.rank() - (transposed ? 2 : 1)];
  if (b.rank() > 2) columns.batch.assign(b.dims.begin(), b.dims.end() - 2);
  const int64_t k = columns.rows.value();
  std::optional<GemmPlan> tiles;
  if (products.has_tiles(f.cpu())) {
    tiles = PlanTiles(f.cpu().core, ColumnSource::kPacked, 1, kNominalExtent, columns.columns.value(),
                      products.words_of_tiles(k));
  }
  WordMatrices rows = WordsOf(f, a, products, true, /*transposed=*/false, tiles ? RoundUp(k, kTileWords) : k);
  if (tiles) rows.as_matrices.columns = columns.rows = Extent(tiles->k);
  OpenMatmul(f, n, rows.as_matrices, columns, OpenWords{products, rows.words, tiles}).Emit();
  return absl::OkStatus();
}

}  // namespace inlay::native
