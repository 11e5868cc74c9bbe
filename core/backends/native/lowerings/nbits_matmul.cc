// Products with weights quantised in blocks (matmul_nbits): they stay as few bits as they are, in memory and on the way
// from it.
//
// A task is a panel of columns and a block of rows. The numbers of a column that follow each other along k share words
// of 32 bits; words of neighbouring columns lie in the lanes of a vector, so that a number is a shift and a look-up (or
// a mask and a conversion) away from the f32 that a multiply-add takes. For few rows that happens within their tile, a
// block's scale being applied to its sums; for more, once for all of them, into a block of k in L1, whose tiles are
// those of any product.
#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrices.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Value;

constexpr int64_t kNominalRows = 128;  // where their number is open
constexpr int64_t kFewRows = 8;        // up to here, numbers are widened for each tile
constexpr int64_t kSmallTile = 4;      // rows
constexpr int64_t kBlockK = 256;       // of f32 in L1
constexpr int64_t kTaskRows = 128;
constexpr int64_t kSlabBytes = 64 << 10;
constexpr int64_t kWordBits = 32;

class NbitsMatmul {
 public:
  NbitsMatmul(FunctionEmitter& f, const Node& n, Matrices a)
      : f_(f),
        n_(n),
        types_(f, n.in(0).dtype),
        a_(std::move(a)),
        bits_(n.attrs->Int("bits")),
        per_word_(kWordBits / bits_),
        k_(a_.columns.value()),
        columns_(n.in(1).shape[0]),
        blocks_(n.in(1).shape[1]),
        block_(n.in(1).shape[2] * 8 / bits_),
        vector_a_(n.in(0).rank() == 1),
        has_zeros_(n.inputs.size() > 3) {
    const Tensor& out = n.out();
    row_shape_.assign(out.dims.begin(), out.dims.end() - 1);
    a_.rows = m_ = Product(row_shape_);
    a_.batch.clear();
    a_.batch_strides.clear();
    flat_rows_ = !vector_a_ && f.MergeDims(n, {out.rank() - 1, 1}, &shapes_);
    if (!flat_rows_) shapes_.clear();
    MakePlan();
  }

  void Emit() {
    if (types_.dtype != types_.accumulator_dtype) rows_ = Widened(f_, types_, &a_);
    words_ = PackWords();
    scales_ = PackOfBlocks(n_.in(2));
    if (has_zeros_) zeros_ = PackOfBlocks(n_.in(3));
    const double vectors = static_cast<double>(k_ * plan_.nv);
    const Extent tasks = CeilDiv(m_, mc_) * plan_.panels();
    f_.Parallel(tasks, Cycles(Extent::Min(m_, mc_)) * (vectors / 2) + 2 * vectors,
                [&](Kernel& kernel, Value begin, Value end) {
                  kernel.shapes = shapes_;
                  const Value scratch = kernel.Scratch(panel_offset_ + kc_ * plan_.nr() * 4);
                  kernel.o.For(begin, end, 1, [&](Value task) { Task(*this, kernel, scratch).Emit(task); });
                });
  }

 private:
  void MakePlan() {
    const int64_t rows = m_.is_static() ? m_.value() : kNominalRows;
    plan_ = PlanGemm(f_.cpu().core, ColumnSource::kOnTheFly, 4, 1, rows, columns_, k_);
    plan_.nv_last = plan_.nv;
    // What has one scale, or the largest part of it that a block of k holds.
    part_ = block_;
    for (int64_t parts = 2; part_ > kBlockK; ++parts) {
      if (block_ % parts == 0 && block_ / parts % per_word_ == 0) part_ = block_ / parts;
    }
    kc_ = part_ * std::max<int64_t>(kBlockK / part_, 1);
    mc_ = std::max(f_.cpu().core.row_block_bytes() / std::max<int64_t>(k_ * 4, 1), kTaskRows);
    mc_ = std::min(mc_, kSlabBytes / (plan_.nr() * 4));
    mc_ = RoundUp(m_.is_static() ? std::min(mc_, m_.value()) : mc_, plan_.mr);
    panel_offset_ = RoundUp(mc_ * plan_.nr() * 4, kLineBytes);
  }

  int64_t words() const { return blocks_ * block_ / per_word_; }  // of a column

  // Of what is packed: once, or by each call.
  Buffer Room(const Tensor& tensor, int64_t bytes) {
    return f_.IsConstantParam(tensor) ? f_.State(bytes) : f_.Temporary(bytes);
  }
  Phase PhaseOf(const Tensor& tensor) const { return f_.IsConstantParam(tensor) ? Phase::kInit : Phase::kRun; }

  // [panel][word of a column][nr].
  Buffer PackWords() {
    const Tensor& b = n_.in(1);
    GemmPlan plan = plan_;
    plan.k = words();
    const Buffer packed = Room(b, plan.k * plan.packed_columns() * 4);
    f_.Parallel(
        1, static_cast<double>(plan.packed_elements()),
        [&, plan](Kernel& kernel, Value, Value) {
          const mlir::Type word = kernel.o.b.getI32Type();
          const StridedMatrix from{kernel.Pointer(b), word, Extent(1), Extent(plan.k)};
          EmitPackColumns(kernel.o, plan, from, word, kernel.Pointer(packed));
        },
        PhaseOf(b));
    return packed;
  }

  // One f32 of each block: [panel][block][nr]; of columns that are none, 0.
  Buffer PackOfBlocks(const Tensor& tensor) {
    const int64_t nr = plan_.nr(), panels = plan_.panels();
    const Buffer packed = Room(tensor, panels * blocks_ * nr * 4);
    f_.ParallelEach(
        panels * nr, 4.0 * static_cast<double>(blocks_),
        [&, nr](Kernel& kernel, Value column) {
          Ops& o = kernel.o;
          const mlir::Type f32 = o.b.getF32Type(), stored = GemmTypes(f_, tensor.dtype).Stored(o);
          const Value panel = o.Div(column, nr);
          const Value to = o.At(kernel.Pointer(packed), o.Add(o.Mul(panel, (blocks_ - 1) * nr), column), f32);
          const Value there = o.Less(column, o.Int(columns_));
          const Value from = o.At(kernel.Pointer(tensor), o.Mul(o.Min(column, o.Int(columns_ - 1)), blocks_), stored);
          o.For(blocks_, [&](Value block) {
            Value x = o.Load(stored, o.At(from, block, stored));
            x = tensor.dtype == ir::DType::kU8 ? o.IntToFloat(x, f32, false) : o.Widen(x, f32);
            o.Store(o.Select(there, x, o.ConstF(f32, 0)), o.At(to, o.Mul(block, nr), f32));
          });
        },
        PhaseOf(tensor));
    return packed;
  }

  class Task {
   public:
    Task(const NbitsMatmul& g, Kernel& kernel, Value slab)
        : g_(g), plan_(g.plan_), kernel_(kernel), o_(kernel.o), slab_(slab) {}

    void Emit(Value task) {
      f32_ = o_.b.getF32Type();
      i32_ = o_.b.getI32Type();
      vector_ = KernelBuilder::Vector(plan_.lanes, f32_);
      const int64_t nr = plan_.nr(), panels = plan_.panels();
      const Value panel = o_.Rem(task, panels);
      row_begin_ = o_.Mul(o_.Div(task, panels), g_.mc_);
      rows_ = o_.Min(o_.Int(g_.mc_), o_.Sub(o_.Int(g_.m_), row_begin_));
      first_column_ = o_.Mul(panel, nr);
      words_ = o_.At(kernel_.Pointer(g_.words_), o_.Mul(panel, g_.words() * nr), i32_);
      scales_ = o_.At(kernel_.Pointer(g_.scales_), o_.Mul(panel, g_.blocks_ * nr), f32_);
      if (g_.has_zeros_) zeros_ = o_.At(kernel_.Pointer(*g_.zeros_), o_.Mul(panel, g_.blocks_ * nr), f32_);
      const Value a = g_.rows_ ? kernel_.Pointer(*g_.rows_) : g_.a_.Pointer(kernel_, f32_);
      a_ = o_.At(a, o_.Mul(row_begin_, g_.a_.row_stride), f32_);
      auto few = [&] { FewRows(); };
      auto many = [&] { ManyRows(); };
      if (!g_.m_.is_static()) {
        o_.If(o_.Less(o_.Int(kFewRows), rows_), many, few);
      } else {
        g_.m_.value() > kFewRows ? many() : few();
      }
      Epilogue(panel);
    }

   private:
    Value Row(Value row) { return o_.At(a_, o_.Mul(row, g_.a_.row_stride), f32_); }
    Value Slab(Value row) { return o_.At(slab_, o_.Mul(row, plan_.nr()), f32_); }
    Values Zeros(int64_t count) { return Values(count, o_.Zero(vector_)); }

    // As many whole tiles of `rows` as there are from row `first` on; where they end.
    Value Tiles(int64_t rows, Value first, const std::function<void(Value row)>& body) {
      const Value count = o_.Div(o_.Sub(rows_, first), rows);
      o_.For(o_.Int(0), count, 1, [&](Value tile) { body(o_.KernelBuilder::Add(first, o_.Mul(tile, rows))); });
      return o_.KernelBuilder::Add(first, o_.Mul(count, rows));
    }

    // --- Numbers

    // Scales or zero points of a block, for vector v of the panel.
    Value OfBlock(Value values, Value block, int64_t v) {
      return o_.Load(vector_, o_.At(values, o_.Add(o_.Mul(block, plan_.nr()), v * plan_.lanes), f32_));
    }

    // Number `i` of the words in a vector, less `zero`; null: half of the range.
    Value Number(Value words, int64_t i, Value zero) {
      const int64_t range = int64_t{1} << g_.bits_, half = zero ? 0 : range / 2;
      const mlir::Type type = words.getType();
      const Value moved = i == 0 ? words : o_.ShiftRight(words, o_.ConstI(type, i * g_.bits_), false);
      if (o_.CanPermute(plan_.lanes) && range <= plan_.lanes) {
        // The index is taken modulo the lanes: above it there are other numbers.
        std::vector<float> values(plan_.lanes);
        for (int64_t j = 0; j < plan_.lanes; ++j) values[j] = static_cast<float>(j % range - half);
        const Value number = o_.Permute(o_.ConstLanes(values), moved);
        return zero ? o_.SubF(number, zero) : number;
      }
      const Value bits = i + 1 == g_.per_word_ ? moved : o_.And(moved, o_.ConstI(type, range - 1));
      const Value number = o_.IntToFloat(bits, f32_, true);
      return o_.SubF(number, zero ? zero : o_.ConstF(vector_, static_cast<double>(half)));
    }

    // --- Few rows

    void FewRows() {
      const int64_t wide = o_.cpu().core.registers >= 32 ? 2 : 1;
      Value done = Tiles(kSmallTile, o_.Int(0), [&](Value row) {
        for (int64_t v = 0; v < plan_.nv; v += wide) FewRows(kSmallTile, row, v, std::min(wide, plan_.nv - v));
      });
      Tiles(1, done, [&](Value row) { FewRows(1, row, 0, plan_.nv); });
    }

    // Rows from `row` on times `vectors` of the panel from `first` on.
    void FewRows(int64_t rows, Value row, int64_t first, int64_t vectors) {
      const int64_t whole = g_.k_ / g_.block_, rest = g_.k_ % g_.block_;
      auto add = [&](Value block, int64_t numbers, const Values& totals) {
        const Values sums = BlockSums(rows, row, first, vectors, block, numbers);
        Values next;
        for (int64_t i = 0; i < rows * vectors; ++i) {
          next.push_back(o_.Fma(sums[i], OfBlock(scales_, block, first + i % vectors), totals[i]));
        }
        return next;
      };
      Values totals = o_.For(o_.Int(0), o_.Int(whole), 1, Zeros(rows * vectors),
                             [&](Value block, const Values& in) { return add(block, g_.block_, in); });
      if (rest > 0) totals = add(o_.Int(whole), rest, totals);
      for (int64_t i = 0; i < rows * vectors; ++i) {
        const Value to = Slab(o_.Add(row, i / vectors));
        o_.Store(totals[i], o_.At(to, (first + i % vectors) * plan_.lanes, f32_));
      }
    }

    // [rows][vectors], of the first `numbers` of a block.
    Values BlockSums(int64_t rows, Value row, int64_t first, int64_t vectors, Value block, int64_t numbers) {
      const int64_t count = rows * vectors, chains = count >= 4 ? 1 : count >= 2 ? 2 : 4;
      const int64_t block_words = g_.block_ / g_.per_word_, words = numbers / g_.per_word_;
      Values zeros(vectors);
      for (int64_t v = 0; v < vectors && g_.has_zeros_; ++v) zeros[v] = OfBlock(zeros_, block, first + v);
      const Value from = o_.At(words_, o_.Mul(block, block_words * plan_.nr()), i32_);
      const Value x = o_.At(Row(row), o_.Mul(block, g_.block_), f32_);
      auto step = [&](Value word, int64_t numbers, Values sums) {
        Values in;
        for (int64_t v = 0; v < vectors; ++v) {
          const Value at = o_.Add(o_.Mul(word, plan_.nr()), (first + v) * plan_.lanes);
          in.push_back(o_.Load(KernelBuilder::Vector(plan_.lanes, i32_), o_.At(from, at, i32_)));
        }
        for (int64_t i = 0; i < numbers; ++i) {
          Values w;
          for (int64_t v = 0; v < vectors; ++v) w.push_back(Number(in[v], i, zeros[v]));
          for (int64_t r = 0; r < rows; ++r) {
            const Value at = o_.At(x, o_.Add(o_.Mul(word, g_.per_word_), r * g_.k_ + i), f32_);
            const Value element = o_.Splat(o_.Load(f32_, at), vector_);
            for (int64_t v = 0; v < vectors; ++v) {
              Value& sum = sums[(i % chains * rows + r) * vectors + v];
              sum = o_.Fma(element, w[v], sum);
            }
          }
        }
        return sums;
      };
      Values sums = o_.For(o_.Int(0), o_.Int(words), 1, Zeros(chains * count),
                           [&](Value word, const Values& in) { return step(word, g_.per_word_, in); });
      if (numbers % g_.per_word_ > 0) sums = step(o_.Int(words), numbers % g_.per_word_, sums);
      for (int64_t i = count; i < chains * count; ++i) sums[i % count] = o_.AddF(sums[i % count], sums[i]);
      sums.resize(count);
      return sums;
    }

    // --- Many rows

    void ManyRows() {
      const Value panel = o_.At(slab_, g_.panel_offset_, o_.b.getI8Type());
      o_.For(o_.Int(0), o_.Mul(rows_, plan_.nv), 1,
             [&](Value i) { o_.Store(o_.Zero(vector_), o_.At(slab_, o_.Mul(i, plan_.lanes), f32_)); });
      o_.For(o_.Int(0), o_.Int(g_.k_), g_.kc_, [&](Value k) {
        const Value steps = g_.k_ % g_.kc_ == 0 ? o_.Int(g_.kc_) : o_.Min(o_.Int(g_.kc_), o_.Sub(o_.Int(g_.k_), k));
        WidenBlock(k, steps, panel);
        Value done = o_.Int(0);
        for (int64_t rows : {plan_.mr, kSmallTile, int64_t{1}}) {
          if (rows > plan_.mr) continue;
          done = Tiles(rows, done, [&](Value row) { Tile(rows, row, k, steps, panel); });
          if (g_.m_.is_static() && g_.m_.value() % plan_.mr == 0) break;  // so is each task's part of them
        }
      });
    }

    // Rows [k, k + steps) of the panel, as f32.
    void WidenBlock(Value k, Value steps, Value to) {
      const int64_t nr = plan_.nr(), part_words = g_.part_ / g_.per_word_;
      const Value end = o_.Div(o_.Add(steps, g_.per_word_ - 1), g_.per_word_);
      const Value first_part = o_.Div(k, g_.part_);
      o_.For(o_.Int(0), o_.Div(o_.Add(end, part_words - 1), part_words), 1, [&](Value part) {
        const Value block = o_.Div(o_.KernelBuilder::Add(first_part, part), g_.block_ / g_.part_);
        Values scales, zeros(plan_.nv);
        for (int64_t v = 0; v < plan_.nv; ++v) {
          scales.push_back(OfBlock(scales_, block, v));
          if (g_.has_zeros_) zeros[v] = OfBlock(zeros_, block, v);
        }
        const Value begin = o_.Mul(part, part_words);
        o_.For(begin, o_.Min(end, o_.Add(begin, part_words)), 1, [&](Value word) {
          const Value from = o_.KernelBuilder::Add(o_.Div(k, g_.per_word_), word);
          for (int64_t v = 0; v < plan_.nv; ++v) {
            const Value at = o_.Add(o_.Mul(from, nr), v * plan_.lanes);
            const Value words = o_.Load(KernelBuilder::Vector(plan_.lanes, i32_), o_.At(words_, at, i32_));
            for (int64_t i = 0; i < g_.per_word_; ++i) {
              const Value row = o_.Add(o_.Mul(word, g_.per_word_), i);
              o_.Store(o_.MulF(Number(words, i, zeros[v]), scales[v]),
                       o_.At(to, o_.Add(o_.Mul(row, nr), v * plan_.lanes), f32_));
            }
          }
        });
      });
    }

    // Rows from `row` on: sums in the slab.
    void Tile(int64_t rows, Value row, Value k, Value steps, Value panel) {
      RegisterTile t;
      t.rows = rows;
      t.vectors = plan_.nv;
      t.lanes = plan_.lanes;
      t.accumulator = t.p_element = t.q_element = f32_;
      t.p = o_.At(Row(row), k, f32_);
      t.p_row_stride = g_.k_;
      t.q = panel;
      t.q_k_stride = t.q_columns = plan_.nr();
      Values sums;
      for (int64_t i = 0; i < rows * plan_.nv; ++i) {
        sums.push_back(o_.Load(vector_, o_.At(Slab(row), i * plan_.lanes, f32_)));
      }
      sums = EmitRegisterTile(o_, t, o_.Int(0), steps, sums);
      for (int64_t i = 0; i < rows * plan_.nv; ++i) o_.Store(sums[i], o_.At(Slab(row), i * plan_.lanes, f32_));
    }

    // --- Results

    void Epilogue(Value panel) {
      const int64_t last = g_.columns_ - (plan_.panels() - 1) * plan_.nr();
      auto store = [&](int64_t columns) {
        o_.For(o_.Int(0), rows_, 1, [&](Value r) {
          Indices at = RowIndices(o_.KernelBuilder::Add(row_begin_, r));
          auto apply = [&](Value column, int64_t lanes) {
            const Value sum = o_.Load(lanes == 1 ? f32_ : vector_, o_.At(Slab(r), column, f32_));
            Indices element = at;
            element.push_back(Index(o_.KernelBuilder::Add(first_column_, column), lanes == 1 ? 0 : 1));
            kernel_.StoreResult(g_.n_.out(), element, sum);
          };
          const int64_t whole = columns / plan_.lanes * plan_.lanes;
          o_.For(o_.Int(0), o_.Int(whole), plan_.lanes, [&](Value c) { apply(c, plan_.lanes); });
          o_.For(o_.Int(whole), o_.Int(columns), 1, [&](Value c) { apply(c, 1); });
        });
      };
      if (last == plan_.nr()) return store(last);
      o_.If(o_.Equal(panel, o_.Int(plan_.panels() - 1)), [&] { store(last); }, [&] { store(plan_.nr()); });
    }

    Indices RowIndices(Value row) {
      if (g_.flat_rows_) return {Index(row)};
      Indices at;
      if (g_.vector_a_) return at;
      for (const Index& i : Delinearise(o_, row, g_.row_shape_)) at.push_back(i);
      return at;
    }

    const NbitsMatmul& g_;
    const GemmPlan& plan_;
    Kernel& kernel_;
    Ops& o_;
    Value slab_, a_, words_, scales_, zeros_, row_begin_, rows_, first_column_;
    mlir::Type f32_, i32_, vector_;
  };

  FunctionEmitter& f_;
  const Node& n_;
  GemmTypes types_;
  Matrices a_;
  const int64_t bits_, per_word_, k_, columns_, blocks_, block_;
  const bool vector_a_, has_zeros_;
  Extent m_;
  Shape row_shape_;
  bool flat_rows_ = false;
  ShapeMap shapes_;
  GemmPlan plan_;
  int64_t part_ = 0, kc_ = 0, mc_ = 0, panel_offset_ = 0;
  std::optional<Buffer> rows_;  // of a, widened
  Buffer words_, scales_;
  std::optional<Buffer> zeros_;
};

}  // namespace

absl::Status EmitNbitsMatmul(FunctionEmitter& f, const Node& n) {
  if (n.out().IsEmpty()) return absl::OkStatus();
  auto a = Matrices::Of(n.in(0), true, false);
  if (!a.ok()) return a.status();
  NbitsMatmul(f, n, *std::move(a)).Emit();
  return absl::OkStatus();
}

}  // namespace inlay::native
