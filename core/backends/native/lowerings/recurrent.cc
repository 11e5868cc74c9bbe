// LSTM, GRU and RNN with ONNX's gate order and formulas.
//
// The products of all steps' inputs with w are one matrix product (they depend on no state), with the biases added in
// its epilogue. Then one task a direction walks over time: a product with r (packed once, at load where it is
// constant), and one pointwise loop over the gates. States are kept in the accumulator type.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/gemm.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/math.h"
#include "core/backends/native/packing.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

enum class Cell { kLstm, kGru, kRnn };

class Recurrent {
 public:
  Recurrent(FunctionEmitter& f, const Node& n, Cell cell)
      : f_(f),
        n_(n),
        cell_(cell),
        types_(f, n.in(0).dtype),
        acc_(types_.accumulator_dtype),
        steps_(n.in(0).shape[0]),
        batch_(n.in(0).shape[1]),
        inputs_(n.in(0).shape[2]),
        hidden_(n.attrs->Int("hidden_size")),
        gates_(cell == Cell::kLstm  ? 4
               : cell == Cell::kGru ? 3
                                    : 1),
        directions_(n.attrs->StringOr("direction", "forward") == "bidirectional" ? 2 : 1),
        reverse_(n.attrs->StringOr("direction", "forward") == "reverse"),
        reset_first_(cell == Cell::kGru && !n.attrs->BoolOr("linear_before_reset", false)) {}

  void Emit() {
    if (batch_ == 0) return;
    int64_t bytes = types_.accumulator_bytes;
    projected_ = f_.Temporary(directions_ * steps_ * batch_ * gates_ * hidden_ * bytes);
    state_stride_ = (batch_ * hidden_ * bytes + 63) / 64 * 64 / bytes;
    h_ = f_.Temporary(directions_ * state_stride_ * bytes);
    c_ = f_.Temporary(directions_ * state_stride_ * bytes);
    reset_ = f_.Temporary(directions_ * state_stride_ * bytes);
    products_stride_ = (batch_ * gates_ * hidden_ * bytes + 63) / 64 * 64 / bytes;
    products_ = f_.Temporary(directions_ * products_stride_ * bytes);
    if (steps_ > 0) Project();
    Recur();
  }

 private:
  int64_t rows() const { return gates_ * hidden_; }
  Value Element(Eval& e, int arg, Indices at) { return e.At(n_.in(arg), at); }
  mlir::Type AccType(Ops& o) { return types_.Accumulator(o); }

  // Rows [first, first + count) of each direction's [gates * hidden, k] matrix, transposed and packed.
  struct Packed {
    Buffer buffer;
    GemmPlan plan;
    int64_t elements;
  };
  Packed Pack(int arg, int64_t m, int64_t k, int64_t first, int64_t count) {
    const Tensor& matrix = n_.in(arg);
    bool constant = f_.IsConstantParam(matrix);
    Packed packed;
    packed.plan = PlanGemm(VectorIsaOf(f_.cpu()), ColumnSource::kPacked, types_.accumulator_bytes, 1, m, count, k);
    packed.elements = (packed.plan.packed_elements() + 15) / 16 * 16;
    int64_t bytes = directions_ * packed.elements * types_.accumulator_bytes;
    packed.buffer = constant ? f_.State(bytes) : f_.Temporary(bytes);
    f_.ParallelEach(
        directions_, static_cast<double>(k * count),
        [&](Kernel& kernel, Value d) {
          StridedMatrix from;
          from.element = types_.Stored(kernel.o);
          from.pointer =
              kernel.o.At(kernel.Pointer(matrix), kernel.o.Add(kernel.o.Mul(d, rows() * k), first * k), from.element);
          from.k_stride = 1;
          from.j_stride = k;
          EmitPackColumns(
              kernel.o, packed.plan, from, AccType(kernel.o),
              kernel.o.At(kernel.Pointer(packed.buffer), kernel.o.Mul(d, packed.elements), AccType(kernel.o)));
        },
        constant ? Phase::kInit : Phase::kRun);
    return packed;
  }

  // projected[d][step * batch + b][gate * hidden + j] = x w^T + biases that are added outside of any gate.
  void Project() {
    Packed w = Pack(1, steps_ * batch_, inputs_, 0, rows());
    const GemmPlan& plan = w.plan;
    double cost = 2.0 * plan.m * plan.n * plan.k / (4.0 * plan.lanes) / std::max<int64_t>(plan.tasks(), 1) + 50;
    int64_t tasks = plan.tasks();
    EmitTasks(f_, directions_ * tasks, cost, plan.scratch_bytes(),
              [&](Kernel& k, Value begin, Value end, Value scratch) {
                Ops& o = k.o;
                for (int64_t d = 0; d < directions_; ++d) {
                  GemmKernel gemm;
                  gemm.plan = plan;
                  gemm.accumulator = AccType(o);
                  gemm.p.pointer = k.Pointer(n_.in(0));
                  gemm.p.element = types_.Stored(o);
                  gemm.p.row_stride = inputs_;
                  gemm.q.pointer = o.At(k.Pointer(w.buffer), d * w.elements, AccType(o));
                  gemm.q.element = AccType(o);
                  gemm.epilogue = [&](KernelBuilder&, Value, Value row, Value column, Value acc) {
                    int64_t lanes = Ops::Lanes(acc);
                    Eval e(k, lanes);
                    Index j(column, lanes == 1 ? 0 : 1);
                    acc = o.AddF(acc, Element(e, 3, {o.Int(d), j}));
                    Value recurrent = Element(e, 3, {o.Int(d), e.Add(j, rows())});
                    if (cell_ == Cell::kGru && !reset_first_) {
                      // The bias of the last gate goes inside its reset.
                      Value index = e.AsVector(j);
                      Value last = o.CompareI(Compare::kGe, index, o.ConstI(index.getType(), 2 * hidden_), true);
                      recurrent = o.Select(last, o.ConstF(acc.getType(), 0), recurrent);
                    }
                    acc = o.AddF(acc, recurrent);
                    Value at = o.Add(o.Mul(o.Add(row, d * steps_ * batch_), rows()), column);
                    o.StoreElements(acc_, acc, k.Pointer(projected_), at);
                  };
                  auto within = [&](Value v) { return o.Min(o.Max(o.Add(v, -d * tasks), o.Int(0)), o.Int(tasks)); };
                  if (directions_ == 1)
                    EmitGemmTasks(o, gemm, begin, end, scratch);
                  else
                    EmitGemmTasks(o, gemm, within(begin), within(end), scratch);
                }
              });
  }

  // products[b][first + j] = (P r^T)[b][j], P of [batch, hidden].
  void Multiply(Kernel& k, const Packed& r, Value d, Value p, int64_t first, Value products, Value scratch) {
    Ops& o = k.o;
    GemmKernel gemm;
    gemm.plan = r.plan;
    gemm.accumulator = AccType(o);
    gemm.inline_epilogue = true;
    gemm.p.pointer = p;
    gemm.p.element = AccType(o);
    gemm.p.row_stride = hidden_;
    gemm.q.pointer = o.At(k.Pointer(r.buffer), o.Mul(d, r.elements), AccType(o));
    gemm.q.element = AccType(o);
    gemm.epilogue = [&](KernelBuilder&, Value, Value row, Value column, Value acc) {
      o.StoreElements(acc_, acc, products, o.Add(o.Mul(row, rows()), o.Add(column, first)));
    };
    EmitGemmTasks(o, gemm, o.Int(0), o.Int(r.plan.tasks()), scratch);
  }

  // One row and vector of hidden units at one step.
  struct Point {
    Kernel& k;
    Value d, row, j;
    int64_t lanes;
    Value projected, products, h, c, reset;  // pointers: of this step, and of this direction
    Value linear;                            // row * hidden + j
  };

  Value Gate(const Point& p, int64_t gate, bool with_product = true) {
    Ops& o = p.k.o;
    Value at = o.Add(o.Mul(p.row, rows()), o.Add(p.j, gate * hidden_));
    Value x = o.LoadElements(acc_, p.projected, at, p.lanes);
    return with_product ? o.AddF(x, o.LoadElements(acc_, p.products, at, p.lanes)) : x;
  }
  Value Product(const Point& p, int64_t gate) {
    Value at = p.k.o.Add(p.k.o.Mul(p.row, rows()), p.k.o.Add(p.j, gate * hidden_));
    return p.k.o.LoadElements(acc_, p.products, at, p.lanes);
  }

  // The new h; for an LSTM *c becomes the new c.
  Value NewState(const Point& p, Value h, Value* c) {
    Ops& o = p.k.o;
    Eval e(p.k, p.lanes);
    Index j(p.j, p.lanes == 1 ? 0 : 1);
    if (cell_ == Cell::kRnn) {
      std::string activation = n_.attrs->StringOr("activation", "tanh");
      Value x = Gate(p, 0);
      if (activation == "relu") {
        Value zero = o.ConstF(x.getType(), 0);
        return o.Select(o.CompareF(Compare::kGt, zero, x), zero, x);
      }
      return activation == "sigmoid" ? Sigmoid(o, x) : Tanh(o, x);
    }
    if (cell_ == Cell::kLstm) {
      bool peepholes = n_.inputs.size() > 6;
      auto peephole = [&](Value x, int64_t which, Value state) {
        if (!peepholes) return x;
        return o.Fma(Element(e, 6, {p.d, e.Add(j, which * hidden_)}), state, x);
      };
      Value i = Sigmoid(o, peephole(Gate(p, 0), 0, *c));
      Value forget = Sigmoid(o, peephole(Gate(p, 2), 2, *c));
      *c = o.Fma(forget, *c, o.MulF(i, Tanh(o, Gate(p, 3))));
      Value output = Sigmoid(o, peephole(Gate(p, 1), 1, *c));
      return o.MulF(output, Tanh(o, *c));
    }
    Value z = Sigmoid(o, Gate(p, 0));
    Value candidate;
    if (reset_first_) {
      candidate = Tanh(o, Gate(p, 2));
    } else {
      Value r = Sigmoid(o, Gate(p, 1));
      Value inside = o.AddF(Product(p, 2), Element(e, 3, {p.d, e.Add(j, rows() + 2 * hidden_)}));
      candidate = Tanh(o, o.Fma(r, inside, Gate(p, 2, false)));
    }
    return o.Fma(z, o.SubF(h, candidate), candidate);
  }

  void ForEachUnit(Kernel& k, Value d, Value projected, Value products, Value h, Value c, Value reset,
                   const std::function<void(const Point&, Value fresh)>& body) {
    Ops& o = k.o;
    int64_t lanes = f_.LanesForBytes(types_.accumulator_bytes, hidden_);
    o.For(batch_, [&](Value row) {
      VectorLoop(o, {hidden_}, lanes, {}, [&](const VectorPoint& v, const Values&) {
        Value linear = o.Add(o.Mul(row, hidden_), v.at[0].base);
        body({k, d, row, v.at[0].base, lanes, projected, products, h, c, reset, linear}, v.fresh);
        return Values{};
      });
    });
  }

  void Recur() {
    std::vector<Packed> r;
    if (reset_first_) {
      r = {Pack(2, batch_, hidden_, 0, 2 * hidden_), Pack(2, batch_, hidden_, 2 * hidden_, hidden_)};
    } else {
      r = {Pack(2, batch_, hidden_, 0, rows())};
    }
    int64_t scratch_bytes = 64;
    for (const Packed& packed : r) scratch_bytes = std::max(scratch_bytes, packed.plan.scratch_bytes());
    double cost = 2.0 * steps_ * batch_ * rows() * hidden_ / (4.0 * f_.cpu().vector_bytes / types_.accumulator_bytes);
    f_.ParallelEach(directions_, cost + 100, [&](Kernel& k, Value d) {
      Ops& o = k.o;
      mlir::Type acc = AccType(o);
      Value scratch = k.Scratch(scratch_bytes);
      auto mine = [&](const Buffer& buffer, int64_t stride) { return o.At(k.Pointer(buffer), o.Mul(d, stride), acc); };
      Value h = mine(h_, state_stride_), c = mine(c_, state_stride_), reset = mine(reset_, state_stride_);
      Value products = mine(products_, products_stride_);
      // The initial states, in the accumulator type.
      ForEachUnit(k, d, nullptr, nullptr, h, c, reset, [&](const Point& p, Value) {
        Eval e(k, p.lanes);
        Index j(p.j, p.lanes == 1 ? 0 : 1);
        o.StoreElements(acc_, Element(e, 4, {d, p.row, j}), h, p.linear);
        if (cell_ == Cell::kLstm) o.StoreElements(acc_, Element(e, 5, {d, p.row, j}), c, p.linear);
      });
      o.For(steps_, [&](Value i) {
        Value backwards = o.Sub(o.Int(steps_ - 1), i);
        Value step = directions_ == 2 ? o.Select(o.Equal(d, o.Int(1)), backwards, i) : reverse_ ? backwards : i;
        Value first_row = o.Mul(o.Add(o.Mul(d, steps_), step), batch_);
        Value projected = o.At(k.Pointer(projected_), o.Mul(first_row, rows()), acc);
        Multiply(k, r[0], d, h, 0, products, scratch);
        if (reset_first_) {
          ForEachUnit(k, d, projected, products, h, c, reset, [&](const Point& p, Value) {
            Value gate = Sigmoid(o, Gate(p, 1));
            o.StoreElements(acc_, o.MulF(gate, o.LoadElements(acc_, h, p.linear, p.lanes)), reset, p.linear);
          });
          Multiply(k, r[1], d, reset, 2 * hidden_, products, scratch);
        }
        ForEachUnit(k, d, projected, products, h, c, reset, [&](const Point& p, Value fresh) {
          Value old_h = o.LoadElements(acc_, h, p.linear, p.lanes);
          Value old_c = cell_ == Cell::kLstm ? o.LoadElements(acc_, c, p.linear, p.lanes) : old_h;
          Value new_c = old_c;
          Value new_h = NewState(p, old_h, &new_c);
          // Lanes that a vector shares with the one before it are done already.
          if (fresh) {
            new_h = o.Select(fresh, new_h, old_h);
            new_c = o.Select(fresh, new_c, old_c);
          }
          o.StoreElements(acc_, new_h, h, p.linear);
          if (cell_ == Cell::kLstm) o.StoreElements(acc_, new_c, c, p.linear);
          k.StoreElement(n_.out(0), {step, d, p.row, Index(p.j, p.lanes == 1 ? 0 : 1)}, new_h);
        });
      });
      ForEachUnit(k, d, nullptr, nullptr, h, c, reset, [&](const Point& p, Value) {
        Indices at = {d, p.row, Index(p.j, p.lanes == 1 ? 0 : 1)};
        k.StoreElement(n_.out(1), at, o.LoadElements(acc_, h, p.linear, p.lanes));
        if (cell_ == Cell::kLstm) k.StoreElement(n_.out(2), at, o.LoadElements(acc_, c, p.linear, p.lanes));
      });
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  Cell cell_;
  GemmTypes types_;
  DType acc_;
  int64_t steps_, batch_, inputs_, hidden_, gates_, directions_;
  bool reverse_, reset_first_;
  Buffer projected_, h_, c_, reset_, products_;
  int64_t state_stride_ = 0, products_stride_ = 0;
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
