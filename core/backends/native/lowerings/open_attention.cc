// Attention with open dimensions: as attention.cc has it, of as many heads, rows and keys as a run says; only what a
// head's columns are is known.
//
// k and v are packed for all heads in front. A task then is a block of a head's rows, cut further where the keys are so
// many that their scores would leave the near caches. Tiles of both products have as many rows; those beyond the last
// row are computed of zeros, and not stored. A run of a few rows, as a decoder's steps are, packs nothing: they meet
// keys and values where they lie (few_rows.h).
#include <algorithm>
#include <optional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/attention_parts.h"
#include "core/backends/native/lowerings/few_rows.h"
#include "core/backends/native/lowerings/seen_keys.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/rounding.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace inlay::native {
namespace {

using mlir::Value;

constexpr int64_t kNominalExtent = 128;  // what the tile is chosen for where an extent is open
constexpr int64_t kUnevenRows = 121;     // of rows, where registers are few (open_matmul.cc)
constexpr int64_t kMaxTileRows = 8;      // each of which has an address of its own
constexpr int64_t kTilesOfTask = 8, kTilesOfFewHeads = 2;
constexpr int64_t kFewHeads = 8;            // less than that: for threads, they are taken apart
constexpr int64_t kBlockK = 256;            // keys of a panel of v that L1 holds
constexpr int64_t kNearBytes = 64 << 10;    // scores of a block of rows
constexpr int64_t kStackBytes = 256 << 10;  // of a tile's scores
// Rows that meet keys where they lie, kMaxTileRows at a time (12 heads of 64, 1000 keys, ms packed and so: Zen 3, 12
// rows 0.95 and 0.82, 16 1.17 and 0.84, 24 1.50 and 1.25, 32 1.97 and 1.66; Emerald Rapids by AVX-512, 12 rows level,
// 16 1.18 and 0.95, 24 1.38 and 1.02, 32 1.49 and 1.73).
constexpr int64_t kMostFewRows = 24, kMostFewRowsOfFewRegisters = 32;
constexpr int64_t kWorkers = 64;  // that share the tasks; each has a tile's scores in the workspace too

class OpenAttention {
 public:
  explicit OpenAttention(const AttentionParts& parts)
      : parts_(parts),
        f_(parts.f),
        bytes_(parts.types.accumulator_bytes),
        lanes_(f_.cpu().core.vector_bytes / bytes_),
        value_size_(parts.v.columns.value()),
        scores_(parts.MakeScoreRows()) {
    const Core& core = f_.cpu().core;
    const int64_t rows = core.has_few_registers() ? kUnevenRows : kNominalExtent;
    context_ = PlanGemm(core, ColumnSource::kPacked, bytes_, 1, rows, value_size_, kNominalExtent);
    mr_ = std::min(context_.mr, kMaxTileRows);
    GemmPlan scores = context_;
    scores.n = kNominalExtent;
    scores.k = scores.kc = parts.head_size;
    steps_of_scores_ = scores.unrolled_steps();
    steps_of_context_ = context_.unrolled_steps();
    all_rows_ = Product(parts.rows);
    heads_ = Product(parts.batch);
    few_heads_ = heads_.is_static() && heads_.value() < kFewHeads;
    tiles_of_task_ = few_heads_ ? kTilesOfFewHeads : kTilesOfTask;
    task_rows_ = std::max(tiles_of_task_ * mr_, kMaxTileRows);
    blocks_ = CeilDiv(all_rows_, task_rows_);
    key_panels_ = CeilDiv(parts.keys, nr());
    scores_.stride = key_panels_ * Extent(nr()) + lanes_;
    scores_.lanes = LanesOf(f_, scores_);
    seen_keys_ = SeenKeys::Of(scores_);
  }

  void Emit() {
    // So large that every worker's keys have room, whatever the stack's.
    far_ = f_.Temporary(TileElements() * Extent(kWorkers * bytes_));
    int64_t done = -1;
    const std::vector<int64_t> all = RowsOfFew();
    const int64_t most_few = f_.cpu().core.has_few_registers() ? kMostFewRowsOfFewRegisters : kMostFewRows;
    for (int64_t rows : all) {
      const auto keys = PlanFewRows(f_.cpu().core, parts_.key_types, rows, 1, parts_.k);
      const auto values = PlanFewRows(f_.cpu().core, parts_.value_types, rows, 1, parts_.v);
      if (!keys || !values) break;
      if (all_rows_.is_static()) return EmitFew(*keys, *values);
      const int64_t most = rows == all.back() && !few_heads_ ? most_few : rows;
      f_.Either({{all_rows_, done + 1, most}}, [&] { EmitFew(*keys, *values); }, [] {});
      done = most;
    }
    if (done < 0) return EmitMany();
    f_.Either({{all_rows_, done + 1, INT64_MAX}}, [&] { EmitMany(); }, [] {});
  }

 private:
  // Of a run that has few: the rows that one query makes, then some more.
  std::vector<int64_t> RowsOfFew() const {
    if (all_rows_.is_static()) return {all_rows_.value()};
    const Extent of_query = Product(parts_.rows, 0, static_cast<int>(parts_.rows.size()) - 1);
    if (!of_query.is_static() || of_query.value() > kMaxTileRows) return {};
    std::vector<int64_t> rows = {of_query.value()};
    if (rows[0] == 1) rows.push_back(kMaxTileRows / 2);
    if (rows[0] < kMaxTileRows) rows.push_back(kMaxTileRows);
    return rows;
  }

  void EmitFew(const FewRows& keys, const FewRows& values) {
    if (few_heads_) return EmitFewOfFewHeads(keys, values);
    const double cycles = static_cast<double>(parts_.head_size + value_size_) / kWorkers;
    f_.Parallel(kWorkers, Cycles(heads_ * parts_.keys) * cycles, [&](Kernel& k, Value begin, Value end) {
      Task task(*this, k);
      k.o.For(begin, end, 1, [&](Value worker) { task.EmitShareOfFew(worker, keys, values); });
    });
  }

  // Scores of some keys, softmax of whole heads, some columns of the result: a kernel each.
  void EmitFewOfFewHeads(const FewRows& keys, const FewRows& values) {
    const Buffer blocks = f_.Temporary(heads_ * TileElements() * bytes_);
    const SeenOfHeads seen =
        SeesByRows(values) ? SeenOfHeads(f_, *seen_keys_, scores_, parts_.batch, all_rows_) : SeenOfHeads();
    f_.Parallel(heads_ * keys.tasks(), keys.task_cycles(), [&](Kernel& k, Value begin, Value end) {
      Task task(*this, k);
      ForMatrices(k.o, keys, begin, end, [&](Value head, Value first, Value stop) {
        task.EmitFewScores(head, seen.Of(k, head), blocks, keys, first, stop);
      });
    });
    f_.ParallelEach(heads_, Cycles(parts_.keys) * static_cast<double>(keys.rows),
                    [&](Kernel& k, Value head) { Task(*this, k).EmitFewSoftmax(head, seen.Of(k, head), blocks); });
    f_.Parallel(heads_ * values.tasks(), values.task_cycles(), [&](Kernel& k, Value begin, Value end) {
      Task task(*this, k);
      ForMatrices(k.o, values, begin, end, [&](Value head, Value first, Value stop) {
        task.EmitFewContext(head, seen.Of(k, head), blocks, values, first, stop);
      });
    });
  }

  // Whether rows of v behind what is seen are left out by a product of few rows.
  bool SeesByRows(const FewRows& values) const { return seen_keys_ && values.order == FewRows::Order::kRows; }

  void EmitMany() {
    packed_ = f_.Temporary(heads_ * HeadElements() * bytes_);
    f_.ParallelEach(heads_, Cycles(parts_.keys) * (static_cast<double>(parts_.head_size + value_size_) / 8),
                    [&](Kernel& k, Value head) { Pack(k, head); });
    const double flops = 2.0 * static_cast<double>(parts_.head_size + value_size_);
    const Extent each = heads_ * all_rows_ * parts_.keys;
    f_.Parallel(kWorkers, Cycles(each) * ((flops / 4 + 30) / lanes_ / kWorkers),
                [&](Kernel& k, Value begin, Value end) {
                  Task task(*this, k);
                  k.o.For(begin, end, 1, [&](Value worker) { task.EmitShare(worker); });
                });
  }

  int64_t nr() const { return context_.nr(); }
  // Of scores: the stride of a row is less than that.
  Extent TileElements() const { return (parts_.keys + (nr() + lanes_)) * Extent(kMaxTileRows); }
  int64_t padded_values() const { return context_.packed_columns(); }
  // Of a head: k, then v, packed.
  Extent KeysElements() const { return (parts_.keys + (nr() - 1)) * Extent(parts_.head_size); }
  Extent HeadElements() const { return KeysElements() + parts_.keys * Extent(padded_values()); }
  mlir::Type Element(Ops& o) const { return parts_.types.Accumulator(o); }
  Value PackedHead(Kernel& k, Value head) const {
    return k.o.At(k.Pointer(packed_), k.o.Mul(head, HeadElements()), Element(k.o));
  }

  // A panel of v: its columns that are, and where it lies packed, from the first one's elements on.
  struct ValuePanel {
    Value first_column, elements;
    int64_t vectors, columns;
  };
  // Full panels share code; the last may be narrower.
  void ForValuePanels(Ops& o, const std::function<void(const ValuePanel&)>& body) const {
    const int64_t full = value_size_ / nr();
    auto panel_at = [&](Value panel, int64_t vectors, int64_t columns) {
      const Value first = o.Mul(panel, nr());
      body({first, o.Mul(first, parts_.keys), vectors, columns});
    };
    o.For(o.Int(0), o.Int(full), 1, [&](Value panel) { panel_at(panel, context_.nv, nr()); });
    const int64_t rest = value_size_ - full * nr();
    if (rest > 0) panel_at(o.Int(full), CeilDiv(rest, lanes_), rest);
  }

  void Pack(Kernel& k, Value head) const {
    Ops& o = k.o;
    const Value to = PackedHead(k, head);
    const StridedMatrix keys = parts_.Keys(k, head), values = parts_.Values(k, head);
    auto from_column = [&](const StridedMatrix& m, Value column) {
      return StridedMatrix{o.At(m.pointer, o.Mul(column, m.j_stride), m.element), m.element, m.k_stride, m.j_stride};
    };
    const int64_t nv = context_.nv;
    const Value head_size = o.Int(parts_.head_size);
    o.For(o.Int(0), o.Int(key_panels_), 1, [&](Value panel) {
      const Value first = o.Mul(panel, nr()), columns = o.Min(o.Int(nr()), o.Sub(o.Int(parts_.keys), first));
      const StridedMatrix from = from_column(keys, first);
      const Value at = o.At(to, o.Mul(first, parts_.head_size), Element(o));
      o.If(
          o.Equal(columns, o.Int(nr())), [&] { EmitPackBlock(o, from, head_size, nv, nr(), lanes_, Element(o), at); },
          [&] { EmitPackBlock(o, from, head_size, nv, columns, lanes_, Element(o), at); });
    });
    const Value packed_values = o.At(to, KeysElements(), Element(o));
    ForValuePanels(o, [&](const ValuePanel& panel) {
      EmitPackBlock(o, from_column(values, panel.first_column), o.Int(parts_.keys), panel.vectors, panel.columns,
                    lanes_, Element(o), o.At(packed_values, panel.elements, Element(o)));
    });
  }

  // The code of a worker's share.
  class Task {
   public:
    Task(const OpenAttention& g, Kernel& k)
        : g_(g),
          parts_(g.parts_),
          k_(k),
          o_(k.o),
          element_(g.Element(o_)),
          vector_(KernelBuilder::Vector(g.lanes_, element_)),
          stride_(o_.Int(g.scores_.stride)) {
      near_ = k.Scratch(kStackBytes);
      q_ = k.Scratch(g.task_rows_ * parts_.head_size * g.bytes_);
      sums_ = k.Scratch(g.task_rows_ * g.padded_values() * g.bytes_);
    }

    void EmitShare(Value worker) {
      TakePlace(worker);
      const Value tiles = o_.Max(Quotient(o_.Int(kNearBytes), TileBytes()), o_.Int(1));
      rows_at_once_ = o_.Mul(o_.Min(tiles, o_.Int(g_.tiles_of_task_)), g_.mr_);
      ForShare(worker, g_.heads_ * g_.blocks_, [&](Value task) {
        TakeHead(o_.Div(task, g_.blocks_));
        keys_ = g_.PackedHead(k_, head_);
        values_ = o_.At(keys_, g_.KeysElements(), element_);
        const Value first = o_.Mul(o_.Rem(task, g_.blocks_), g_.task_rows_);
        const Value rows = o_.Min(o_.Int(g_.task_rows_), o_.Sub(o_.Int(g_.all_rows_), first));
        const Value turns = Quotient(o_.KernelBuilder::Add(rows, o_.Sub(rows_at_once_, o_.Int(1))), rows_at_once_);
        o_.For(o_.Int(0), turns, 1, [&](Value turn) {
          const Value done = o_.Mul(turn, rows_at_once_);
          Rows(o_.KernelBuilder::Add(first, done), o_.Min(rows_at_once_, o_.Sub(rows, done)));
        });
      });
    }

    // All rows of heads, as many at a time as the plans have.
    void EmitShareOfFew(Value worker, const FewRows& keys, const FewRows& values) {
      TakePlace(worker);
      const Value rows = o_.Int(g_.all_rows_);
      ForShare(worker, g_.heads_, [&](Value head) {
        TakeHead(head);
        o_.For(o_.Int(0), rows, keys.rows, [&](Value first) {
          const Value here = o_.Min(o_.Int(keys.rows), o_.Sub(rows, first));
          seen_ = g_.SeesByRows(values) ? g_.seen_keys_->Emit(k_, g_.scores_, at_, first, here) : nullptr;
          FewScores(keys, first, here, o_.Int(0), o_.Int(parts_.keys));
          Softmax(first, here);
          FewContext(values, first, here, o_.Int(0), o_.Int(g_.value_size_));
        });
      });
    }

    // Of all rows, which are no more than the plan's, in the head's block of `blocks`. `seen`: how many keys they see;
    // null: all.
    void EmitFewScores(Value head, Value seen, const Buffer& blocks, const FewRows& plan, Value first, Value stop) {
      TakeBlock(head, seen, blocks);
      FewScores(plan, o_.Int(0), o_.Int(g_.all_rows_), first, stop);
    }
    void EmitFewSoftmax(Value head, Value seen, const Buffer& blocks) {
      TakeBlock(head, seen, blocks);
      Softmax(o_.Int(0), o_.Int(g_.all_rows_));
    }
    void EmitFewContext(Value head, Value seen, const Buffer& blocks, const FewRows& plan, Value first, Value stop) {
      TakeBlock(head, seen, blocks);
      FewContext(plan, o_.Int(0), o_.Int(g_.all_rows_), first, stop);
    }

   private:
    Value Quotient(Value a, Value b) { return o_.b.createOrFold<mlir::arith::DivUIOp>(o_.loc, a, b); }

    Value TileBytes() { return o_.Mul(stride_, kMaxTileRows * g_.bytes_); }
    // Where this worker's scores lie.
    void TakePlace(Value worker) {
      const Value is_near = o_.Less(TileBytes(), o_.Int(kStackBytes + 1));
      block_ = o_.Select(is_near, near_, o_.At(k_.Pointer(g_.far_), o_.Mul(worker, g_.TileElements()), element_));
    }
    void TakeHead(Value head) {
      head_ = head;
      at_ = Delinearise(o_, head, parts_.batch);
    }
    void TakeBlock(Value head, Value seen, const Buffer& blocks) {
      TakeHead(head);
      seen_ = seen;
      block_ = o_.At(k_.Pointer(blocks), o_.Mul(head, g_.TileElements()), element_);
    }
    void ForShare(Value worker, const Extent& items, const std::function<void(Value item)>& body) {
      const Value all = o_.Int(items);
      const Value end = o_.Div(o_.Mul(o_.Add(worker, 1), all), kWorkers);
      o_.For(o_.Div(o_.Mul(worker, all), kWorkers), end, 1, body);
    }

    // Zeros from `rows` on, up to `end`.
    void CopyQ(Value first, Value rows, Value end) {
      parts_.CopyQ(k_, at_, first, rows, q_, parts_.types.accumulator_dtype, parts_.head_size);
      o_.For(rows, end, 1, [&](Value r) {
        o_.ZeroBytes(o_.At(q_, o_.Mul(r, parts_.head_size), element_), parts_.head_size * g_.bytes_);
      });
    }

    // Of rows [first, first + rows), with the keys [begin, end).
    void FewScores(const FewRows& plan, Value first, Value rows, Value begin, Value end) {
      CopyQ(first, rows, o_.Int(plan.rows));
      end = plan.Until(o_, begin, end, seen_);
      const StridedMatrix q{q_, element_, 1, parts_.head_size};
      EmitFewRows(o_, plan, parts_.types, q, parts_.Keys(k_, head_), begin, end,
                  k_.Scratch(plan.scratch_bytes(g_.bytes_)), [&](Value row, Value column, Value sums) {
                    const Value at = o_.KernelBuilder::Add(o_.Mul(row, stride_), column);
                    o_.Store(sums, o_.At(block_, at, element_));
                  });
    }

    // Columns [begin, end) of the same rows' results.
    void FewContext(const FewRows& plan, Value first, Value rows, Value begin, Value end) {
      const StridedMatrix weights{block_, element_, 1, g_.scores_.stride};
      EmitFewRows(
          o_, plan, parts_.value_types, weights, parts_.Values(k_, head_), begin, end,
          k_.Scratch(plan.scratch_bytes(g_.bytes_)),
          [&](Value row, Value column, Value sums) {
            const Value at = o_.KernelBuilder::Add(first, row);
            o_.If(o_.Less(row, rows), [&] { parts_.StoreContext(k_, at_, at, column, sums); });
          },
          seen_);
    }

    void Softmax(Value first, Value rows) {
      auto emit = [&](int64_t lanes) {
        ScoreRows s = g_.scores_;
        s.lanes = lanes;
        EmitScoreRows(k_, s, block_, at_, first, rows, seen_);
      };
      const int64_t lanes = g_.scores_.lanes;
      if (lanes == 1) return emit(1);
      o_.If(o_.Less(o_.Int(parts_.keys), o_.Int(lanes)), [&] { emit(1); }, [&] { emit(lanes); });
    }

    void Rows(Value first, Value rows) {
      const Value tiles = o_.Div(o_.Add(rows, g_.mr_ - 1), g_.mr_);
      CopyQ(first, rows, o_.Mul(tiles, g_.mr_));
      seen_ = g_.seen_keys_ ? g_.seen_keys_->Emit(k_, g_.scores_, at_, first, rows) : nullptr;
      Scores(tiles);
      Softmax(first, rows);
      o_.For(o_.Int(0), tiles, 1, [&](Value tile) {
        const int64_t elements = g_.mr_ * g_.padded_values();
        o_.ZeroBytes(o_.At(sums_, o_.Mul(tile, elements), element_), elements * g_.bytes_);
      });
      g_.ForValuePanels(o_, [&](const ValuePanel& panel) { Context(panel, tiles); });
      o_.For(o_.Int(0), rows, 1, [&](Value r) { StoreRow(o_.KernelBuilder::Add(first, r), r); });
    }

    RegisterTile Tile(int64_t vectors, Value q) {
      RegisterTile t;
      t.rows = g_.mr_;
      t.vectors = vectors;
      t.lanes = g_.lanes_;
      t.accumulator = t.p_element = t.q_element = element_;
      t.q = q;
      t.q_k_stride = t.q_columns = vectors * g_.lanes_;
      t.few_registers = g_.f_.cpu().core.has_few_registers();
      return t;
    }

    // Of a tile's rows in the block of scores.
    Value ScoresOf(Value tile, int64_t r) {
      return o_.At(block_, o_.Mul(o_.Add(o_.Mul(tile, g_.mr_), r), stride_), element_);
    }

    Value SeenKeysOrAll() { return seen_ != nullptr ? seen_ : o_.Int(parts_.keys); }

    void Scores(Value tiles) {
      const int64_t nv = g_.context_.nv, head_size = parts_.head_size;
      const Value panels = o_.Div(o_.KernelBuilder::Add(SeenKeysOrAll(), g_.nr() - 1), g_.nr());
      o_.For(o_.Int(0), panels, 1, [&](Value panel) {
        const Value first = o_.Mul(panel, g_.nr());
        o_.For(o_.Int(0), tiles, 1, [&](Value tile) {
          RegisterTile t = Tile(nv, o_.At(keys_, o_.Mul(first, head_size), element_));
          t.p = o_.At(q_, o_.Mul(tile, g_.mr_ * head_size), element_);
          t.p_row_stride = head_size;
          t.unrolled = g_.steps_of_scores_;
          const std::vector<Value> zeros(g_.mr_ * nv, o_.Zero(vector_));
          const std::vector<Value> sums = EmitRegisterTile(o_, t, o_.Int(0), o_.Int(head_size), zeros);
          for (int64_t r = 0; r < g_.mr_; ++r) {
            const Value line = o_.At(ScoresOf(tile, r), first, element_);
            for (int64_t v = 0; v < nv; ++v) o_.Store(sums[r * nv + v], o_.At(line, v * g_.lanes_, element_));
          }
        });
      });
    }

    void Context(const ValuePanel& panel, Value tiles) {
      const int64_t nv = panel.vectors, width = nv * g_.lanes_;
      const Value q = o_.At(values_, panel.elements, element_);
      const Value keys = SeenKeysOrAll();
      o_.For(o_.Int(0), o_.Div(o_.KernelBuilder::Add(keys, kBlockK - 1), kBlockK), 1, [&](Value block) {
        const Value begin = o_.Mul(block, kBlockK);
        const Value steps = o_.Min(o_.Int(kBlockK), o_.Sub(keys, begin));
        o_.For(o_.Int(0), tiles, 1, [&](Value tile) {
          RegisterTile t = Tile(nv, o_.At(q, o_.Mul(begin, width), element_));
          std::vector<Value> lines, sums;
          for (int64_t r = 0; r < g_.mr_; ++r) {
            t.p_row_pointers.push_back(o_.At(ScoresOf(tile, r), begin, element_));
            const Value row = o_.Add(o_.Mul(tile, g_.mr_), r);
            const Value at = o_.KernelBuilder::Add(o_.Mul(row, g_.padded_values()), panel.first_column);
            lines.push_back(o_.At(sums_, at, element_));
            for (int64_t v = 0; v < nv; ++v) {
              sums.push_back(o_.Load(vector_, o_.At(lines.back(), v * g_.lanes_, element_)));
            }
          }
          const Value whole = o_.Mul(o_.Div(steps, g_.steps_of_context_), g_.steps_of_context_);
          t.unrolled = g_.steps_of_context_;
          sums = EmitRegisterTile(o_, t, o_.Int(0), whole, sums);
          t.unrolled = 1;
          if (g_.steps_of_context_ > 1) sums = EmitRegisterTile(o_, t, whole, steps, sums);
          for (int64_t i = 0; i < g_.mr_ * nv; ++i) {
            o_.Store(sums[i], o_.At(lines[i / nv], i % nv * g_.lanes_, element_));
          }
        });
      });
    }

    void StoreRow(Value row, Value r) {
      const Value line = o_.At(sums_, o_.Mul(r, g_.padded_values()), element_);
      auto store = [&](Value column, mlir::Type type) {
        parts_.StoreContext(k_, at_, row, column, o_.Load(type, o_.At(line, column, element_)));
      };
      const int64_t whole = g_.value_size_ / g_.lanes_ * g_.lanes_;
      o_.For(o_.Int(0), o_.Int(whole), g_.lanes_, [&](Value column) { store(column, vector_); });
      o_.For(o_.Int(whole), o_.Int(g_.value_size_), 1, [&](Value column) { store(column, element_); });
    }

    const OpenAttention& g_;
    const AttentionParts& parts_;
    Kernel& k_;
    Ops& o_;
    mlir::Type element_, vector_;
    Value stride_, near_, q_, sums_;
    Value block_, rows_at_once_;  // of a worker: where its scores lie, and of how many rows
    Value head_;
    Value seen_;  // keys that the rows see; null: all
    Indices at_;
    Value keys_, values_;  // of the head, packed
  };

  const AttentionParts& parts_;
  FunctionEmitter& f_;
  int64_t bytes_, lanes_, value_size_;
  ScoreRows scores_;
  std::optional<SeenKeys> seen_keys_;
  GemmPlan context_;  // its tile, and the panels of v; those of k are as wide
  int64_t mr_, tiles_of_task_, task_rows_, steps_of_scores_, steps_of_context_;
  bool few_heads_;
  Extent all_rows_, blocks_, heads_, key_panels_;
  Buffer packed_, far_;
};

}  // namespace

void EmitOpenAttention(const AttentionParts& parts) { OpenAttention(parts).Emit(); }

}  // namespace inlay::native
