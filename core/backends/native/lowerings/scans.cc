// Scans: what is made of all elements of an axis up to each. Sums, products, extremes with their places, log of sums of
// exponentials.
#include <algorithm>
#include <functional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/math.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

// What is carried along an axis: values of all elements seen so far.
struct Scan {
  // Of no elements: vectors of `lanes`.
  std::function<Values(Ops&, int64_t lanes)> begin;
  // With x, the element at `place`.
  std::function<Values(Ops&, const Values& before, Value x, Value place)> step;
  // The results' elements.
  std::function<Values(Ops&, const Values&)> results = [](Ops&, const Values& carried) { return carried; };
};

Scan SumOrProduct(DType dtype, bool product) {
  Scan scan;
  scan.begin = [=](Ops& o, int64_t lanes) { return Values{o.Const(o.ComputeType(dtype, lanes), product ? 1 : 0)}; };
  scan.step = [=](Ops& o, const Values& before, Value x, Value) {
    return Values{product ? o.MulN(dtype, before[0], x) : o.AddN(dtype, before[0], x)};
  };
  return scan;
}

// Of equals the last; every NaN takes the place of what was before it.
Scan Extreme(DType dtype, bool largest) {
  Scan scan;
  scan.begin = [=](Ops& o, int64_t lanes) {
    const mlir::Type type = o.ComputeType(dtype, lanes);
    return Values{largest ? o.LowestN(dtype, type) : o.HighestN(dtype, type), o.Broadcast(o.Int(0), lanes)};
  };
  scan.step = [=](Ops& o, const Values& before, Value x, Value place) {
    Value takes = o.CompareN(largest ? Compare::kGe : Compare::kLe, dtype, x, before[0]);
    if (ir::IsFloat(dtype)) takes = o.Or(takes, o.IsNan(x));
    return Values{o.Select(takes, x, before[0]), o.Select(takes, o.Broadcast(place, Ops::Lanes(x)), before[1])};
  };
  return scan;
}

// The largest m, and the sum of exp(x - m), where m is finite: of an infinite one there is nothing to scale, the sum is
// of exp(x).
Scan LogSumExp(DType dtype) {
  auto finite = [](Ops& o, Value m) {
    Value zero = o.Const(m.getType(), 0);
    Value infinite = o.CompareF(Compare::kEq, o.AbsF(m), o.HighestN(DType::kF64, m.getType()));
    return o.Select(infinite, zero, m);
  };
  Scan scan;
  scan.begin = [=](Ops& o, int64_t lanes) {
    const mlir::Type type = o.ComputeType(dtype, lanes);
    return Values{o.LowestN(dtype, type), o.Const(type, 0)};
  };
  scan.step = [=](Ops& o, const Values& before, Value x, Value) {
    Value m = o.MaxN(dtype, before[0], x);
    // The sum before is 0 where m was -Inf.
    Value scaled = o.MulF(before[1], Exp(o, o.SubF(before[0], m)));
    Value sum = o.Select(o.CompareF(Compare::kEq, before[0], m), before[1], scaled);
    return Values{m, o.AddF(sum, Exp(o, o.SubF(x, finite(o, m))))};
  };
  scan.results = [=](Ops& o, const Values& carried) {
    return Values{o.AddF(Log(o, carried[1]), finite(o, carried[0]))};
  };
  return scan;
}

// One line of the axis, or a vector of neighbouring ones, is an item.
class ScanKernel {
 public:
  ScanKernel(FunctionEmitter& f, const Node& n, const Scan& scan)
      : f_(f),
        n_(n),
        scan_(scan),
        x_(n.in(0)),
        axis_(static_cast<int>(n.attrs->Int("axis")) + (n.attrs->Int("axis") < 0 ? x_.rank() : 0)),
        exclusive_(n.attrs->BoolOr("exclusive", false)),
        reverse_(n.attrs->BoolOr("reverse", false)),
        in_columns_(axis_ + 1 < x_.rank()),
        extent_(x_.dims[axis_]) {
    Shape others = x_.dims;
    others.erase(others.begin() + axis_);
    columns_ = in_columns_ ? others.back() : Extent(1);
    rows_ = Shape(others.begin(), in_columns_ ? others.end() - 1 : others.end());
  }

  // `step`: its cycles, beside those of what x is made of.
  void Emit(double step) {
    int cost = 0;
    std::vector<const Tensor*> tensors = f_.Expression(x_, nullptr, nullptr, &cost);
    int64_t lanes = in_columns_ ? f_.LanesFor(tensors, columns_) : 1;
    // Of narrow types too, no more than of f32: the places are of 64 bits.
    if (n_.outputs.size() > 1) lanes = std::min(lanes, f_.LanesForBytes(4, columns_));
    f_.WithLanesOrScalar(columns_, lanes, cost, [&](int64_t lanes) {
      const Extent blocks = CeilDiv(columns_, lanes);
      f_.ParallelEach(Product(rows_) * blocks, Cycles(extent_) * (cost + step),
                      [&](Kernel& k, Value item) { EmitLine(k, item, blocks, lanes); });
    });
  }

 private:
  void EmitLine(Kernel& k, Value item, const Extent& blocks, int64_t lanes) {
    Ops& o = k.o;
    const Indices row = Delinearise(o, o.Div(item, blocks), rows_);
    Value column = o.Min(o.Mul(o.Rem(item, blocks), lanes), o.Int(Extent::Max(columns_ - lanes, 0)));
    o.For(o.Int(0), o.Int(extent_), 1, scan_.begin(o, lanes), [&](Value i, const Values& before) {
      Value place = reverse_ ? o.Sub(o.Int(extent_ - 1), i) : i;
      Indices at = row;
      if (in_columns_) at.push_back(Index(column, lanes == 1 ? 0 : 1));
      at.insert(at.begin() + axis_, Index(place));
      Eval e(k, lanes);
      const Values after = scan_.step(o, before, e.At(x_, at), place);
      const Values results = scan_.results(o, exclusive_ ? before : after);
      for (size_t i = 0; i < results.size(); ++i) k.StoreElement(n_.out(i), at, results[i]);
      return after;
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  const Scan& scan_;
  const Tensor& x_;
  const int axis_;
  const bool exclusive_, reverse_, in_columns_;
  const Extent extent_;
  Extent columns_;  // neighbours of the axis that a vector may hold
  Shape rows_;      // what else there is
};

// `step`: cycles of one, beside what x is made of.
Lowering Scanning(double step, const std::function<Scan(DType)>& scan) {
  Lowering lowering;
  lowering.cost = static_cast<int>(step) + 7;
  lowering.kernel = [=](FunctionEmitter& f, const Node& n) {
    if (!n.out(0).IsEmpty()) ScanKernel(f, n, scan(n.in(0).dtype)).Emit(step);
    return absl::OkStatus();
  };
  return lowering;
}

}  // namespace

void RegisterScans(LoweringTable* table) {
  LoweringTable& t = *table;
  t["cumsum"] = Scanning(3, [](DType dtype) { return SumOrProduct(dtype, false); });
  t["cumprod"] = Scanning(4, [](DType dtype) { return SumOrProduct(dtype, true); });
  t["cummax"] = Scanning(6, [](DType dtype) { return Extreme(dtype, true); });
  t["cummin"] = Scanning(6, [](DType dtype) { return Extreme(dtype, false); });
  t["logcumsumexp"] = Scanning(60, LogSumExp);
}

}  // namespace inlay::native
