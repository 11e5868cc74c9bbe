// LSTM, GRU and RNN with ONNX's gate order and formulas.
//
// The products of all steps' inputs with w are one matrix product (they depend on no state), with the biases added in
// its epilogue. Then a parallel loop a step, over blocks of hidden units of all directions: a block multiplies the last
// state with its columns of all gates of r (packed next to each other, once, at load where r is constant), applies the
// gates and stores the new state, so that nothing but states goes from step to step. A GRU that resets before its
// product takes two loops a step. States are kept in the accumulator type, twice: the last step's and the new one's.
// The last block begins earlier where the units do not divide, and computes some units twice, to the same values.
//
// Of bf16, where the processor multiplies it, both products are of words (word_products.h); states are rounded for
// them.
#include <algorithm>
#include <optional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/matrix_tiles.h"
#include "core/backends/native/lowerings/word_products.h"
#include "core/backends/native/math.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/recurrent_plan.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

enum class Cell { kLstm, kGru, kRnn };

constexpr int64_t kFewestDotLanes = 8;
// Of the product of all inputs, where their number is open: what its tile is chosen for, and tiles of a task.
constexpr int64_t kNominalRows = 128, kTilesOfTask = 8;
// Rows of an open batch that are multiplied at once.
constexpr int64_t kNominalBatch = 4;

class Recurrent {
 public:
  Recurrent(FunctionEmitter& f, const Node& n, Cell cell)
      : f_(f),
        n_(n),
        cell_(cell),
        types_(f, n.in(0).dtype),
        acc_(types_.accumulator_dtype),
        steps_(n.in(0).dims[0]),
        batch_(n.in(0).dims[1]),
        inputs_(n.in(0).dims[2].value()),
        hidden_(n.attrs->Int("hidden_size")),
        gates_(cell == Cell::kLstm  ? 4
               : cell == Cell::kGru ? 3
                                    : 1),
        directions_(n.attrs->StringOr("direction", "forward") == "bidirectional" ? 2 : 1),
        reverse_(n.attrs->StringOr("direction", "forward") == "reverse"),
        reset_first_(cell == Cell::kGru && !n.attrs->BoolOr("linear_before_reset", false)),
        lanes_(f.LanesForBytes(types_.accumulator_bytes, hidden_)),
        brains_(types_.dtype == DType::kBF16 && f.cpu().brain_dots && hidden_ % 2 == 0 && lanes_ >= kFewestDotLanes),
        input_brains_(brains_ && inputs_ % 2 == 0 && inputs_ > 0) {}

  void Emit() {
    if (batch_ == Extent(0)) return;
    int64_t bytes = types_.accumulator_bytes;
    projected_ = f_.Temporary(input_rows() * (directions_ * rows() * bytes));
    h_ = f_.Temporary(state_elements() * (2 * bytes));
    if (cell_ == Cell::kLstm) c_ = f_.Temporary(state_elements() * (2 * bytes));
    if (brains_) h_words_ = f_.Temporary(state_elements() * kWordBytes);
    if (reset_first_) {
      z_ = f_.Temporary(state_elements() * bytes);
      reset_ = f_.Temporary(state_elements() * bytes);
    }
    if (steps_ != Extent(0)) Project();
    LoadStates();
    if (steps_ != Extent(0)) Recur();
    StoreStates();
  }

 private:
  int64_t rows() const { return gates_ * hidden_; }
  Extent state_elements() const { return batch_ * (directions_ * hidden_); }
  Extent input_rows() const { return steps_ * batch_; }
  Value Element(Eval& e, int arg, Indices at) { return e.At(n_.in(arg), at); }
  mlir::Type AccType(Ops& o) { return types_.Accumulator(o); }

  // w of each direction, transposed and packed for a product with all steps.
  struct Packed {
    Buffer buffer;
    GemmPlan plan;
    int64_t elements;
    bool by_tiles = false;
  };
  Packed PackInputWeights() {
    const Tensor& w = n_.in(1);
    bool constant = f_.IsConstantParam(w);
    Packed packed;
    PlanProjection(&packed);
    packed.elements = (packed.plan.packed_elements() + 15) / 16 * 16;
    int64_t bytes = directions_ * packed.elements * types_.accumulator_bytes;
    packed.buffer = constant ? f_.State(bytes) : f_.Temporary(bytes);
    f_.ParallelEach(
        directions_, static_cast<double>(inputs_ * rows()),
        [&](Kernel& kernel, Value d) {
          StridedMatrix from;
          from.element = types_.Stored(kernel.o);
          from.pointer = kernel.o.At(kernel.Pointer(w), kernel.o.Mul(d, rows() * inputs_), from.element);
          from.k_stride = 1;
          from.j_stride = inputs_;
          const Value to =
              kernel.o.At(kernel.Pointer(packed.buffer), kernel.o.Mul(d, packed.elements), AccType(kernel.o));
          if (!input_brains_) return EmitPackColumns(kernel.o, packed.plan, from, AccType(kernel.o), to);
          kernel.o.For(packed.plan.panels(), [&](Value panel) {
            EmitPackWords(kernel.o, kBrainProducts, packed.plan, from, inputs_, panel, to);
          });
        },
        constant ? Phase::kInit : Phase::kRun);
    return packed;
  }

  void PlanProjection(Packed* packed) {
    const Core& core = f_.cpu().core;
    const bool is_open = !input_rows().is_static();
    const int64_t m = is_open ? kNominalRows : input_rows().value(), k = input_brains_ ? inputs_ / 2 : inputs_;
    if (!is_open && input_brains_ && kBrainProducts.has_tiles(f_.cpu()) && k % kTileWords == 0) {
      if (const auto tiles = PlanTiles(core, ColumnSource::kPacked, 1, m, rows(), k)) {
        packed->plan = *tiles;
        packed->by_tiles = true;
        return;
      }
    }
    packed->plan = PlanGemm(core, ColumnSource::kPacked, types_.accumulator_bytes, 1, m, rows(), k, TailRows::kShared);
    if (is_open) packed->plan.nv_last = packed->plan.nv;
  }

  // projected[d][step * batch + b][gate * hidden + j] = x w^T + biases that are added outside of any gate.
  void StoreProjected(Kernel& k, Value d, Value row, Value column, Value acc) {
    Ops& o = k.o;
    int64_t lanes = Ops::Lanes(acc);
    Eval e(k, lanes);
    Index j(column, lanes == 1 ? 0 : 1);
    acc = o.AddF(acc, Element(e, 3, {d, j}));
    Value recurrent = Element(e, 3, {d, e.Add(j, rows())});
    if (cell_ == Cell::kGru && !reset_first_) {
      // The bias of the last gate goes inside its reset.
      Value index = e.AsVector(j);
      Value last = o.CompareI(Compare::kGe, index, o.ConstI(index.getType(), 2 * hidden_), true);
      recurrent = o.Select(last, o.ConstF(acc.getType(), 0), recurrent);
    }
    acc = o.AddF(acc, recurrent);
    Value at = o.Add(o.Mul(o.KernelBuilder::Add(row, o.Mul(d, input_rows())), rows()), column);
    o.StoreElements(acc_, acc, k.Pointer(projected_), at);
  }

  // The same of an open number of rows: a task is a panel and some tiles of rows, those beyond the last row being it.
  void ProjectOpenRows(const Packed& w) {
    const GemmPlan& plan = w.plan;
    const int64_t block = plan.mr * kTilesOfTask, slab = plan.mr * plan.nr();
    const Extent blocks = CeilDiv(input_rows(), block);
    const double cost = static_cast<double>(block * plan.nv * plan.k) / 2;
    EmitTasks(f_, blocks * (directions_ * plan.panels()), cost, slab * types_.accumulator_bytes,
              [&](Kernel& k, Value begin, Value end, Value scratch) {
                k.o.For(begin, end, 1, [&](Value item) {
                  Ops& o = k.o;
                  const Value panel = o.Rem(item, plan.panels()), rest = o.Div(item, plan.panels());
                  const Value d = o.Div(rest, blocks), first = o.Mul(o.Rem(rest, blocks), block);
                  const Value last = o.Add(o.Int(input_rows()), -1);
                  const Value count = o.Min(o.Int(block), o.Sub(o.Int(input_rows()), first));
                  const Value q = o.At(k.Pointer(w.buffer),
                                       o.Add(o.Mul(d, w.elements), o.Mul(panel, plan.k * plan.nr())), AccType(o));
                  o.For(o.Int(0), count, plan.mr, [&](Value at) {
                    InputTile(k, plan, o.KernelBuilder::Add(first, at), last, q, scratch);
                    StoreTile(k, plan, d, o.KernelBuilder::Add(first, at), panel, scratch);
                  });
                });
              });
  }

  // Sums of x's rows [first, first + mr) to `scratch`.
  void InputTile(Kernel& k, const GemmPlan& plan, Value first, Value last, Value q, Value scratch) {
    Ops& o = k.o;
    RegisterTile t;
    t.rows = plan.mr;
    t.vectors = plan.nv;
    t.lanes = plan.lanes;
    t.accumulator = t.q_element = AccType(o);
    t.p_element = input_brains_ ? AccType(o) : types_.Stored(o);
    for (int64_t r = 0; r < plan.mr; ++r) {
      const Value row = o.Min(o.Add(first, r), last);
      t.p_row_pointers.push_back(o.At(k.Pointer(n_.in(0)), o.Mul(row, plan.k), t.p_element));
    }
    t.q = q;
    t.q_k_stride = t.q_columns = plan.nr();
    t.few_registers = plan.core.has_few_registers();
    if (input_brains_) t.multiply_add = kBrainProducts.multiply_add(o, /*p_is_x=*/true);
    const Values zeros(plan.mr * plan.nv, o.Zero(KernelBuilder::Vector(plan.lanes, AccType(o))));
    const Values sums = EmitRegisterTile(o, t, o.Int(0), o.Int(plan.k), zeros);
    for (size_t i = 0; i < sums.size(); ++i) o.Store(sums[i], o.At(scratch, i * plan.lanes, AccType(o)));
  }

  void StoreTile(Kernel& k, const GemmPlan& plan, Value d, Value first, Value panel, Value scratch) {
    Ops& o = k.o;
    const Value count = o.Min(o.Int(plan.mr), o.Sub(o.Int(input_rows()), first));
    const Value column = o.Mul(panel, plan.nr()), columns = o.Min(o.Int(plan.nr()), o.Sub(o.Int(rows()), column));
    const Value whole = o.Mul(o.Div(columns, plan.lanes), plan.lanes);
    o.For(o.Int(0), count, 1, [&](Value r) {
      auto store = [&](Value j, mlir::Type type) {
        const Value sum = o.Load(type, o.At(scratch, o.KernelBuilder::Add(o.Mul(r, plan.nr()), j), AccType(o)));
        StoreProjected(k, d, o.KernelBuilder::Add(first, r), o.KernelBuilder::Add(column, j), sum);
      };
      o.For(o.Int(0), whole, plan.lanes, [&](Value j) { store(j, KernelBuilder::Vector(plan.lanes, AccType(o))); });
      if (rows() % plan.lanes != 0) o.For(whole, columns, 1, [&](Value j) { store(j, AccType(o)); });
    });
  }

  void Project() {
    Packed w = PackInputWeights();
    const GemmPlan& plan = w.plan;
    if (!input_rows().is_static()) return ProjectOpenRows(w);
    double cost = 2.0 * plan.m * plan.n * plan.k / (4.0 * plan.lanes) / std::max<int64_t>(plan.tasks(), 1) + 50;
    int64_t tasks = plan.tasks();
    std::optional<MatrixTiles> registers;
    if (w.by_tiles) registers.emplace(f_);
    EmitTasks(
        f_, directions_ * tasks, cost, plan.scratch_bytes(), [&](Kernel& k, Value begin, Value end, Value scratch) {
          Ops& o = k.o;
          if (registers) registers->Begin(k);
          for (int64_t d = 0; d < directions_; ++d) {
            GemmKernel gemm;
            gemm.plan = plan;
            gemm.accumulator = AccType(o);
            gemm.p.pointer = k.Pointer(n_.in(0));
            gemm.p.element = input_brains_ ? AccType(o) : types_.Stored(o);
            gemm.p.row_stride = input_brains_ ? inputs_ / 2 : inputs_;
            if (input_brains_) gemm.multiply_add = kBrainProducts.multiply_add(o, /*p_is_x=*/true);
            if (registers) {
              gemm.tile =
                  registers->Tile(k, plan, gemm.p, kBrainProducts.tile_product(/*p_is_x=*/true), gemm.multiply_add);
            }
            gemm.q.pointer = o.At(k.Pointer(w.buffer), d * w.elements, AccType(o));
            gemm.q.element = AccType(o);
            gemm.epilogue = [&](KernelBuilder&, Value, Value row, Value column, Value acc) {
              StoreProjected(k, o.Int(d), row, column, acc);
            };
            auto within = [&](Value v) { return o.Min(o.Max(o.Add(v, -d * tasks), o.Int(0)), o.Int(tasks)); };
            if (directions_ == 1)
              EmitGemmTasks(o, gemm, begin, end, scratch);
            else
              EmitGemmTasks(o, gemm, within(begin), within(end), scratch);
          }
          if (registers) registers->End(k);
        });
  }

  // Of a step with gates [first, first + gates) of r.
  struct Product {
    int64_t first, gates;
    RecurrentPlan plan;
    Buffer packed;
  };

  int64_t Depth() const { return brains_ ? hidden_ / 2 : hidden_; }
  Value FirstUnit(Ops& o, const Product& p, Value block) {
    return o.Min(o.Mul(block, p.plan.units), o.Int(hidden_ - p.plan.units));
  }

  // For products of so many rows of the batch.
  Product PackRecurrentWeights(int64_t first, int64_t gates, int64_t batch) {
    RecurrentProblem problem;
    problem.directions = directions_;
    problem.batch = batch;
    problem.hidden = hidden_;
    problem.depth = Depth();
    problem.gates = gates;
    problem.exponentials = cell_ == Cell::kLstm ? 5 : cell_ == Cell::kGru ? 3 : 1;
    problem.lanes = lanes_;
    problem.element_bytes = types_.accumulator_bytes;
    Product p{first, gates, PlanRecurrent(f_.cpu().core, problem), {}};
    const RecurrentPlan& plan = p.plan;
    const GemmPlan& gemm = plan.gemm;
    const Tensor& r = n_.in(2);
    bool constant = f_.IsConstantParam(r);
    int64_t bytes = directions_ * plan.blocks * gemm.packed_elements() * types_.accumulator_bytes;
    p.packed = constant ? f_.State(bytes) : f_.Temporary(bytes);
    f_.ParallelEach(
        directions_ * plan.blocks, static_cast<double>(gemm.packed_elements()),
        [&](Kernel& k, Value item) {
          Ops& o = k.o;
          Value unit = FirstUnit(o, p, o.Rem(item, plan.blocks));
          Value to = o.At(k.Pointer(p.packed), o.Mul(item, gemm.packed_elements()), AccType(o));
          for (int64_t vector = 0; vector < p.gates * plan.vectors; ++vector) {
            const int64_t gate = vector / plan.vectors, panel = vector / gemm.nv;
            Value row = o.Add(o.Add(o.Mul(o.Div(item, plan.blocks), rows()), unit),
                              (p.first + gate) * hidden_ + vector % plan.vectors * lanes_);
            StridedMatrix from;
            from.element = brains_ ? AccType(o) : types_.Stored(o);
            from.pointer = o.At(k.Pointer(r), o.Mul(row, Depth()), from.element);
            from.k_stride = 1;
            from.j_stride = Depth();
            const int64_t at = panel * Depth() * gemm.nr() + vector % gemm.nv * lanes_;
            const int64_t columns = (panel + 1 < gemm.panels() ? gemm.nv : gemm.nv_last) * lanes_;
            EmitPackBlock(o, from, o.Int(Depth()), 1, lanes_, lanes_, AccType(o), o.At(to, at, AccType(o)), columns);
          }
        },
        constant ? Phase::kInit : Phase::kRun);
    return p;
  }

  // The same for a batch that is known; for an open one, row by row, and for some rows at once where there are as many.
  struct Products {
    Product rows;
    std::optional<Product> many;
  };
  Products PackRecurrentWeights(int64_t first, int64_t gates) {
    if (batch_.is_static()) return {PackRecurrentWeights(first, gates, batch_.value()), std::nullopt};
    return {PackRecurrentWeights(first, gates, 1), PackRecurrentWeights(first, gates, kNominalBatch)};
  }

  // A vector of hidden units of one row of the batch at one step.
  struct Point {
    Kernel& k;
    Value d, row, unit;
    Value linear;     // of the unit in a state
    Value projected;  // pointer: of this row and step
    Value products;   // pointer: to the first gate's vector; the next gate's is `product_stride` further
    int64_t product_stride;
    int64_t lanes;
  };

  Value Projected(const Point& p, int64_t gate) {
    return p.k.o.LoadElements(acc_, p.projected, p.k.o.Add(p.unit, gate * hidden_), p.lanes);
  }
  Value ProductOf(const Point& p, int64_t index) {
    return p.k.o.LoadElements(acc_, p.products, p.k.o.Int(index * p.product_stride), p.lanes);
  }
  Index UnitOf(const Point& p) { return Index(p.unit, p.lanes == 1 ? 0 : 1); }
  Value Gate(const Point& p, int64_t gate) { return p.k.o.AddF(Projected(p, gate), ProductOf(p, gate)); }

  Value LstmState(const Point& p, Value* c) {
    Ops& o = p.k.o;
    Eval e(p.k, p.lanes);
    Index j = UnitOf(p);
    bool peepholes = n_.inputs.size() > 6;
    auto peephole = [&](Value x, int64_t which, Value state) {
      return peepholes ? o.Fma(Element(e, 6, {p.d, e.Add(j, which * hidden_)}), state, x) : x;
    };
    const Values gates = o.SideBySide({peephole(Gate(p, 0), 0, *c), peephole(Gate(p, 2), 2, *c)},
                                      [&](Value x) { return Sigmoid(o, x); });
    const Value i = gates[0], forget = gates[1];
    *c = o.Fma(forget, *c, o.MulF(i, Tanh(o, Gate(p, 3))));
    Value output = Sigmoid(o, peephole(Gate(p, 1), 1, *c));
    return o.MulF(output, Tanh(o, *c));
  }

  Value RnnState(const Point& p) {
    Ops& o = p.k.o;
    std::string activation = n_.attrs->StringOr("activation", "tanh");
    Value x = Gate(p, 0);
    if (activation == "relu") {
      Value zero = o.ConstF(x.getType(), 0);
      return o.Select(o.CompareF(Compare::kGt, zero, x), zero, x);
    }
    return activation == "sigmoid" ? Sigmoid(o, x) : Tanh(o, x);
  }

  // Of a GRU whose product is reset.
  Value GruState(const Point& p, Value h) {
    Ops& o = p.k.o;
    Eval e(p.k, p.lanes);
    Index j = UnitOf(p);
    const Values gates = o.SideBySide({Gate(p, 0), Gate(p, 1)}, [&](Value x) { return Sigmoid(o, x); });
    const Value z = gates[0], r = gates[1];
    Value inside = o.AddF(ProductOf(p, 2), Element(e, 3, {p.d, e.Add(j, rows() + 2 * hidden_)}));
    Value candidate = Tanh(o, o.Fma(r, inside, Projected(p, 2)));
    return o.Fma(z, o.SubF(h, candidate), candidate);
  }

  Value Half(Kernel& k, const Buffer& buffer, Value which) {
    return k.o.At(k.Pointer(buffer), k.o.Mul(which, state_elements()), AccType(k.o));
  }

  // What the next product reads of a state, where it is not that itself.
  void StoreRounded(Kernel& k, Value state, Value half, Value linear) {
    if (!brains_) return;
    const Value to = k.o.At(k.Pointer(h_words_), k.o.Mul(half, state_elements()), k.o.StoredType(DType::kBF16));
    k.o.StoreElements(DType::kBF16, state, to, linear);
  }

  // The initial states, in the accumulator type; and the last ones as results. A direction and row is an item.
  void ForEachState(const std::function<void(Kernel&, Value d, Value row, Value unit, Value linear)>& body) {
    f_.ParallelEach(batch_ * directions_, static_cast<double>(hidden_) / lanes_ * 4, [&](Kernel& k, Value item) {
      Value d = k.o.Div(item, batch_), row = k.o.Rem(item, batch_);
      VectorLoop(k.o, {hidden_}, lanes_, {}, [&](const VectorPoint& v, const Values&) {
        body(k, d, row, v.at[0].base, k.o.Add(k.o.Mul(item, hidden_), v.at[0].base));
        return Values{};
      });
    });
  }
  void LoadStates() {
    ForEachState([&](Kernel& k, Value d, Value row, Value unit, Value linear) {
      Eval e(k, lanes_);
      Indices at = {d, row, Index(unit, lanes_ == 1 ? 0 : 1)};
      const Value h = Element(e, 4, at);
      k.o.StoreElements(acc_, h, k.Pointer(h_), linear);
      StoreRounded(k, h, k.o.Int(0), linear);
      if (cell_ == Cell::kLstm) k.o.StoreElements(acc_, Element(e, 5, at), k.Pointer(c_), linear);
    });
  }
  void StoreStates() {
    ForEachState([&](Kernel& k, Value d, Value row, Value unit, Value linear) {
      Ops& o = k.o;
      Value last = o.Rem(o.Int(steps_), 2);
      Indices at = {d, row, Index(unit, lanes_ == 1 ? 0 : 1)};
      k.StoreElement(n_.out(1), at, o.LoadElements(acc_, Half(k, h_, last), linear, lanes_));
      if (cell_ == Cell::kLstm) {
        k.StoreElement(n_.out(2), at, o.LoadElements(acc_, Half(k, c_, last), linear, lanes_));
      }
    });
  }

  // Every other step goes through a thread's blocks backwards, beginning with those that its L2 still holds.
  Value BackAndForth(Kernel& k, Value item, int64_t items) {
    Ops& o = k.o;
    mlir::Type i64 = o.b.getI64Type();
    Value threads = k.NumThreads();
    Value share = o.DivI(o.Int(items), threads, true);
    Value even = o.CompareI(Compare::kEq, o.MulI(share, threads), o.ConstI(i64, items), true);
    share = o.Select(even, share, o.Int(1));
    Value begin = o.MulI(o.DivI(item, share, true), share);
    Value mirrored = o.Sub(o.Sub(o.Add(o.Add(begin, begin), share), o.Int(1)), item);
    return o.Select(o.Equal(o.Rem(k.Iteration(), 2), o.Int(1)), mirrored, item);
  }

  // A loop over all blocks: the product of `state` (null: the last step's h) with r, then `body` on each vector.
  using PointBody = std::function<void(const Point& point, Value step, Value now, Value next)>;
  void ForEachBlock(const Products& p, const Buffer* state, const PointBody& body) {
    if (!p.many) return ForEachBlock(p.rows, state, body);
    f_.Either(
        {{batch_, p.many->plan.gemm.m, INT64_MAX}}, [&] { ForEachBlock(*p.many, state, body); },
        [&] { ForEachBlock(p.rows, state, body); });
  }
  void ForEachBlock(const Product& p, const Buffer* state, const PointBody& body) {
    const RecurrentPlan& plan = p.plan;
    const int64_t items = directions_ * plan.blocks, width = plan.gemm.n;
    // Weights from L2 or L3 at 16 bytes a cycle, or the multiplications.
    const double reading = static_cast<double>(plan.gemm.packed_elements() * types_.accumulator_bytes) / 16;
    f_.Parallel(items, std::max(reading, plan.cycles), [&](Kernel& k, Value begin, Value end) {
      Ops& o = k.o;
      mlir::Type acc = AccType(o);
      const int64_t product_bytes = RoundUp(plan.gemm.m * width * types_.accumulator_bytes, kLineBytes);
      Value products = k.Scratch(product_bytes + plan.gemm.scratch_bytes());
      Value scratch = o.At(products, product_bytes / types_.accumulator_bytes, acc);
      Value iteration = k.Iteration();
      Value now = o.Rem(iteration, 2), next = o.Sub(o.Int(1), now);
      Value backwards = o.Sub(o.Int(steps_ - 1), iteration);
      o.For(begin, end, 1, [&](Value i) {
        Value item = BackAndForth(k, i, items);
        Value d = o.Div(item, plan.blocks);
        Value unit = FirstUnit(o, p, o.Rem(item, plan.blocks));
        Value step = directions_ == 2 ? o.Select(o.Equal(d, o.Int(1)), backwards, iteration)
                     : reverse_       ? backwards
                                      : iteration;
        Value from = state != nullptr ? k.Pointer(*state) : Half(k, h_, now);
        if (state == nullptr && brains_) {
          from = o.At(k.Pointer(h_words_), o.Mul(now, batch_ * (directions_ * hidden_ / 2)), acc);
        }
        const Extent row_blocks = CeilDiv(batch_, plan.gemm.m);
        o.For(o.Int(0), o.Int(row_blocks), 1, [&](Value block) {
          // The last block of rows begins earlier, too.
          Value first_row = o.Min(o.Mul(block, plan.gemm.m), o.Int(batch_ - plan.gemm.m));
          GemmKernel gemm;
          gemm.plan = plan.gemm;
          gemm.accumulator = gemm.p.element = gemm.q.element = acc;
          if (brains_) gemm.multiply_add = kBrainProducts.multiply_add(o, /*p_is_x=*/true);
          gemm.p.pointer = o.At(from, o.Mul(o.Add(o.Mul(d, batch_), first_row), Depth()), acc);
          gemm.p.row_stride = Depth();
          gemm.q.pointer = o.At(k.Pointer(p.packed), o.Mul(item, plan.gemm.packed_elements()), acc);
          gemm.inline_epilogue = true;
          gemm.epilogue = [&](KernelBuilder& kb, Value, Value row, Value column, Value sum) {
            kb.Store(sum, kb.At(products, kb.Add(kb.Mul(row, width), column), acc));
          };
          EmitGemmTasks(o, gemm, o.Int(0), o.Int(plan.gemm.tasks()), scratch);
          const int64_t lanes = plan.gate_lanes;
          o.For(plan.gemm.m, [&](Value r) {
            o.For(plan.units / lanes, [&](Value v) {
              Value at_row = o.Add(first_row, r);
              Value u = o.Add(unit, o.Mul(v, lanes));
              Value linear = o.Add(o.Mul(o.Add(o.Mul(d, batch_), at_row), hidden_), u);
              Value first = o.Mul(o.Add(o.Mul(o.Add(o.Mul(d, steps_), step), batch_), at_row), rows());
              Value of_row = o.At(products, o.Add(o.Mul(r, width), o.Mul(v, lanes)), acc);
              body({k, d, at_row, u, linear, o.At(k.Pointer(projected_), first, acc), of_row, plan.units, lanes}, step,
                   now, next);
            });
          });
        });
      });
    });
  }

  void StoreState(const Point& p, Value step, Value next, Value h) {
    p.k.o.StoreElements(acc_, h, Half(p.k, h_, next), p.linear);
    StoreRounded(p.k, h, next, p.linear);
    p.k.StoreElement(n_.out(0), {step, p.d, p.row, UnitOf(p)}, h);
  }

  void Recur() {
    if (reset_first_) return RecurWithReset();
    const Products r = PackRecurrentWeights(0, gates_);
    f_.Repeat(steps_, [&] {
      ForEachBlock(r, nullptr, [&](const Point& p, Value step, Value now, Value next) {
        Ops& o = p.k.o;
        if (cell_ == Cell::kLstm) {
          Value c = o.LoadElements(acc_, Half(p.k, c_, now), p.linear, p.lanes);
          Value h = LstmState(p, &c);
          o.StoreElements(acc_, c, Half(p.k, c_, next), p.linear);
          StoreState(p, step, next, h);
        } else if (cell_ == Cell::kGru) {
          StoreState(p, step, next, GruState(p, o.LoadElements(acc_, Half(p.k, h_, now), p.linear, p.lanes)));
        } else {
          StoreState(p, step, next, RnnState(p));
        }
      });
    });
  }

  // The candidate's product is of the state times the reset gate, of which all units must be known.
  void RecurWithReset() {
    const Products gates = PackRecurrentWeights(0, 2), candidate = PackRecurrentWeights(2, 1);
    f_.Repeat(steps_, [&] {
      ForEachBlock(gates, nullptr, [&](const Point& p, Value, Value now, Value) {
        Ops& o = p.k.o;
        o.StoreElements(acc_, Sigmoid(o, Gate(p, 0)), p.k.Pointer(z_), p.linear);
        Value h = o.LoadElements(acc_, Half(p.k, h_, now), p.linear, p.lanes);
        o.StoreElements(brains_ ? DType::kBF16 : acc_, o.MulF(Sigmoid(o, Gate(p, 1)), h), p.k.Pointer(reset_),
                        p.linear);
      });
      ForEachBlock(candidate, &reset_, [&](const Point& p, Value step, Value now, Value next) {
        Ops& o = p.k.o;
        Value fresh = Tanh(o, o.AddF(Projected(p, 2), ProductOf(p, 0)));
        Value z = o.LoadElements(acc_, p.k.Pointer(z_), p.linear, p.lanes);
        Value h = o.LoadElements(acc_, Half(p.k, h_, now), p.linear, p.lanes);
        StoreState(p, step, next, o.Fma(z, o.SubF(h, fresh), fresh));
      });
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  Cell cell_;
  GemmTypes types_;
  DType acc_;
  Extent steps_, batch_;
  int64_t inputs_, hidden_, gates_, directions_;
  bool reverse_, reset_first_;
  int64_t lanes_;
  bool brains_, input_brains_;  // the products of states, and of inputs, are of words
  Buffer projected_, h_, c_, z_, reset_;
  Buffer h_words_;  // h_ as bf16
};

}  // namespace

void RegisterRecurrent(LoweringTable* table) {
  for (auto [name, cell] :
       {std::pair("lstm", Cell::kLstm), std::pair("gru", Cell::kGru), std::pair("rnn", Cell::kRnn)}) {
    Lowering& lowering = (*table)[name];
    lowering.cost = 1000;
    lowering.arg_use_of = [](const Node&, int arg) { return arg <= 2 ? ArgUse::kMemory : ArgUse::kMany; };
    lowering.kernel = [cell](FunctionEmitter& f, const Node& n) {
      Recurrent(f, n, cell).Emit();
      return absl::OkStatus();
    };
  }
}

}  // namespace inlay::native
