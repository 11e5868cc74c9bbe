// Max and average pooling.
#include <algorithm>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/windows.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Value;

struct Pool {
  const Node& n;
  Windows w;
  bool average;
  bool count_include_pad;

  Pool(const Node& node, bool avg)
      : n(node),
        w(*node.attrs, node.attrs->Ints("kernel")),
        average(avg),
        count_include_pad(node.attrs->BoolOr("count_include_pad", false)) {}

  int64_t Spatial() const { return static_cast<int64_t>(w.kernel.size()); }
  // Output positions along the last axis [low, high) whose windows lie inside the input altogether.
  void Interior(Extent* low, Extent* high) const {
    int64_t i = Spatial() - 1;
    const Extent &in = n.in(0).dims[i + 2], &out = n.out().dims[i + 2];
    int64_t s = w.strides[i], reach = (w.kernel[i] - 1) * w.dilations[i];
    *low = Extent::Min(out, CeilDiv(w.pads_begin[i], s));
    Extent last = in - 1 - reach + w.pads_begin[i];
    *high = Extent::Max(*low, Extent::Min(out, Extent::Max(last + s, 0) / s));
  }

  // One window, or `lanes` neighbouring ones along the last axis (which then lie inside the input on that axis).
  Value Window(Kernel& k, const Indices& at, int64_t lanes) const {
    Ops& o = k.o;
    const Tensor& x = n.in(0);
    int spatial = static_cast<int>(Spatial());
    // Taps [first, last) of each axis that meet the input.
    Values first, last, origin;
    for (int i = 0; i < spatial; ++i) {
      Value start = o.Add(o.Mul(at[i + 2].base, w.strides[i]), -w.pads_begin[i]);
      origin.push_back(start);
      bool inside = (lanes > 1 && i == spatial - 1) || NeverPadded(i);
      if (inside) {
        first.push_back(o.Int(0));
        last.push_back(o.Int(w.kernel[i]));
        continue;
      }
      int64_t d = w.dilations[i];
      Value below = o.Max(o.Sub(o.Int(0), start), o.Int(0));
      first.push_back(o.Div(o.Add(below, d - 1), d));
      Value room = o.Max(o.Sub(o.Int(x.dims[i + 2]), start), o.Int(0));
      last.push_back(o.Min(o.Div(o.Add(room, d - 1), d), o.Int(w.kernel[i])));
    }
    mlir::Type type = o.ComputeType(x.dtype, lanes);
    Value init = average ? o.ConstF(type, 0) : o.LowestN(x.dtype, type);
    std::function<Value(int, Indices, Value)> nest = [&](int i, Indices from, Value acc) -> Value {
      if (i == spatial) {
        Eval e(k, lanes);
        Value v = e.At(x, from);
        return average ? o.AddF(acc, v) : o.MaxN(x.dtype, acc, v);
      }
      return o.For(first[i], last[i], 1, {acc}, [&](Value tap, const Values& carried) {
        Indices next = from;
        Value position = o.Add(origin[i], o.Mul(tap, w.dilations[i]));
        next.push_back(Index(position, lanes > 1 && i == spatial - 1 ? w.strides[i] : 0));
        return Values{nest(i + 1, next, carried[0])};
      })[0];
    };
    Value result = nest(0, {at[0], at[1]}, init);
    if (!average) return result;
    Value count;
    for (int i = 0; i < spatial; ++i) {
      Value taps;
      if (count_include_pad) {
        // Padding counts, what a ceiled last window covers beyond it does not.
        int64_t d = w.dilations[i];
        Extent end = x.dims[i + 2] + w.pads_end[i];
        Value room = o.Sub(o.Int(end), origin[i]);
        bool whole = end.is_static() && Reach(i) < end.value();
        taps = whole ? o.Int(w.kernel[i]) : o.Min(o.Div(o.Add(room, d - 1), d), o.Int(w.kernel[i]));
      } else {
        taps = o.Sub(last[i], first[i]);
      }
      count = count ? o.MulI(count, taps) : taps;
    }
    Value divisor = o.IntToFloat(count, o.ComputeType(x.dtype), true);
    return o.DivF(result, o.Broadcast(divisor, lanes));
  }

  // The last position of an axis, whose extents are known, that a window meets.
  int64_t Reach(int i) const {
    return (n.out().dims[i + 2].value() - 1) * w.strides[i] - w.pads_begin[i] + (w.kernel[i] - 1) * w.dilations[i];
  }

  bool NeverPadded(int i) const {
    const Extent& in = n.in(0).dims[i + 2];
    return w.pads_begin[i] == 0 && in.is_static() && Reach(i) < in.value();
  }
};

absl::Status PoolKernel(FunctionEmitter& f, const Node& n, bool average) {
  const Tensor &x = n.in(0), &out = n.out();
  if (out.IsEmpty()) return absl::OkStatus();
  Pool pool(n, average);
  Extent low, high;
  pool.Interior(&low, &high);
  const Extent& columns = out.dims.back();
  Shape outer(out.dims.begin(), out.dims.end() - 1);
  int64_t taps = Product(pool.w.kernel);
  Extent interior = high - low;
  f.WithLanes(interior, f.LanesFor({&x, &out}, Extent::Max(interior, 1)), [&](int64_t lanes) {
    f.ParallelEach(Product(outer), Cycles(columns) * taps * 4 / lanes + 20, [&](Kernel& k, Value item) {
      Ops& o = k.o;
      Indices row = Delinearise(o, item, outer);
      auto emit = [&](Value i, int64_t width) {
        Indices at = row;
        at.push_back(Index(i, width == 1 ? 0 : 1));
        k.StoreResult(out, at, pool.Window(k, at, width));
      };
      if (lanes == 1) return o.For(o.Int(0), o.Int(columns), 1, [&](Value i) { emit(i, 1); });
      // Edges by scalars in one loop that steps over the interior, so that the window is emitted twice only.
      o.For(o.Int(0), o.Int(columns - interior), 1,
            [&](Value i) { emit(o.Select(o.Less(i, o.Int(low)), i, o.Add(i, interior)), 1); });
      o.For(o.Int(low), o.Int(high), lanes, [&](Value i) {
        if (!interior.IsMultipleOf(lanes)) i = o.Min(i, o.Int(high - lanes));
        emit(i, lanes);
      });
    });
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterPooling(LoweringTable* table) {
  for (bool average : {false, true}) {
    Lowering& lowering = (*table)[average ? "avg_pool" : "max_pool"];
    lowering.cost = 20;
    lowering.epilogue = true;
    lowering.arg_use = ArgUse::kMany;
    lowering.kernel = [average](FunctionEmitter& f, const Node& n) { return PoolKernel(f, n, average); };
  }
}

}  // namespace inlay::native
