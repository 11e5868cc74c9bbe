// Softmax, log_softmax.
#include <numeric>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/math.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

// Three loops over the axis, nothing kept in between: along another axis than the last, with vectors along the last
// dimension; along the last where rows are shorter than a vector, or too long for the stack, with scalars.
void SoftmaxInPasses(FunctionEmitter& f, const Node& n, bool logarithm, int64_t axis) {
  const Tensor& x = n.in(0);
  DType acc = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  bool columns = axis + 1 < x.rank();
  Shape outer(x.dims.begin(), columns ? x.dims.end() - 1 : x.dims.end());
  outer.erase(outer.begin() + axis);
  Extent extent = x.dims[axis], inner = columns ? x.dims.back() : Extent(1);
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  auto emit = [&](int64_t lanes) {
    f.ParallelEach(Product(outer), Cycles(extent * inner) / lanes * (3 * cost + 50), [&](Kernel& k, Value item) {
      Ops& o = k.o;
      mlir::Type vector = o.ComputeType(acc, lanes);
      Indices row = Delinearise(o, item, outer);
      VectorLoop(o, {inner}, lanes, {}, [&](const VectorPoint& p, const Values&) {
        auto indices = [&](Value i) {
          Indices at = row;
          at.insert(at.begin() + axis, Index(i));
          if (columns) at.push_back(p.at[0]);
          return at;
        };
        auto element = [&](Value i) {
          Eval e(k, lanes);
          return e.At(x, indices(i));
        };
        Value zero = o.Int(0), end = o.Int(extent);
        Value maximum = o.For(zero, end, 1, {o.LowestN(acc, vector)},
                              [&](Value i, const Values& best) { return Values{o.MaxN(acc, best[0], element(i))}; })[0];
        Value sum = o.For(zero, end, 1, {o.ConstF(vector, 0)}, [&](Value i, const Values& sums) {
          return Values{o.AddF(sums[0], ExpOfNonPositive(o, o.SubF(element(i), maximum)))};
        })[0];
        Value factor = logarithm ? o.AddF(maximum, Log(o, sum)) : o.DivF(o.ConstF(vector, 1), sum);
        o.For(zero, end, 1, [&](Value i) {
          Value v = element(i);
          v = logarithm ? o.SubF(v, factor) : o.MulF(ExpOfNonPositive(o, o.SubF(v, maximum)), factor);
          k.StoreResult(n.out(), indices(i), v);
        });
        return Values{};
      });
    });
  };
  if (!columns) return emit(1);
  f.WithLanes(inner, std::min(f.LanesFor(tensors, inner), f.LanesForBytes(ir::ByteSize(acc), inner)), emit);
}

// Along the last axis: one pass that finds the maximum and evaluates what feeds it into a row of scratch (where that is
// not memory already), one that takes exponentials and sums them, one that stores. The row stays in L1 or L2.
void SoftmaxRows(FunctionEmitter& f, const Node& n, bool logarithm) {
  const Tensor& x = n.in(0);
  DType acc = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  ShapeMap shapes;
  std::vector<int> groups = {x.rank() - 1, 1};
  Shape outer(x.dims.begin(), x.dims.end() - 1);
  if (x.rank() > 2) {
    if (f.MergeDimsOf(x, groups, &shapes) && f.MergeDims(n, groups, &shapes)) {
      outer = {Product(outer)};
    } else {
      shapes.clear();
    }
  }
  Extent extent = x.dims.back();
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  int64_t bytes = ir::ByteSize(acc);
  int64_t lanes = std::min(f.LanesFor(tensors, extent), f.LanesForBytes(bytes, extent));
  Extent padded = RoundUp(extent, lanes);
  int64_t room = (extent.is_static() ? padded.value() : Kernel::kMaxOpenRow + lanes) * bytes;
  bool on_stack = room <= Kernel::kMaxStackBytes;
  bool in_memory = !x.inlined && x.dtype == acc;
  Buffer rows;
  if (!on_stack) rows = f.Temporary(Product(outer) * padded * bytes);
  Cycles cycles = Cycles(extent) / lanes * (cost + 25);
  auto emit = [&] {
    f.Parallel(Product(outer), cycles, [&](Kernel& k, Value begin, Value end) {
      Ops& o = k.o;
      k.shapes = shapes;
      Value scratch = on_stack ? k.Scratch(room) : k.Pointer(rows);
      mlir::Type element = o.ComputeType(acc);
      mlir::Type vector = o.ComputeType(acc, lanes);
      auto larger = [&](Value a, Value b) { return LargerOf(o, a, b); };
      auto sum_of = [&](Value a, Value b) { return o.AddF(a, b); };
      const Extent count = extent / lanes;
      o.For(begin, end, 1, [&](Value item) {
        Indices row = Delinearise(o, item, outer);
        Value line = on_stack ? scratch : o.At(scratch, o.Mul(item, padded), element);
        auto evaluated = [&](Value i, int64_t width) {
          Eval e(k, width);
          Indices at = row;
          at.push_back(Index(i, width == 1 ? 0 : 1));
          return e.At(x, at);
        };
        auto kept = [&](Value i, int64_t width) { return o.LoadElements(acc, line, i, width); };
        auto value_at = [&](Value i, int64_t width) { return in_memory ? evaluated(i, width) : kept(i, width); };
        Value last = o.Int(extent - lanes), lowest = o.LowestN(acc, vector);
        if (!in_memory && padded != extent) o.StoreElements(acc, lowest, line, o.Int(padded - lanes));
        auto look = [&](Value i, Value best) {
          Value v = evaluated(i, lanes);
          if (!in_memory) o.StoreElements(acc, v, line, i);
          return LargerOf(o, v, best);
        };
        Value maximum = InTurns(o, count, lanes, 4, lowest, look, larger);
        maximum = IfRest(o, extent, lanes, {maximum}, [&] { return Values{look(last, maximum)}; })[0];
        maximum = o.ReduceLanes(maximum, larger);
        auto exponential = [&](Value i, int64_t width) {
          Value v = ExpOfNonPositive(o, o.SubF(value_at(i, width), o.Broadcast(maximum, width)));
          if (!logarithm) o.StoreElements(acc, v, line, i);
          return v;
        };
        // The last vector of what is kept in place is filled up with -Inf; of memory it begins earlier.
        const Extent vectors = in_memory ? count : padded / lanes;
        Value zero = o.ConstF(vector, 0), sum;
        if (lanes == 1 || (vectors.is_static() && vectors.value() < Ops::kSideBySide)) {
          auto add = [&](Value i, Value before) { return o.AddF(before, exponential(i, lanes)); };
          sum = InTurns(o, vectors, lanes, 2, zero, add, sum_of);
        } else {
          auto add_from = [&](Value begin, Value end, int64_t width, Value to) {
            return o.For(begin, end, width, {to},
                         [&](Value i, const Values& in) { return Values{o.AddF(in[0], exponential(i, width))}; })[0];
          };
          const int64_t width = Ops::kSideBySide * lanes;
          const Value whole = o.Int(vectors / Ops::kSideBySide * Extent(width)), end = o.Int(vectors * Extent(lanes));
          const Values sums = o.Parts(add_from(o.Int(0), whole, width, o.ConstF(o.ComputeType(acc, width), 0)), lanes);
          sum = add_from(whole, end, lanes, std::accumulate(sums.begin() + 1, sums.end(), sums[0], sum_of));
        }
        if (in_memory) {
          sum = IfRest(o, extent, lanes, {sum}, [&] {
            return Values{o.AddF(sum, o.Select(LastLanes(o, lanes, extent % lanes), exponential(last, lanes), zero))};
          })[0];
        }
        sum = o.ReduceLanes(sum, sum_of);
        Value factor = logarithm ? o.AddF(maximum, Log(o, sum)) : o.DivF(o.ConstF(element, 1), sum);
        factor = o.Broadcast(factor, lanes);
        VectorLoop(o, {extent}, lanes, {}, [&](const VectorPoint& p, const Values&) {
          Value v = logarithm ? value_at(p.linear, lanes) : kept(p.linear, lanes);
          Indices at = row;
          at.push_back(p.at[0]);
          k.StoreResult(n.out(), at, logarithm ? o.SubF(v, factor) : o.MulF(v, factor));
          return Values{};
        });
      });
    });
  };
  if (extent.is_static()) return emit();
  f.Either({{extent, lanes, Kernel::kMaxOpenRow}}, emit, [&] { SoftmaxInPasses(f, n, logarithm, x.rank() - 1); });
}

Lowering Softmax(bool logarithm) {
  Lowering lowering;
  lowering.cost = 40;
  lowering.epilogue = true;
  auto axis_of = [](const Node& n) {
    return n.attrs->IntOr("axis", -1) + (n.attrs->IntOr("axis", -1) < 0 ? n.in(0).rank() : 0);
  };
  lowering.arg_use_of = [axis_of](const Node& n, int) {
    return axis_of(n) + 1 == n.in(0).rank() ? ArgUse::kOnce : ArgUse::kMany;
  };
  lowering.kernel = [logarithm, axis_of](FunctionEmitter& f, const Node& n) {
    if (n.out().IsEmpty()) return absl::OkStatus();
    if (axis_of(n) + 1 == n.in(0).rank()) {
      SoftmaxRows(f, n, logarithm);
    } else {
      SoftmaxInPasses(f, n, logarithm, axis_of(n));
    }
    return absl::OkStatus();
  };
  return lowering;
}

}  // namespace

void RegisterSoftmax(LoweringTable* table) {
  (*table)["softmax"] = Softmax(false);
  (*table)["log_softmax"] = Softmax(true);
}

}  // namespace inlay::native
