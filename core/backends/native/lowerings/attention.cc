// Attention as one kernel (composites.h): a task is a block of rows of one head. Its scores never leave the near
// caches: q's rows times k, softmax in place, times v, stored where the joined heads want it.
//
// Of bf16, where the processor multiplies it, q, k, v and softmax's result are words (word_products.h).
//
// More keys than a few rows' scores have room for on the stack are open_attention.cc's, known or not.
//
// k and v are packed into the panels that the contraction reads. A task does it for itself, once for all the row blocks
// of a head that it is given; where they are too big for its stack, a kernel before it does so for all heads. A few
// rows meet them where they lie (few_rows.h); of a few heads then threads share the keys, and the columns of v.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "core/backends/native/composites.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/attention_parts.h"
#include "core/backends/native/lowerings/few_rows.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/lowerings/seen_keys.h"
#include "core/backends/native/lowerings/word_products.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Value;

constexpr int64_t kBlockBytes = 64 << 10;      // scores of a block of rows
constexpr int64_t kMaxBlockBytes = 512 << 10;  // where few rows are that much
constexpr int64_t kMinTasks = 8;               // for threads
constexpr int64_t kFewRows = 16;               // packing k and v whole would not pay
constexpr int64_t kMaxKeysOnStack = 8192;      // of a few rows, with the rows of q that they belong to
constexpr int64_t kSharedElements = 64 << 10;  // of a head's k and v, for threads to share them

struct Plan {
  int64_t heads, rows, keys, head_size, value_size;
  GemmPlan scores, context;
  GemmPlan keys_packing;  // `scores` with as many columns as there are keys
  int64_t block_rows, padded_keys;
  int64_t row_elements;  // from one row of scores to the next
  bool pack_keys, pack_values, pack_in_task;
  bool brains;  // both products are of words
  bool tiles;   // by tile registers
  int64_t element_bytes;
  std::optional<FewRows> few_scores, few_context;

  int64_t blocks() const { return CeilDiv(rows, block_rows); }
  int64_t keys_elements() const { return pack_keys ? scores.packed_elements() : 0; }
  int64_t values_elements() const { return pack_values ? context.packed_elements() : 0; }
  int64_t packed_bytes() const { return RoundUp((keys_elements() + values_elements()) * element_bytes, kLineBytes); }

  // A task's scratch: scores, rows of q, the contractions' own, and perhaps k and v.
  int64_t q_offset() const { return RoundUp(block_rows * row_elements * element_bytes, kLineBytes); }
  int64_t gemm_offset() const { return q_offset() + RoundUp(block_rows * scores.k * element_bytes, kLineBytes); }
  int64_t packed_offset() const {
    int64_t bytes = std::max(scores.scratch_bytes(), context.scratch_bytes());
    for (const auto* few : {&few_scores, &few_context}) {
      if (*few) bytes = std::max(bytes, (*few)->scratch_bytes(element_bytes));
    }
    return gemm_offset() + RoundUp(bytes, kLineBytes);
  }
  int64_t scratch_bytes() const { return packed_offset() + (pack_in_task ? packed_bytes() : 0); }
  // Whether the threads share each head.
  bool shares_heads() const {
    return few_scores && few_context && heads < kMinTasks && keys * (head_size + value_size) >= kSharedElements;
  }
};

void BlockRows(Plan* p) {
  int64_t row_bytes = p->row_elements * p->element_bytes;
  int64_t base = std::lcm(p->scores.mr, p->context.mr);
  if (base > 32 || base * row_bytes > kMaxBlockBytes) {
    base = p->scores.mr = p->context.mr = std::min({p->scores.mr, p->context.mr, int64_t{8}});
  } else if (base > 24 && p->scores.nv == p->context.nv && p->scores.mr < p->context.mr) {
    // Scores by tiles of five rows, say, and of six behind: blocks of thirty rows are too coarse.
    base = p->scores.mr = p->context.mr;
  }
  if (!p->pack_keys) base = p->rows;  // one block
  int64_t most = std::max(kBlockBytes / row_bytes / base, int64_t{1}) * base;
  int64_t blocks = CeilDiv(p->rows, most);
  if (p->heads * blocks < kMinTasks) {
    blocks = std::min(CeilDiv(p->rows, base), CeilDiv(kMinTasks, p->heads));
  }
  p->block_rows = std::min(RoundUp(CeilDiv(p->rows, blocks), base), p->rows);
  for (GemmPlan* gemm : {&p->scores, &p->context}) {
    gemm->mc = p->block_rows;
    gemm->prefetch = false;  // near already
  }
  p->context.kc = p->context.k;  // its P, the block's scores, is near however many keys there are
}

// k and v of a head, in L2 with the scores.
int64_t MaxPackedBytes(const Core& core) { return core.l2_bytes * 3 / 8; }

// Rows of tiles that all lie in the same lines of L1 would drive each other out.
int64_t RowElements(int64_t keys, int64_t lanes, int64_t element_bytes, bool tiles) {
  const int64_t elements = RoundUp(keys, lanes);
  return tiles && elements * element_bytes % kL1WayBytes == 0 ? elements + lanes : elements;
}

bool MultipliesBrains(const CpuFeatures& cpu, const Node& n) {
  const Tensor* operands[] = {&n.in(0), &n.in(1), &n.in(2), &n.parts.at("context")->in(0)};
  return cpu.brain_dots && std::all_of(std::begin(operands), std::end(operands),
                                       [](const Tensor* t) { return t->dtype == ir::DType::kBF16; });
}

void PlanProducts(const CpuFeatures& cpu, const Matrices& v, Plan* p) {
  const Core& core = cpu.core;
  const int64_t head_words = kBrainProducts.words(p->head_size), key_words = kBrainProducts.words(p->keys);
  if (p->brains && kBrainProducts.has_tiles(cpu)) {
    const auto scores =
        PlanTiles(core, ColumnSource::kPacked, 1, p->rows, p->padded_keys, kBrainProducts.words_of_tiles(head_words));
    const auto context =
        PlanTiles(core, ColumnSource::kPacked, 1, p->rows, p->value_size, kBrainProducts.words_of_tiles(key_words));
    p->tiles = scores && context;
    if (p->tiles) {
      p->scores = *scores;
      p->context = *context;
      return;
    }
  }
  const ColumnSource keys = p->pack_keys ? ColumnSource::kPacked : ColumnSource::kOnTheFly;
  p->scores = PlanGemm(core, keys, p->element_bytes, 1, p->rows, p->pack_keys ? p->padded_keys : p->keys,
                       p->brains ? head_words : p->head_size);
  const ColumnSource values = p->pack_values ? ColumnSource::kPacked : ColumnSource::kDirect;
  p->context = PlanGemm(core, values, p->element_bytes, 1, p->rows, p->value_size, p->brains ? key_words : p->keys);
}

Plan PlanAttention(const AttentionParts& parts) {
  const CpuFeatures& cpu = parts.f.cpu();
  const Node& n = parts.n;
  const Matrices& v = parts.v;
  const int64_t element_bytes = parts.types.accumulator_bytes;
  const int64_t lanes = cpu.core.vector_bytes / element_bytes;
  Plan p{};
  p.element_bytes = element_bytes;
  p.rows = Product(parts.rows).value();
  p.keys = parts.keys.value();
  p.heads = Product(parts.batch).value();
  p.head_size = parts.head_size;
  p.value_size = v.columns.value();
  p.padded_keys = RoundUp(p.keys, lanes);
  p.pack_keys = p.rows > kFewRows;
  if (!p.pack_keys) {
    p.few_scores = PlanFewRows(cpu.core, parts.key_types, p.rows, 1, parts.k);
    p.few_context = PlanFewRows(cpu.core, parts.value_types, p.rows, 1, v);
  }
  p.pack_values = p.pack_keys || (!p.few_context && v.column_stride != Extent(1));
  p.brains = p.pack_keys && MultipliesBrains(cpu, n);
  PlanProducts(cpu, v, &p);
  p.row_elements = RowElements(p.keys, lanes, element_bytes, p.tiles);
  BlockRows(&p);
  p.keys_packing = p.scores;
  p.keys_packing.n = p.keys;
  p.pack_in_task = true;
  p.pack_in_task = p.packed_bytes() <= MaxPackedBytes(cpu.core) && p.scratch_bytes() <= Kernel::kMaxStackBytes;
  return p;
}

// What softmax's result is made before the second product, but for being rounded to words.
const Tensor* BeforeRounding(const Tensor* result, const Tensor* weights) {
  const Node* cast = result == weights ? nullptr : result->producer;
  const bool rounds = cast != nullptr && cast->op == "cast" && cast->in(0).dtype == ir::DType::kF32;
  return rounds ? &cast->in(0) : result;
}

class AttentionEmitter {
 public:
  explicit AttentionEmitter(const AttentionParts& parts)
      : parts_(parts),
        f_(parts.f),
        n_(parts.n),
        types_(parts.types),
        value_types_(parts.value_types),
        plan_(PlanAttention(parts)),
        rows_(parts.MakeScoreRows()) {
    rows_.stride = plan_.row_elements;
    if (plan_.brains) {
      rows_.brains = plan_.context.k * kBrainProducts.depth();
      rows_.result = BeforeRounding(rows_.result, rows_.weights);
    }
    rows_.lanes = LanesOf(f_, rows_);
    // Rows of v that do not count are left out where it is read row by row.
    const bool by_rows = !plan_.few_context || plan_.few_context->order == FewRows::Order::kRows;
    if (by_rows) seen_keys_ = SeenKeys::Of(rows_);
  }

  void Emit() {
    if (plan_.shares_heads()) return EmitShared();
    if (plan_.tiles) registers_.emplace(f_);
    if (!plan_.pack_in_task) {
      packed_ = f_.Temporary(plan_.heads * plan_.packed_bytes());
      f_.ParallelEach(plan_.heads, static_cast<double>(plan_.packed_bytes()) / 16, [&](Kernel& k, Value head) {
        Pack(k, head, k.o.At(k.Pointer(packed_), k.o.Mul(head, plan_.packed_bytes()), k.o.b.getI8Type()));
      });
    }
    double flops = 2.0 * plan_.block_rows * plan_.keys * (plan_.head_size + plan_.value_size);
    const double flops_a_lane = plan_.tiles ? 64 : plan_.brains ? 8 : 4;
    double cost = (flops / flops_a_lane + plan_.block_rows * plan_.keys * 30.0) / plan_.scores.lanes;
    f_.Parallel(plan_.heads * plan_.blocks(), cost, [&](Kernel& k, Value begin, Value end) {
      Value scratch = k.Scratch(plan_.scratch_bytes());
      if (registers_) registers_->Begin(k);
      k.o.For(begin, end, 1, [&](Value item) { Task(k, begin, item, scratch); });
      if (registers_) registers_->End(k);
    });
  }

 private:
  // Scores of some keys, softmax of whole heads, some columns of the result: a kernel each.
  void EmitShared() {
    const FewRows &scores = *plan_.few_scores, &context = *plan_.few_context;
    const int64_t head_elements = plan_.rows * plan_.row_elements;
    const Buffer block = f_.Temporary(plan_.heads * head_elements * plan_.element_bytes);
    const SeenOfHeads seen = seen_keys_ ? SeenOfHeads(f_, *seen_keys_, rows_, parts_.batch, plan_.rows) : SeenOfHeads();
    auto block_of = [&](Kernel& k, Value head) {
      return k.o.At(k.Pointer(block), k.o.Mul(head, head_elements), types_.Accumulator(k.o));
    };
    f_.Parallel(plan_.heads * scores.tasks(), scores.task_cycles(), [&](Kernel& k, Value begin, Value end) {
      const Value scratch = k.Scratch(plan_.scratch_bytes()), q = Bytes(k, scratch, plan_.q_offset());
      ForMatrices(k.o, scores, begin, end, [&](Value head, Value first, Value stop) {
        CopyQ(k, Delinearise(k.o, head, parts_.batch), k.o.Int(0), k.o.Int(plan_.rows), q);
        FewScores(k, head, q, first, scores.Until(k.o, first, stop, seen.Of(k, head)), scratch, block_of(k, head));
      });
    });
    f_.ParallelEach(plan_.heads, static_cast<double>(head_elements), [&](Kernel& k, Value head) {
      EmitScoreRows(k, rows_, block_of(k, head), Delinearise(k.o, head, parts_.batch), k.o.Int(0), k.o.Int(plan_.rows),
                    seen.Of(k, head));
    });
    f_.Parallel(plan_.heads * context.tasks(), context.task_cycles(), [&](Kernel& k, Value begin, Value end) {
      const Value scratch = k.Scratch(plan_.scratch_bytes());
      ForMatrices(k.o, context, begin, end, [&](Value head, Value first, Value stop) {
        FewContext(k, Delinearise(k.o, head, parts_.batch), head, first, stop, scratch, block_of(k, head),
                   seen.Of(k, head));
      });
    });
  }

  // Scores of keys [first, stop), in `block`.
  void FewScores(Kernel& k, Value head, Value q, Value first, Value stop, Value scratch, Value block) {
    const mlir::Type element = types_.Accumulator(k.o);
    EmitFewRows(k.o, *plan_.few_scores, types_, {q, element, 1, plan_.head_size}, parts_.Keys(k, head), first, stop,
                Bytes(k, scratch, plan_.gemm_offset()), [&](Value row, Value column, Value sums) {
                  const Value at = k.o.Add(k.o.Mul(row, plan_.row_elements), column);
                  k.o.Store(sums, k.o.At(block, at, element));
                });
  }

  // Columns [first, stop) of the result, of the weights in `block` of `seen` keys.
  void FewContext(Kernel& k, const Indices& at, Value head, Value first, Value stop, Value scratch, Value block,
                  Value seen) {
    EmitFewRows(
        k.o, *plan_.few_context, value_types_, {block, value_types_.Accumulator(k.o), 1, plan_.row_elements},
        parts_.Values(k, head), first, stop, Bytes(k, scratch, plan_.gemm_offset()),
        [&](Value row, Value column, Value sums) { parts_.StoreContext(k, at, row, column, sums); }, seen);
  }

  Value Bytes(Kernel& k, Value from, int64_t offset) { return k.o.At(from, offset, k.o.b.getI8Type()); }

  void Task(Kernel& k, Value begin, Value item, Value scratch) {
    Ops& o = k.o;
    Value head = o.Div(item, plan_.blocks()), block = o.Rem(item, plan_.blocks());
    Value packed = Bytes(k, scratch, plan_.packed_offset());
    if (!plan_.pack_in_task) {
      packed = o.At(k.Pointer(packed_), o.Mul(head, plan_.packed_bytes()), o.b.getI8Type());
    } else if (plan_.blocks() == 1) {
      Pack(k, head, packed);
    } else {
      o.If(o.Or(o.Equal(item, begin), o.Equal(block, o.Int(0))), [&] { Pack(k, head, packed); });
    }
    Indices at = Delinearise(o, head, parts_.batch);
    Value first = o.Mul(block, plan_.block_rows);
    Value rows = o.Min(o.Int(plan_.block_rows), o.Sub(o.Int(plan_.rows), first));
    Value q = Bytes(k, scratch, plan_.q_offset());
    CopyQ(k, at, first, rows, q);
    const Value seen = seen_keys_ ? seen_keys_->Emit(k, rows_, at, first, rows) : nullptr;
    if (plan_.few_scores) {
      const Value stop = plan_.few_scores->Until(o, o.Int(0), o.Int(plan_.keys), seen);
      FewScores(k, head, q, o.Int(0), stop, scratch, scratch);
    } else {
      Scores(k, head, block, q, packed, scratch, seen);
    }
    EmitScoreRows(k, rows_, scratch, at, first, rows, seen);
    if (plan_.few_context) {
      FewContext(k, at, head, o.Int(0), o.Int(plan_.value_size), scratch, scratch, seen);
    } else {
      Context(k, at, head, block, packed, scratch, seen);
    }
  }

  void Pack(Kernel& k, Value head, Value to) {
    if (plan_.pack_keys) Pack(k, plan_.keys_packing, parts_.Keys(k, head), plan_.head_size, types_, to);
    if (plan_.pack_values) {
      const Value values = k.o.At(to, plan_.keys_elements(), value_types_.Accumulator(k.o));
      Pack(k, plan_.context, parts_.Values(k, head), plan_.keys, value_types_, values);
    }
  }

  // `elements`: of the plan's k.
  void Pack(Kernel& k, const GemmPlan& plan, const StridedMatrix& from, int64_t elements, const GemmTypes& types,
            Value to) {
    if (!plan_.brains) return EmitPackColumns(k.o, plan, from, types.Accumulator(k.o), to);
    k.o.For(plan.panels(), [&](Value panel) { EmitPackWords(k.o, kBrainProducts, plan, from, elements, panel, to); });
  }

  // The block's rows of q, as the first product reads them.
  void CopyQ(Kernel& k, const Indices& at, Value first, Value rows, Value to) {
    const ir::DType stored = plan_.brains ? ir::DType::kBF16 : types_.accumulator_dtype;
    const int64_t stride = plan_.brains ? plan_.scores.k * kBrainProducts.depth() : plan_.head_size;
    parts_.CopyQ(k, at, first, rows, to, stored, stride);
  }

  // Runs the plan's tasks for one block of rows, and `panels` of columns; P begins with that block.
  void Multiply(Kernel& k, GemmKernel* gemm, int64_t p_stride, Value block, Value panels, Value scratch) {
    const GemmPlan& plan = gemm->plan;
    if (plan_.brains) gemm->multiply_add = kBrainProducts.multiply_add(k.o, /*p_is_x=*/true);
    gemm->p.element = gemm->accumulator;
    gemm->p.row_stride = p_stride;
    gemm->p.tile_offset = [&, block, p_stride](KernelBuilder& kb, Value tile) {
      return kb.Mul(kb.Sub(kb.Mul(tile, plan.mr), kb.Mul(block, plan_.block_rows)), p_stride);
    };
    if (registers_) {
      gemm->tile = registers_->Tile(k, plan, gemm->p, kBrainProducts.tile_product(/*p_is_x=*/true), gemm->multiply_add);
      gemm->inline_epilogue = false;
    }
    Value task = k.o.Mul(block, plan.panels());
    EmitGemmTasks(k.o, *gemm, task, k.o.KernelBuilder::Add(task, panels), Bytes(k, scratch, plan_.gemm_offset()));
  }

  // gemm's Q.
  static void SetPacked(Value packed, GemmKernel* gemm) {
    gemm->q.pointer = packed;
    gemm->q.element = gemm->accumulator;
  }
  static void SetColumns(const StridedMatrix& from, GemmKernel* gemm) {
    gemm->q.pointer = from.pointer;
    gemm->q.element = from.element;
    gemm->q.k_stride = from.k_stride.value();
    gemm->q.column_stride = from.j_stride.value();
  }

  // Of keys that are `seen`, if that is not null.
  void Scores(Kernel& k, Value head, Value block, Value q, Value packed, Value scratch, Value seen) {
    GemmKernel gemm;
    gemm.plan = plan_.scores;
    gemm.accumulator = types_.Accumulator(k.o);
    gemm.inline_epilogue = true;
    gemm.p.pointer = q;
    plan_.pack_keys ? SetPacked(packed, &gemm) : SetColumns(parts_.Keys(k, head), &gemm);
    gemm.epilogue = [&](KernelBuilder& kb, Value, Value row, Value column, Value acc) {
      Value line = kb.Mul(kb.Sub(row, kb.Mul(block, plan_.block_rows)), plan_.row_elements);
      kb.Store(acc, kb.At(scratch, kb.Add(line, column), gemm.accumulator));
    };
    Value panels = k.o.Int(plan_.scores.panels());
    if (seen != nullptr) {
      const int64_t nr = plan_.scores.nr();
      panels = k.o.Min(panels, k.o.Div(k.o.KernelBuilder::Add(seen, nr - 1), nr));
    }
    Multiply(k, &gemm, plan_.scores.k, block, panels, scratch);
  }

  void Context(Kernel& k, const Indices& at, Value head, Value block, Value packed, Value scratch, Value seen) {
    Ops& o = k.o;
    GemmKernel gemm;
    gemm.plan = plan_.context;
    gemm.accumulator = value_types_.Accumulator(o);
    gemm.inline_epilogue = InlineEpilogue(f_, n_);
    gemm.p.pointer = scratch;
    if (plan_.pack_values) {
      SetPacked(o.At(packed, plan_.keys_elements(), gemm.accumulator), &gemm);
    } else {
      SetColumns(parts_.Values(k, head), &gemm);
    }
    gemm.epilogue = [&](KernelBuilder&, Value, Value row, Value column, Value sums) {
      parts_.StoreContext(k, at, row, column, sums);
    };
    if (seen != nullptr) {
      gemm.steps = [&](KernelBuilder& kb, Value, Value begin, Value end) {
        return GemmKernel::Steps(begin, kb.Min(end, seen));
      };
    }
    Multiply(k, &gemm, plan_.row_elements, block, o.Int(plan_.context.panels()), scratch);
  }

  const AttentionParts& parts_;
  FunctionEmitter& f_;
  const Node& n_;
  const GemmTypes &types_, &value_types_;
  Plan plan_;
  std::optional<MatrixTiles> registers_;
  ScoreRows rows_;
  std::optional<SeenKeys> seen_keys_;
  Buffer packed_;
};

absl::Status EmitAttention(FunctionEmitter& f, const Node& n) {
  auto k = Matrices::Of(n.in(1), false, n.parts.at("scores")->attrs->BoolOr("transpose_b", false));
  auto v = Matrices::Of(n.in(2), false, n.parts.at("context")->attrs->BoolOr("transpose_b", false));
  if (!k.ok()) return k.status();
  if (!v.ok()) return v.status();
  const AttentionParts parts(f, n, *std::move(k), *std::move(v));
  const bool known = IsStatic(n.parts.at("scores")->out().dims) && IsStatic(n.out().dims);
  if (known && parts.keys.value() <= kMaxKeysOnStack) {
    AttentionEmitter(parts).Emit();
  } else {
    EmitOpenAttention(parts);
  }
  return absl::OkStatus();
}

// Whether it has an axis less than the scores have, or a shorter one: it is smaller than they are.
bool IsBroadcast(const Tensor& mask, const Tensor& scores) {
  if (IsStatic(mask.dims) && IsStatic(scores.dims)) return 2 * mask.NumElements() <= scores.NumElements();
  if (mask.rank() < scores.rank()) return true;
  for (int axis = 0; axis < scores.rank(); ++axis) {
    if (mask.dims[axis] == Extent(1) && scores.dims[axis] != Extent(1)) return true;
  }
  return false;
}

// q is read once a block; k and v are packed where they lie; a mask is stored where that makes it smaller than the
// scores.
ArgUse UseOf(const Node& n, int arg) {
  if (arg == 0) return ArgUse::kOnce;
  if (arg <= 2) return CanBeView(n.in(arg)) ? ArgUse::kMany : ArgUse::kMemory;
  return IsBroadcast(n.in(arg), n.parts.at("scores")->out()) ? ArgUse::kMemory : ArgUse::kOnce;
}

}  // namespace

void RegisterAttention(LoweringTable* table) {
  Lowering& attention = (*table)[kAttention];
  attention.kernel = EmitAttention;
  attention.cost = 200;
  attention.epilogue = true;
  attention.arg_use_of = UseOf;
}

}  // namespace inlay::native
