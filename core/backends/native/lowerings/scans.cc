// Cumulative sum.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"

namespace inlay::native {
namespace {

using mlir::Value;

absl::Status CumSum(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &out = n.out();
  if (out.IsEmpty()) return absl::OkStatus();
  int axis = static_cast<int>(n.attrs->Int("axis"));
  if (axis < 0) axis += x.rank();
  bool exclusive = n.attrs->BoolOr("exclusive", false), reverse = n.attrs->BoolOr("reverse", false);
  bool lanes_along_last = axis + 1 < x.rank();
  Shape others = x.dims;
  others.erase(others.begin() + axis);
  Extent extent = x.dims[axis], columns = lanes_along_last ? others.back() : Extent(1);
  Shape rows(others.begin(), lanes_along_last ? others.end() - 1 : others.end());
  int cost = 0;
  std::vector<const Tensor*> tensors = f.Expression(x, nullptr, nullptr, &cost);
  f.WithLanesOrScalar(columns, lanes_along_last ? f.LanesFor(tensors, columns) : 1, cost, [&](int64_t lanes) {
    Extent blocks = CeilDiv(columns, lanes);
    f.ParallelEach(Product(rows) * blocks, Cycles(extent) * (cost + 3.0), [&](Kernel& k, Value item) {
      Ops& o = k.o;
      Indices row = Delinearise(o, o.Div(item, blocks), rows);
      Value column = o.Min(o.Mul(o.Rem(item, blocks), lanes), o.Int(Extent::Max(columns - lanes, 0)));
      Value zero = o.Const(o.ComputeType(x.dtype, lanes), 0);
      o.For(o.Int(0), o.Int(extent), 1, {zero}, [&](Value i, const Values& sum) {
        Value at_axis = reverse ? o.Sub(o.Int(extent - 1), i) : i;
        Indices at = row;
        if (lanes_along_last) at.push_back(Index(column, lanes == 1 ? 0 : 1));
        at.insert(at.begin() + axis, Index(at_axis));
        Eval e(k, lanes);
        Value next = o.AddN(x.dtype, sum[0], e.At(x, at));
        k.StoreElement(out, at, exclusive ? sum[0] : next);
        return Values{next};
      });
    });
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterScans(LoweringTable* table) {
  Lowering& cumsum = (*table)["cumsum"];
  cumsum.cost = 10;
  cumsum.kernel = CumSum;
}

}  // namespace inlay::native
