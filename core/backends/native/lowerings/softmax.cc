// Softmax, log_softmax.
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/math.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

// Along the last axis: one pass that evaluates what feeds it into a row of scratch and finds the maximum, one that
// takes exponentials and sums them, one that stores. The row stays in L1 or L2.
void SoftmaxRows(FunctionEmitter& f, const Node& n, bool logarithm) {
  const Tensor& x = n.in(0);
  DType acc = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  std::map<const Tensor*, std::vector<int64_t>> shapes;
  std::vector<int> groups = {x.rank() - 1, 1};
  std::vector<int64_t> outer(x.shape.begin(), x.shape.end() - 1);
  if (x.rank() > 2) {
    if (f.MergeDimsOf(x, groups, &shapes) && f.MergeDims(n, groups, &shapes)) {
      outer = {Product(outer)};
    } else {
      shapes.clear();
    }
  }
  int64_t extent = x.shape.back();
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  int64_t bytes = ir::ByteSize(acc);
  int64_t lanes = std::min(f.LanesFor(tensors, extent), f.LanesForBytes(bytes, extent));
  int64_t padded = RoundUp(extent, lanes);
  bool on_stack = padded * bytes <= Kernel::kMaxStackBytes;
  Buffer rows;
  if (!on_stack) rows = f.Temporary(Product(outer) * padded * bytes);
  double cycles = static_cast<double>(extent) / lanes * (cost + 25);
  f.Parallel(Product(outer), cycles, [&](Kernel& k, Value begin, Value end) {
    Ops& o = k.o;
    k.shapes = shapes;
    Value scratch = on_stack ? k.Scratch(padded * bytes) : k.Pointer(rows);
    mlir::Type element = o.ComputeType(acc);
    mlir::Type vector = o.ComputeType(acc, lanes);
    auto max = [&](Value a, Value b) { return o.MaxN(acc, a, b); };
    o.For(begin, end, 1, [&](Value item) {
      Indices row = Delinearise(o, item, outer);
      Value line = on_stack ? scratch : o.At(scratch, o.Mul(item, padded), element);
      if (padded != extent) o.StoreElements(acc, o.LowestN(acc, vector), line, o.Int(padded - lanes));
      Value lowest = o.LowestN(acc, vector);
      Value maximum = VectorLoop(o, {extent}, lanes, {lowest}, [&](const VectorPoint& p, const Values& best) {
        Eval e(k, lanes);
        Indices at = row;
        at.push_back(p.at[0]);
        Value v = e.At(x, at);
        o.StoreElements(acc, v, line, p.linear);
        return Values{max(best[0], v)};
      })[0];
      maximum = o.ReduceLanes(maximum, max);
      Value maxima = o.Broadcast(maximum, lanes);
      Value sum = o.For(o.Int(0), o.Int(padded), lanes, {o.ConstF(vector, 0)}, [&](Value i, const Values& sums) {
        Value v = ExpOfNonPositive(o, o.SubF(o.LoadElements(acc, line, i, lanes), maxima));
        if (!logarithm) o.StoreElements(acc, v, line, i);
        return Values{o.AddF(sums[0], v)};
      })[0];
      sum = o.ReduceLanes(sum, [&](Value a, Value b) { return o.AddF(a, b); });
      Value factor = logarithm ? o.AddF(maximum, Log(o, sum)) : o.DivF(o.ConstF(element, 1), sum);
      factor = o.Broadcast(factor, lanes);
      VectorLoop(o, {extent}, lanes, {}, [&](const VectorPoint& p, const Values&) {
        Value v = o.LoadElements(acc, line, p.linear, lanes);
        Indices at = row;
        at.push_back(p.at[0]);
        k.StoreResult(n.out(), at, logarithm ? o.SubF(v, factor) : o.MulF(v, factor));
        return Values{};
      });
    });
  });
}

// Along another axis: lanes along the last dimension, three loops over the axis.
void SoftmaxColumns(FunctionEmitter& f, const Node& n, bool logarithm, int64_t axis) {
  const Tensor& x = n.in(0);
  DType acc = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<int64_t> outer(x.shape.begin(), x.shape.end() - 1);
  outer.erase(outer.begin() + axis);
  int64_t extent = x.shape[axis], inner = x.shape.back();
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  int64_t lanes = std::min(f.LanesFor(tensors, inner), f.LanesForBytes(ir::ByteSize(acc), inner));
  f.ParallelEach(Product(outer), static_cast<double>(extent * inner) / lanes * (3 * cost + 50),
                 [&](Kernel& k, Value item) {
                   Ops& o = k.o;
                   mlir::Type vector = o.ComputeType(acc, lanes);
                   Indices row = Delinearise(o, item, outer);
                   VectorLoop(o, {inner}, lanes, {}, [&](const VectorPoint& p, const Values&) {
                     auto indices = [&](Value i) {
                       Indices at = row;
                       at.insert(at.begin() + axis, Index(i));
                       at.push_back(p.at[0]);
                       return at;
                     };
                     auto element = [&](Value i) {
                       Eval e(k, lanes);
                       return e.At(x, indices(i));
                     };
                     Value zero = o.Int(0), end = o.Int(extent);
                     Value maximum = o.For(zero, end, 1, {o.LowestN(acc, vector)}, [&](Value i, const Values& best) {
                       return Values{o.MaxN(acc, best[0], element(i))};
                     })[0];
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
    if (n.out().NumElements() == 0) return absl::OkStatus();
    if (axis_of(n) + 1 == n.in(0).rank()) {
      SoftmaxRows(f, n, logarithm);
    } else {
      SoftmaxColumns(f, n, logarithm, axis_of(n));
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
