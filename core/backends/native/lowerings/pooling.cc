// Max and average pooling.
#include <algorithm>

#include "core/backends/native/composites.h"
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
    const Extent &in = n.in(0).dims[i + 2], &out = n.out().dims[i + 2];
    if (w.pads_begin[i] != 0) return false;
    if (!in.is_static() || !out.is_static()) return w.pads_end[i] == 0 && !n.attrs->BoolOr("ceil_mode", false);
    return Reach(i) < in.value();
  }
};

// Windows of a row of results at once, or of a part of an open row: what each column of them has in the axes before the
// last one goes to a line in L1, with what changes nothing beyond both ends, and windows along that line are the
// results. So windows that overlap share taps, loads and comparisons, and edges are like the rest.
class RowPool {
 public:
  RowPool(const Pool& pool, int64_t lanes) : pool_(pool), n_(pool.n), lanes_(lanes), last_(pool.Spatial() - 1) {
    const Extent& columns = n_.out().dims.back();
    part_ = columns.is_static() ? columns.value() : kPart;
    parts_ = CeilDiv(columns, part_);
  }

  // Other pools go window by window.
  bool Fits() const {
    const Tensor &x = n_.in(0), &out = n_.out();
    if (lanes_ == 1 || x.dtype == ir::DType::kBool) return false;
    if (columns_in().is_static() && columns_in().value() < lanes_) return false;
    if (stride() > 2 && stride() > pool_.w.kernel[last_]) return false;  // columns that no window meets
    if (pool_.w.kernel[last_] > kMaxTaps || OuterTaps() > kMaxTaps) return false;
    for (int i = 0; i <= last_; ++i) {
      // Each window meets the input; its row next to what it has beyond an end is one of its own, if not dilated.
      if (!EachMeets(x.dims[i + 2], out.dims[i + 2], i)) return false;
      if (i < last_ && !pool_.NeverPadded(i) && pool_.w.dilations[i] != 1) return false;
    }
    return (kLines * line_elements() + part_) * kMaxElementBytes <= kMaxLineBytes;
  }

  void Emit(FunctionEmitter& f) {
    const Shape outer(n_.out().dims.begin(), n_.out().dims.end() - 1);
    f.Parallel(Product(outer) * parts_, CyclesOfPart(),
               [&](Kernel& k, Value begin, Value end) { EmitItems(k, outer, begin, end); });
  }

 private:
  static constexpr int64_t kMaxTaps = 16, kLines = 2, kMaxElementBytes = 8, kMaxLineBytes = 64 << 10;
  static constexpr int64_t kPart = 512;  // columns of results

  // A line is of x's columns from `in_first` on, of which it has [begin, end); windows along it want the first
  // `wanted`.
  struct Part {
    Value first, columns;  // of results
    Value in_first, begin, end, wanted;
  };

  int64_t stride() const { return pool_.w.strides[last_]; }
  const Extent& columns_in() const { return n_.in(0).dims.back(); }
  bool IsWhole() const { return n_.out().dims.back().is_static() && columns_in().is_static(); }
  int64_t Reach() const { return (pool_.w.kernel[last_] - 1) * pool_.w.dilations[last_]; }
  int64_t OuterTaps() const { return Product(pool_.w.kernel) / pool_.w.kernel[last_]; }
  int64_t line_elements() const {
    const int64_t windows = (std::max(part_, lanes_) - 1) * stride() + Reach() + 1;
    return IsWhole() ? std::max(pool_.w.pads_begin[last_] + columns_in().value(), windows) : windows;
  }
  Cycles CyclesOfPart() const {
    const double vectors_in = static_cast<double>(CeilDiv(part_ * stride(), lanes_));
    const double vectors_out = static_cast<double>(CeilDiv(part_, stride() <= 2 ? lanes_ : 1));
    return 3 * (vectors_in * OuterTaps() + vectors_out * 2 * pool_.w.kernel[last_]) + 40;
  }

  bool EachMeets(const Extent& in, const Extent& out, int i) const {
    const int64_t begin = pool_.w.pads_begin[i], end = pool_.w.pads_end[i];
    if (begin < 0 || begin >= pool_.w.kernel[i]) return false;
    if (!in.is_static() || !out.is_static())
      return end >= 0 && begin + end <= (pool_.w.kernel[i] - 1) * pool_.w.dilations[i];
    return (out.value() - 1) * pool_.w.strides[i] - begin < in.value();
  }

  // Items are rows, in one part of all rows after the other.
  void EmitItems(Kernel& k, const Shape& outer, Value begin, Value end) {
    Ops& o = k.o;
    KernelBuilder& kb = o;
    scalar_ = o.ComputeType(n_.in(0).dtype);
    lines_ = k.Scratch((kLines * line_elements() + part_) * scalar_.getIntOrFloatBitWidth() / 8);
    counts_ = o.At(lines_, kLines * line_elements(), scalar_);
    if (parts_ == Extent(1)) return EmitRows(k, PartOf(o, o.Int(0)), outer, begin, end);
    kb.If(kb.Less(begin, end), [&] {  // else there may be no rows, and nothing divides by them
      const Value rows = kb.Int(Product(outer));
      kb.For(kb.Div(begin, Product(outer)), kb.Int(parts_), 1, [&](Value part) {
        const Value before = kb.Mul(part, rows);
        const Value first = kb.Max(kb.Sub(begin, before), kb.Int(0)), last = kb.Min(kb.Sub(end, before), rows);
        kb.If(kb.Less(first, last), [&] { EmitRows(k, PartOf(o, part), outer, first, last); });
      });
    });
  }

  void EmitRows(Kernel& k, const Part& part, const Shape& outer, Value begin, Value end) {
    Ops& o = k.o;
    if (CountsColumns()) CountColumns(o, part);
    // Rows do not touch what lies beyond their ends.
    for (int64_t line = 0; line < kLines; ++line) FillBeyond(o, part, o.At(lines_, line * line_elements(), scalar_));
    // The next row's line before this one's windows, which read across what was just stored (a processor's loads wait
    // for such stores to reach L1).
    auto reduce = [&](Value row, const Values& at) {
      o.If(o.Less(row, end), [&] { Reduce(k, part, at, Line(o, row)); });
    };
    Values first;
    for (const Index& i : Delinearise(o, begin, outer)) first.push_back(i.base);
    reduce(begin, first);
    o.For(begin, end, 1, first, [&](Value row, const Values& at) {
      const Values next = Next(o, at, outer);
      reduce(o.KernelBuilder::Add(row, 1), next);
      Slide(k, part, at, Line(o, row));
      return next;
    });
  }

  // Divisions would take longer than a short row's windows.
  Values Next(Ops& o, Values at, const Shape& outer) const {
    Value carry;  // i1; none: always
    for (size_t i = at.size(); i-- > 0;) {
      if (outer[i] == Extent(1)) continue;
      const Value up = o.KernelBuilder::Add(at[i], 1), is_last = o.Equal(up, o.Int(outer[i]));
      const Value next = o.KernelBuilder::Select(is_last, o.Int(0), up);
      at[i] = carry ? o.KernelBuilder::Select(carry, next, at[i]) : next;
      carry = carry ? o.KernelBuilder::And(carry, is_last) : is_last;
    }
    return at;
  }

  Part PartOf(Ops& o, Value number) const {
    KernelBuilder& kb = o;
    Part part;
    part.first = kb.Mul(number, part_);
    part.columns = kb.Min(kb.Int(part_), kb.Sub(kb.Int(n_.out().dims.back()), part.first));
    part.in_first = kb.Add(kb.Mul(part.first, stride()), -pool_.w.pads_begin[last_]);
    part.wanted = kb.Add(kb.Mul(kb.Add(part.columns, -1), stride()), Reach() + 1);
    part.begin = kb.Max(kb.Sub(kb.Int(0), part.in_first), kb.Int(0));
    const Value there = kb.Max(kb.Sub(kb.Int(columns_in()), part.in_first), part.begin);
    part.end = IsWhole() ? there : kb.Min(there, kb.Max(part.wanted, part.begin));
    return part;
  }

  Value Line(Ops& o, Value item) const {
    return o.At(lines_, o.KernelBuilder::Mul(o.KernelBuilder::Rem(item, kLines), line_elements()), scalar_);
  }

  mlir::Type VectorOf(int64_t lanes) const { return lanes == 1 ? scalar_ : KernelBuilder::Vector(lanes, scalar_); }
  Value Identity(Ops& o, mlir::Type type) const {
    return pool_.average ? o.ConstF(type, 0) : o.LowestN(n_.in(0).dtype, type);
  }
  Value Combine(Ops& o, Value x, Value y) const { return pool_.average ? o.AddF(x, y) : o.MaxN(n_.in(0).dtype, x, y); }

  void Fill(Ops& o, Value line, Value from, Value to, Value with) const {
    o.For(from, to, 1, [&](Value i) { o.Store(with, o.At(line, i, scalar_)); });
  }
  void FillBeyond(Ops& o, const Part& part, Value line) const {
    Fill(o, line, o.Int(0), part.begin, Identity(o, scalar_));
    Fill(o, line, part.end, IsWhole() ? o.Int(line_elements()) : part.wanted, Identity(o, scalar_));
  }

  // An average's windows differ in how many elements they count.
  bool CountsColumns() const { return pool_.average && !pool_.NeverPadded(last_); }
  void CountColumns(Ops& o, const Part& part) const {
    o.For(o.Int(0), part.columns, 1, [&](Value j) {
      const Value counted = pool_.Counted(o, last_, o.KernelBuilder::Add(part.first, j));
      o.Store(o.IntToFloat(counted, scalar_, true), o.At(counts_, j, scalar_));
    });
  }

  // The row's windows in all axes but the last, of every input column. Where an axis is padded, what lies beyond its
  // ends is its last row before them: of the same window, so that a maximum does not change; not counted in a sum.
  void Reduce(Kernel& k, const Part& part, const Values& row, Value line) {
    Ops& o = k.o;
    const Tensor& x = n_.in(0);
    struct Tap {
      Indices at;
      Value counts;  // i1; none: always
    };
    std::vector<Tap> taps = {{{row[0], row[1]}, {}}};
    for (int i = 0; i < last_; ++i) {
      const Value start =
          o.KernelBuilder::Add(o.KernelBuilder::Mul(row[i + 2], pool_.w.strides[i]), o.Int(-pool_.w.pads_begin[i]));
      std::vector<Tap> longer;
      for (const Tap& tap : taps) {
        for (int64_t t = 0; t < pool_.w.kernel[i]; ++t) {
          Tap& next = longer.emplace_back(tap);
          Value at = o.KernelBuilder::Add(start, t * pool_.w.dilations[i]);
          if (!pool_.NeverPadded(i)) {
            const Value last = o.KernelBuilder::Add(o.Int(x.dims[i + 2]), -1);
            const Value inside = o.Min(o.Max(at, o.Int(0)), last);
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
    EachVector(o, part.begin, part.end, IsWhole() && columns_in().value() % lanes_ == 0, {lanes_},
               [&](Value i, int64_t lanes) {
                 Eval e(k, lanes);
                 Value all;
                 for (const Tap& tap : taps) {
                   Indices at = tap.at;
                   at.push_back(Index(o.KernelBuilder::Add(part.in_first, i), lanes == 1 ? 0 : 1));
                   Value element = e.At(x, at);
                   if (tap.counts) element = o.KernelBuilder::Select(tap.counts, element, Identity(o, VectorOf(lanes)));
                   all = all ? Combine(o, all, element) : element;
                 }
                 o.Store(all, o.At(line, i, scalar_));
               });
  }

  // Vectors of [begin, end): the last begins earlier, unless all fit. Where there are fewer, of the next width, or one
  // by one.
  void EachVector(Ops& o, Value begin, Value end, bool all_fit, std::vector<int64_t> widths,
                  const std::function<void(Value i, int64_t lanes)>& body) const {
    const int64_t lanes = widths.front();
    widths.erase(widths.begin());
    auto vectors = [&] {
      o.For(begin, end, lanes, [&](Value i) {
        if (!all_fit && lanes > 1) i = o.Min(i, o.KernelBuilder::Add(end, -lanes));
        body(i, lanes);
      });
    };
    if (lanes == 1 || IsWhole()) return vectors();
    if (widths.empty()) widths = {1};
    o.If(
        o.Less(o.KernelBuilder::Sub(end, begin), o.Int(lanes)), [&] { EachVector(o, begin, end, false, widths, body); },
        vectors);
  }

  // Of vectors of results.
  std::vector<int64_t> SlideWidths() const {
    if (stride() > 2) return {1};
    int64_t lanes = lanes_;
    while (IsWhole() && lanes > part_) lanes /= 2;
    return IsWhole() || lanes < 8 ? std::vector<int64_t>{lanes} : std::vector<int64_t>{lanes, 4};
  }

  void Slide(Kernel& k, const Part& part, const Values& row, Value line) {
    Ops& o = k.o;
    const Value outer = pool_.average ? CountOuter(o, row) : Value();
    auto emit = [&](Value j, int64_t lanes) {
      Value result = Window(o, line, j, lanes);
      const Value column = o.KernelBuilder::Add(part.first, j);
      if (pool_.average) {
        const mlir::Type type = VectorOf(lanes);
        const Value columns = CountsColumns() ? o.Load(type, o.At(counts_, j, scalar_))
                                              : o.ConstF(type, static_cast<double>(pool_.w.kernel[last_]));
        result = o.DivF(result, o.MulF(columns, o.Broadcast(outer, lanes)));
      }
      Indices at(row.begin(), row.end());
      at.push_back(Index(column, lanes == 1 ? 0 : 1));
      k.StoreResult(n_.out(), at, result);
    };
    const std::vector<int64_t> widths = SlideWidths();
    EachVector(o, o.Int(0), part.columns, IsWhole() && part_ % widths[0] == 0, widths, emit);
  }

  // How many rows of the other axes a window of this row counts, as a scalar of the compute type.
  Value CountOuter(Ops& o, const Values& row) const {
    Value count = o.Int(1);
    for (int i = 0; i < last_; ++i) count = o.MulI(count, pool_.Counted(o, i, row[i + 2]));
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
  int64_t part_;  // columns of results
  Extent parts_;  // of a row
  Value lines_, counts_;
  mlir::Type scalar_;
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
  RowPool rows(pool, f.LanesFor({&x, &out}, x.dims.back()));
  if (rows.Fits()) {
    rows.Emit(f);
    return absl::OkStatus();
  }
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
    lowering.arg_use = ArgUse::kMany;
    lowering.kernel = [average](FunctionEmitter& f, const Node& n) { return PoolKernel(f, n, average); };
  }
  Lowering& pixels = (*table)[kPoolPixels];
  pixels.cost = 20;
  pixels.epilogue = true;
  pixels.arg_use = ArgUse::kMany;
  pixels.kernel = PoolPixels;
}

}  // namespace inlay::native
