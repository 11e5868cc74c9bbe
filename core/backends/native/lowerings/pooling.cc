// Max and average pooling.
#include <algorithm>

#include "core/backends/native/composites.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/open_windows.h"
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

  // One window, or `lanes` neighbouring ones along the last axis, which then lie inside the input on that axis.
  Value Window(Kernel& k, const Indices& at, int64_t lanes) const {
    return Window(k, at, lanes, lanes > 1, [&](Eval& e, const Indices& of) { return e.At(n.in(0), of); });
  }
  // `along`: lanes are along the last axis; else of neighbouring channels. `element`: of the input.
  Value Window(Kernel& k, const Indices& at, int64_t lanes, bool along,
               const std::function<Value(Eval&, const Indices&)>& element) const {
    Ops& o = k.o;
    const Tensor& x = n.in(0);
    int spatial = static_cast<int>(Spatial());
    // Taps [first, last) of each axis that meet the input.
    Values first, last, origin;
    for (int i = 0; i < spatial; ++i) {
      origin.push_back(Origin(o, i, at[i + 2].base));
      const bool inside = (along && i == spatial - 1) || NeverPadded(i);
      first.push_back(inside ? o.Int(0) : FirstTap(o, i, origin[i]));
      last.push_back(inside ? o.Int(w.kernel[i]) : LastTap(o, i, origin[i]));
    }
    mlir::Type type = o.ComputeType(x.dtype, lanes);
    Value init = average ? o.ConstF(type, 0) : o.LowestN(x.dtype, type);
    std::function<Value(int, Indices, Value)> nest = [&](int i, Indices from, Value acc) -> Value {
      if (i == spatial) {
        Eval e(k, lanes);
        Value v = element(e, from);
        return average ? o.AddF(acc, v) : o.MaxN(x.dtype, acc, v);
      }
      return o.For(first[i], last[i], 1, {acc}, [&](Value tap, const Values& carried) {
        Indices next = from;
        Value position = o.Add(origin[i], o.Mul(tap, w.dilations[i]));
        next.push_back(Index(position, along && i == spatial - 1 ? w.strides[i] : 0));
        return Values{nest(i + 1, next, carried[0])};
      })[0];
    };
    Value result = nest(0, {at[0], at[1]}, init);
    if (!average) return result;
    Value count;
    for (int i = 0; i < spatial; ++i) {
      const Value taps = count_include_pad ? Counted(o, i, at[i + 2].base) : o.Sub(last[i], first[i]);
      count = count ? o.MulI(count, taps) : taps;
    }
    Value divisor = o.IntToFloat(count, o.ComputeType(x.dtype), true);
    return o.DivF(result, o.Broadcast(divisor, lanes));
  }

  // Where the window of an output position begins.
  Value Origin(Ops& o, int i, Value position) const { return o.Add(o.Mul(position, w.strides[i]), -w.pads_begin[i]); }
  Value FirstTap(Ops& o, int i, Value origin) const {
    const int64_t d = w.dilations[i];
    return o.Div(o.Add(o.Max(o.Sub(o.Int(0), origin), o.Int(0)), d - 1), d);
  }
  Value LastTap(Ops& o, int i, Value origin) const {
    const int64_t d = w.dilations[i];
    const Value room = o.Max(o.Sub(o.Int(n.in(0).dims[i + 2]), origin), o.Int(0));
    return o.Min(o.Div(o.Add(room, d - 1), d), o.Int(w.kernel[i]));
  }
  // How many of an axis' taps an average counts.
  Value Counted(Ops& o, int i, Value position) const {
    if (NeverPadded(i)) return o.Int(w.kernel[i]);
    const Value origin = Origin(o, i, position);
    if (!count_include_pad) return o.Sub(LastTap(o, i, origin), FirstTap(o, i, origin));
    // Padding counts, what a ceiled last window covers beyond it does not.
    const int64_t d = w.dilations[i];
    const Extent end = n.in(0).dims[i + 2] + w.pads_end[i];
    if (end.is_static() && Reach(i) < end.value()) return o.Int(w.kernel[i]);
    return o.Min(o.Div(o.Add(o.Sub(o.Int(end), origin), d - 1), d), o.Int(w.kernel[i]));
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

// Windows of a row of results at once: what each column of them has in the axes before the last one goes to a line in
// L1, with what changes nothing beyond both ends, and windows along that line are the results. So windows that overlap
// share taps, loads and comparisons, and edges are like the rest.
class RowPool {
 public:
  RowPool(const Pool& pool, int64_t lanes) : pool_(pool), n_(pool.n), lanes_(lanes), last_(pool.Spatial() - 1) {}

  // Other pools go window by window.
  bool Fits() const {
    const Tensor &x = n_.in(0), &out = n_.out();
    if (lanes_ == 1 || x.dtype == ir::DType::kBool || columns_in() < lanes_) return false;
    if (stride() > 2 && stride() > pool_.w.kernel[last_]) return false;  // columns that no window meets
    if (pool_.w.kernel[last_] > kMaxTaps || OuterTaps() > kMaxTaps) return false;
    for (int i = 0; i <= last_; ++i) {
      const int64_t begin = pool_.w.pads_begin[i];
      const int64_t final_begin = (out.dims[i + 2].value() - 1) * pool_.w.strides[i] - begin;
      // Each window meets the input; its row next to what it has beyond an end is one of its own, if not dilated.
      if (begin < 0 || begin >= pool_.w.kernel[i] || final_begin >= x.dims[i + 2].value()) return false;
      if (i < last_ && !pool_.NeverPadded(i) && pool_.w.dilations[i] != 1) return false;
    }
    return (kLines * line_elements() + columns()) * kMaxElementBytes <= kMaxLineBytes;
  }

  double CyclesOfRow() const {
    const double vectors_in = static_cast<double>(CeilDiv(columns_in(), lanes_));
    const double vectors_out = static_cast<double>(CeilDiv(columns(), SlideLanes()));
    return 3 * (vectors_in * OuterTaps() + vectors_out * 2 * pool_.w.kernel[last_]) + 40;
  }

  void Emit(Kernel& k, const Shape& outer, Value begin, Value end) {
    Ops& o = k.o;
    scalar_ = o.ComputeType(n_.in(0).dtype);
    vector_ = o.ComputeType(n_.in(0).dtype, lanes_);
    lines_ = k.Scratch((kLines * line_elements() + columns()) * scalar_.getIntOrFloatBitWidth() / 8);
    counts_ = o.At(lines_, kLines * line_elements(), scalar_);
    const int64_t left = pool_.w.pads_begin[last_], right = left + columns_in();
    if (CountsColumns()) CountColumns(o, left, right);
    // Rows do not touch what lies beyond their ends.
    for (int64_t line = 0; line < kLines; ++line) {
      const Value at = o.At(lines_, line * line_elements(), scalar_);
      Fill(o, at, 0, left, Identity(o, scalar_));
      Fill(o, at, right, line_elements(), Identity(o, scalar_));
    }
    // The next row's line before this one's windows, which read across what was just stored (a processor's loads wait
    // for such stores to reach L1).
    auto reduce = [&](Value item) {
      Reduce(k, Delinearise(o, o.Min(item, o.KernelBuilder::Add(end, -1)), outer), Line(o, item));
    };
    reduce(begin);
    o.For(begin, end, 1, [&](Value item) {
      reduce(o.KernelBuilder::Add(item, 1));
      Slide(k, Delinearise(o, item, outer), Line(o, item));
    });
  }

 private:
  static constexpr int64_t kMaxTaps = 16, kLines = 2, kMaxElementBytes = 8, kMaxLineBytes = 64 << 10;

  int64_t stride() const { return pool_.w.strides[last_]; }
  int64_t columns_in() const { return n_.in(0).dims.back().value(); }
  int64_t columns() const { return n_.out().dims.back().value(); }
  // Of the vectors of results, which may be fewer than columns.
  int64_t SlideLanes() const {
    int64_t lanes = stride() <= 2 ? lanes_ : 1;
    while (lanes > columns()) lanes /= 2;
    return lanes;
  }
  int64_t OuterTaps() const { return Product(pool_.w.kernel) / pool_.w.kernel[last_]; }
  int64_t line_elements() const {
    const int64_t reach = (pool_.w.kernel[last_] - 1) * pool_.w.dilations[last_];
    const int64_t windows = std::max(columns(), lanes_);
    return std::max(pool_.w.pads_begin[last_] + columns_in(), (windows - 1) * stride() + reach + 1);
  }
  Value Line(Ops& o, Value item) const {
    return o.At(lines_, o.KernelBuilder::Mul(o.KernelBuilder::Rem(item, kLines), line_elements()), scalar_);
  }

  mlir::Type VectorOf(int64_t lanes) const { return lanes == 1 ? scalar_ : KernelBuilder::Vector(lanes, scalar_); }
  Value Identity(Ops& o, mlir::Type type) const {
    return pool_.average ? o.ConstF(type, 0) : o.LowestN(n_.in(0).dtype, type);
  }
  Value Combine(Ops& o, Value x, Value y) const { return pool_.average ? o.AddF(x, y) : o.MaxN(n_.in(0).dtype, x, y); }

  void Fill(Ops& o, Value line, int64_t from, int64_t to, Value with) const {
    o.For(o.Int(from), o.Int(to), 1, [&](Value i) { o.Store(with, o.At(line, i, scalar_)); });
  }

  // An average's windows differ in how many elements they count.
  bool CountsColumns() const { return pool_.average && !pool_.NeverPadded(last_); }
  // What a line of ones would give.
  void CountColumns(Ops& o, int64_t left, int64_t right) const {
    const Value one = o.ConstF(scalar_, 1), zero = o.ConstF(scalar_, 0);
    const int64_t first = pool_.count_include_pad ? 0 : left;
    const int64_t end = std::min(pool_.count_include_pad ? right + pool_.w.pads_end[last_] : right, line_elements());
    Fill(o, lines_, 0, first, zero);
    Fill(o, lines_, first, end, one);
    Fill(o, lines_, end, line_elements(), zero);
    o.For(o.Int(0), o.Int(columns()), 1, [&](Value j) { o.Store(Window(o, lines_, j, 1), o.At(counts_, j, scalar_)); });
  }

  // The row's windows in all axes but the last, of every input column. Where an axis is padded, what lies beyond its
  // ends is its last row before them: of the same window, so that a maximum does not change; not counted in a sum.
  void Reduce(Kernel& k, const Indices& row, Value line) {
    Ops& o = k.o;
    const Tensor& x = n_.in(0);
    struct Tap {
      Indices at;
      Value counts;  // i1; none: always
    };
    std::vector<Tap> taps = {{{row[0], row[1]}, {}}};
    for (int i = 0; i < last_; ++i) {
      const Value start = o.KernelBuilder::Add(o.KernelBuilder::Mul(row[i + 2].base, pool_.w.strides[i]),
                                               o.Int(-pool_.w.pads_begin[i]));
      std::vector<Tap> longer;
      for (const Tap& tap : taps) {
        for (int64_t t = 0; t < pool_.w.kernel[i]; ++t) {
          Tap& next = longer.emplace_back(tap);
          Value at = o.KernelBuilder::Add(start, t * pool_.w.dilations[i]);
          if (!pool_.NeverPadded(i)) {
            const Value inside = o.Min(o.Max(at, o.Int(0)), o.Int(x.dims[i + 2].value() - 1));
            if (pool_.average) {
              const Value counts = o.Equal(at, inside);
              next.counts = next.counts ? o.And(next.counts, counts) : counts;
            }
            at = inside;
          }
          next.at.push_back(at);
        }
      }
      taps = std::move(longer);
    }
    o.For(o.Int(0), o.Int(columns_in()), lanes_, [&](Value i) {
      if (columns_in() % lanes_ != 0) i = o.Min(i, o.Int(columns_in() - lanes_));
      Eval e(k, lanes_);
      Value all;
      for (const Tap& tap : taps) {
        Indices at = tap.at;
        at.push_back(Index(i, 1));
        Value element = e.At(x, at);
        if (tap.counts) element = o.KernelBuilder::Select(tap.counts, element, Identity(o, vector_));
        all = all ? Combine(o, all, element) : element;
      }
      o.Store(all, o.At(line, o.KernelBuilder::Add(i, pool_.w.pads_begin[last_]), scalar_));
    });
  }

  void Slide(Kernel& k, const Indices& row, Value line) {
    Ops& o = k.o;
    const Value outer = pool_.average ? CountOuter(o, row) : Value();
    auto emit = [&](Value j, int64_t lanes) {
      Value result = Window(o, line, j, lanes);
      if (pool_.average) {
        const mlir::Type type = VectorOf(lanes);
        const Value columns = CountsColumns() ? o.Load(type, o.At(counts_, j, scalar_))
                                              : o.ConstF(type, static_cast<double>(pool_.w.kernel[last_]));
        result = o.DivF(result, o.MulF(columns, o.Broadcast(outer, lanes)));
      }
      Indices at = row;
      at.push_back(Index(j, lanes == 1 ? 0 : 1));
      k.StoreResult(n_.out(), at, result);
    };
    const int64_t lanes = SlideLanes();
    o.For(o.Int(0), o.Int(columns()), lanes, [&](Value j) {
      if (columns() % lanes != 0) j = o.Min(j, o.Int(columns() - lanes));
      emit(j, lanes);
    });
  }

  // How many rows of the other axes a window of this row counts, as a scalar of the compute type.
  Value CountOuter(Ops& o, const Indices& row) const {
    Value count = o.Int(1);
    for (int i = 0; i < last_; ++i) count = o.MulI(count, pool_.Counted(o, i, row[i + 2].base));
    return o.IntToFloat(count, scalar_, true);
  }

  // Along the line; of `lanes` windows from j on.
  Value Window(Ops& o, Value line, Value j, int64_t lanes) const {
    Value all;
    for (int64_t t = 0; t < pool_.w.kernel[last_]; ++t) {
      const Value at = o.KernelBuilder::Add(o.KernelBuilder::Mul(j, stride()), o.Int(t * pool_.w.dilations[last_]));
      Value element = o.Load(VectorOf(lanes), o.At(line, at, scalar_));
      if (lanes > 1 && stride() == 2) {
        // Two vectors that end exactly at the last element wanted, and every other lane of each.
        const Value high = o.Load(VectorOf(lanes), o.At(line, o.KernelBuilder::Add(at, lanes - 1), scalar_));
        std::vector<int64_t> mask;
        for (int64_t i = 0; i < lanes; ++i) mask.push_back(2 * i < lanes ? 2 * i : 2 * i + 1);
        element = o.Shuffle(element, high, mask);
      }
      all = all ? Combine(o, all, element) : element;
    }
    return all;
  }

  const Pool& pool_;
  const Node& n_;
  const int64_t lanes_;
  const int last_;
  Value lines_, counts_;
  mlir::Type scalar_, vector_;
};

// Whether windows of images of open size are taken from blocks that are copied from memory. With a stride they better
// go one by one (Zen 3, us, by blocks and so: max 2x2/2 of 64 channels of 112x112 200, 154, 3x3/2 262, 272; average
// 4x4/4 of 16 of 224x224 325, 185; without, 3x3 of 128 of 28x28 68, 154).
bool TakesOpenBlocks(const Node& n) {
  const Tensor& x = n.in(0);
  const bool is_float = x.dtype == ir::DType::kF32 || x.dtype == ir::DType::kF64 || x.dtype == ir::DType::kF16 ||
                        x.dtype == ir::DType::kBF16;
  return is_float && x.rank() <= 5 && n.attrs->IntsOr("strides", {1}).back() == 1 &&
         !IsStatic(Shape(x.dims.begin() + 2, x.dims.end()));
}

// False: a block would be too large.
bool EmitOpenPool(FunctionEmitter& f, const Pool& pool) {
  const Node& n = pool.n;
  const Tensor& x = n.in(0);
  const GemmTypes types(f, x.dtype);
  const OpenPlanes planes(x, n.out(), pool.w);
  WindowRule rule;
  rule.padding = [&](Ops& o) {
    const mlir::Type type = types.Accumulator(o);
    return pool.average ? o.Zero(type) : o.LowestN(types.accumulator_dtype, type);
  };
  rule.join = [&](Ops& o, Value x, Value y) {
    return pool.average ? o.AddF(x, y) : o.MaxN(types.accumulator_dtype, x, y);
  };
  rule.begin = [&](Kernel& k, const WindowBlock&) -> WindowRule::Take {
    return [&](int64_t, Value pixels, Value before) { return rule.join(k.o, before, pixels); };
  };
  if (!pool.average) return EmitOpenWindows(f, n, types, planes, rule);
  // How many elements the windows of a row's columns count, with room for vectors that reach beyond them.
  const int last = static_cast<int>(pool.Spatial()) - 1;
  Buffer counts;
  rule.prepare = [&] {
    counts = f.Temporary((n.out().dims.back() + f.cpu().core.vector_bytes) * types.accumulator_bytes);
    f.ParallelEach(n.out().dims.back(), 10, [&](Kernel& k, Value j) {
      const mlir::Type type = types.Accumulator(k.o);
      const Value columns = k.o.IntToFloat(pool.Counted(k.o, last, j), type, true);
      k.o.Store(columns, k.o.At(k.Pointer(counts), j, type));
    });
  };
  rule.finish = [&](Kernel& k, const WindowBlock& block, Value row, Value column, Value sum) {
    Ops& o = k.o;
    const mlir::Type type = types.Accumulator(o);
    Value outer = o.Int(1);
    for (int i = 0; i < last; ++i) {
      const bool is_row = i == last - 1;
      outer = o.MulI(outer, pool.Counted(o, i, is_row ? row : block.slice));
    }
    const Value at = o.At(k.Pointer(counts), column, type);
    const Value factor = o.Broadcast(o.IntToFloat(outer, type, true), Ops::Lanes(sum));
    return o.DivF(sum, o.MulF(o.Load(sum.getType(), at), factor));
  };
  return EmitOpenWindows(f, n, types, planes, rule);
}

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
  if (x.is_static() && out.is_static()) {
    RowPool rows(pool, f.LanesFor({&x, &out}, x.dims.back()));
    if (rows.Fits()) {
      f.Parallel(Product(outer), rows.CyclesOfRow(),
                 [&](Kernel& k, Value begin, Value end) { rows.Emit(k, outer, begin, end); });
      return absl::OkStatus();
    }
  }
  if (TakesOpenBlocks(n) && EmitOpenPool(f, pool)) return absl::OkStatus();
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

// kPoolPixels: vectors of channels.
absl::Status PoolPixels(FunctionEmitter& f, const Node& n) {
  const Node& node = *n.parts.at("pool");
  const Tensor &x = n.in(0), &out = n.out();
  if (out.IsEmpty()) return absl::OkStatus();
  const Pool pool(node, node.op == "avg_pool");
  const Shape outer(out.dims.begin(), out.dims.end() - 1);
  const Extent& channels = out.dims.back();
  const double taps = static_cast<double>(Product(pool.w.kernel));
  f.WithLanesOrScalar(channels, f.LanesFor({&x, &f.StoredTensor(n)}, channels), 1, [&](int64_t lanes) {
    f.ParallelEach(Product(outer), Cycles(channels) * taps * 4 / lanes + 20, [&](Kernel& k, Value item) {
      const Indices pixel = Delinearise(k.o, item, outer);
      VectorLoop(k.o, {channels}, lanes, {}, [&](const VectorPoint& point, const Values&) {
        Indices at = {pixel[0], point.at[0]}, stored = pixel;
        at.insert(at.end(), pixel.begin() + 1, pixel.end());
        stored.push_back(point.at[0]);
        auto element = [&](Eval& e, const Indices& of) {
          Indices last = {of[0]};
          last.insert(last.end(), of.begin() + 2, of.end());
          last.push_back(of[1]);
          return e.At(x, last);
        };
        k.StoreResult(out, stored, pool.Window(k, at, lanes, /*along=*/false, element));
        return Values();
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
    lowering.arg_use_of = [](const Node& n, int) { return TakesOpenBlocks(n) ? ArgUse::kMemory : ArgUse::kMany; };
    lowering.kernel = [average](FunctionEmitter& f, const Node& n) { return PoolKernel(f, n, average); };
  }
  Lowering& pixels = (*table)[kPoolPixels];
  pixels.cost = 20;
  pixels.epilogue = true;
  pixels.arg_use = ArgUse::kMany;
  pixels.kernel = PoolPixels;
}

}  // namespace inlay::native
