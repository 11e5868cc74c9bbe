// ONNX's Resize: nearest, linear, cubic, separable over the axes whose extent or scale is not 1.
//
// Where an output position reads, and with which weights, are tables of an axis: constants of the module where both of
// its extents are known, else computed by a kernel of their own in each call, by the same formulas.
#include <algorithm>
#include <cmath>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using ir::DType;
using mlir::Value;

// An f64 that is known, or a value of the run. Arithmetic folds, as Extent's.
class Number {
 public:
  Number(double known) : known_(known) {}  // NOLINT: implicit, so that formulas read as such
  Number(Ops& o, Value value) : o_(&o), value_(value) {}

  double known() const { return known_; }
  Value In(Ops& o) const { return o_ == nullptr ? o.ConstF(o.b.getF64Type(), known_) : value_; }

  friend Number operator+(const Number& x, const Number& y) {
    return Make(x, y, [](double a, double b) { return a + b; }, &Ops::AddF);
  }
  friend Number operator-(const Number& x, const Number& y) {
    return Make(x, y, [](double a, double b) { return a - b; }, &Ops::SubF);
  }
  friend Number operator*(const Number& x, const Number& y) {
    return Make(x, y, [](double a, double b) { return a * b; }, &Ops::MulF);
  }
  friend Number operator/(const Number& x, const Number& y) {
    return Make(x, y, [](double a, double b) { return a / b; }, &Ops::DivF);
  }
  friend Number Floor(const Number& x) {
    return x.o_ == nullptr ? Number(std::floor(x.known_)) : Number(*x.o_, x.o_->Floor(x.value_));
  }
  // x < y ? then : otherwise
  friend Number IfLess(const Number& x, const Number& y, const Number& then, const Number& otherwise) {
    Ops* o = x.o_ != nullptr ? x.o_ : y.o_;
    if (o == nullptr) return x.known_ < y.known_ ? then : otherwise;
    return Number(*o, o->Select(o->CompareF(Compare::kLt, x.In(*o), y.In(*o)), then.In(*o), otherwise.In(*o)));
  }

 private:
  static Number Make(const Number& x, const Number& y, double (*fold)(double, double),
                     Value (Ops::*emit)(Value, Value)) {
    Ops* o = x.o_ != nullptr ? x.o_ : y.o_;
    return o == nullptr ? Number(fold(x.known_, y.known_)) : Number(*o, (o->*emit)(x.In(*o), y.In(*o)));
  }

  double known_ = 0;
  Ops* o_ = nullptr;
  Value value_;
};

struct Axis {
  Number in, out, scale;
};

// An element of the input along an axis, inside it, and its weight.
struct Tap {
  Number index, weight;
};

class Formula {
 public:
  explicit Formula(const ir::Attrs& attrs)
      : mode_(attrs.StringOr("mode", "nearest")),
        coordinate_(attrs.StringOr("coordinate", "half_pixel")),
        nearest_(attrs.StringOr("nearest_mode", "round_prefer_floor")),
        c_(attrs.FloatOr("cubic_coeff", -0.75)),
        exclude_(attrs.BoolOr("exclude_outside", false)) {}

  bool nearest() const { return mode_ == "nearest"; }
  bool aligns_corners() const { return coordinate_ == "align_corners"; }
  int64_t taps() const { return nearest() ? 1 : mode_ == "linear" ? 2 : 4; }

  // Those of an output position, from left to right. No tap moves to the left from one position to the next.
  std::vector<Tap> At(const Axis& a, const Number& position) const {
    const Number x = Coordinate(a, position), low = Floor(x);
    std::vector<Tap> taps;
    if (nearest()) {
      taps = {{Nearest(x), 1}};
    } else if (mode_ == "linear") {
      const Number r = x - low;
      taps = {{low, 1 - r}, {low + 1, r}};
    } else {
      const Number r = x - low, c = c_;
      taps = {{low - 1, ((c * (r + 1) - 5 * c) * (r + 1) + 8 * c) * (r + 1) - 4 * c},
              {low, ((c + 2) * r - (c + 3)) * r * r + 1},
              {low + 1, ((c + 2) * (1 - r) - (c + 3)) * (1 - r) * (1 - r) + 1},
              {low + 2, ((c * (2 - r) - 5 * c) * (2 - r) + 8 * c) * (2 - r) - 4 * c}};
    }
    if (exclude_ && !nearest()) {
      Number sum = 0;
      for (Tap& tap : taps) {
        tap.weight = IfLess(tap.index, 0, 0, IfLess(tap.index, a.in, tap.weight, 0));
        sum = sum + tap.weight;
      }
      for (Tap& tap : taps) tap.weight = tap.weight / sum;
    }
    const Number last = IfLess(1, a.in, a.in - 1, 0);
    for (Tap& tap : taps) tap.index = IfLess(0, tap.index, IfLess(tap.index, last, tap.index, last), 0);
    return taps;
  }

 private:
  Number Coordinate(const Axis& a, const Number& x) const {
    if (coordinate_ == "half_pixel") return (x + 0.5) / a.scale - 0.5;
    if (coordinate_ == "half_pixel_symmetric") {
      const Number adjustment = a.out / (a.scale * a.in);
      return a.in / 2 * (1 - adjustment) + (x + 0.5) / a.scale - 0.5;
    }
    if (coordinate_ == "pytorch_half_pixel") return IfLess(1, a.out, (x + 0.5) / a.scale - 0.5, 0);
    if (coordinate_ == "align_corners") return IfLess(1, a.out, x * (a.in - 1) / (a.out - 1), 0);
    return x / a.scale;  // asymmetric
  }

  Number Nearest(const Number& x) const {
    const Number low = Floor(x), fraction = x - low;
    if (nearest_ == "floor") return low;
    if (nearest_ == "ceil") return IfLess(0, fraction, low + 1, low);
    return nearest_ == "round_prefer_ceil" ? IfLess(fraction, 0.5, low, low + 1) : IfLess(0.5, fraction, low + 1, low);
  }

  std::string mode_, coordinate_, nearest_;
  double c_;
  bool exclude_;
};

// Of known extents: what each position of an axis reads.
struct Taps {
  std::vector<std::vector<int64_t>> index;  // [tap][position], inside the input
  std::vector<std::vector<double>> weight;  // likewise
};

Taps KnownTaps(const Formula& formula, int64_t in, int64_t out, double scale) {
  const Axis axis{static_cast<double>(in), static_cast<double>(out), scale};
  Taps taps;
  taps.index.assign(formula.taps(), std::vector<int64_t>(out));
  taps.weight.assign(formula.taps(), std::vector<double>(out));
  for (int64_t position = 0; position < out; ++position) {
    const std::vector<Tap> at = formula.At(axis, static_cast<double>(position));
    for (size_t t = 0; t < at.size(); ++t) {
      taps.index[t][position] = static_cast<int64_t>(at[t].index.known());
      taps.weight[t][position] = at[t].weight.known();
    }
  }
  return taps;
}

// An axis that is resized. Its tables have an index of `index_type` and a weight (none: nearest) for each position:
// small constants of the module, or temporaries that FillTables computes.
struct Table {
  int axis;
  Extent in, out;
  double scale;  // 0: that of the extents
  DType index_type = DType::kI64;
  Taps taps = {};  // where the extents are known
  std::vector<Buffer> index = {}, weight = {};

  bool is_known() const { return in.is_static() && out.is_static(); }
  Value Index(Kernel& k, size_t tap, Value position) const {
    const Value index = k.o.LoadElements(index_type, k.Pointer(this->index[tap]), position, 1);
    return index_type == DType::kI64 ? index : k.o.ExtendI(index, k.o.b.getI64Type(), true);
  }
};

template <typename T>
Buffer DataOf(FunctionEmitter& f, const std::vector<T>& values) {
  return f.Data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

// Weights are f32 (f64 for f64), as `weight_type` says.
void FillTables(FunctionEmitter& f, const Formula& formula, DType weight_type, Table* table) {
  if (table->is_known()) {
    table->taps = KnownTaps(formula, table->in.value(), table->out.value(), table->scale);
    for (const std::vector<int64_t>& values : table->taps.index) table->index.push_back(DataOf(f, values));
    for (const std::vector<double>& values : table->taps.weight) {
      std::vector<float> narrow(values.begin(), values.end());
      table->weight.push_back(weight_type == DType::kF64 ? DataOf(f, values) : DataOf(f, narrow));
    }
    return;
  }
  for (int64_t t = 0; t < formula.taps(); ++t) {
    table->index.push_back(f.Temporary(table->out * ir::ByteSize(table->index_type)));
    if (!formula.nearest()) table->weight.push_back(f.Temporary(table->out * ir::ByteSize(weight_type)));
  }
  f.ParallelEach(table->out, 50.0 * formula.taps(), [&](Kernel& k, Value position) {
    Ops& o = k.o;
    auto number = [&](Value x) { return Number(o, o.IntToFloat(x, o.b.getF64Type(), true)); };
    Axis axis{number(o.Int(table->in)), number(o.Int(table->out)), table->scale};
    if (table->scale == 0) axis.scale = axis.out / axis.in;
    const std::vector<Tap> taps = formula.At(axis, number(position));
    for (size_t t = 0; t < taps.size(); ++t) {
      const Value index = o.FloatToInt(taps[t].index.In(o), o.ComputeType(table->index_type));
      o.StoreElements(table->index_type, index, k.Pointer(table->index[t]), position);
      if (formula.nearest()) continue;
      Value weight = taps[t].weight.In(o);
      if (weight_type == DType::kF32) weight = o.TruncateF(weight, o.b.getF32Type());
      o.StoreElements(weight_type, weight, k.Pointer(table->weight[t]), position);
    }
  });
}

// Where the vectors of `lanes` along the last axis come from: vector j's taps are among `window` consecutive elements
// from base[tap][j] on, at relative[tap][j * lanes ...].
struct Windows {
  std::vector<std::vector<int64_t>> base;
  std::vector<std::vector<int32_t>> relative;
  std::vector<std::vector<float>> weight;
};

// One window for all taps where it holds them, else one for each. False: neither does.
bool FindWindows(const Taps& taps, int64_t in, int64_t out, int64_t window, int64_t lanes, Windows* windows) {
  int64_t count = static_cast<int64_t>(taps.index.size());
  auto fill = [&](bool joint) {
    *windows = {};
    for (int64_t tap = 0; tap < count; ++tap) {
      std::vector<int64_t> bases;
      std::vector<int32_t> relative;
      std::vector<float> weight;
      for (int64_t begin = 0; begin < out; begin += lanes) {
        int64_t first = std::min(begin, out - lanes), base = in - window;
        for (int64_t t = joint ? 0 : tap; t < (joint ? count : tap + 1); ++t) {
          for (int64_t i = first; i < first + lanes; ++i) base = std::min(base, taps.index[t][i]);
        }
        bases.push_back(base);
        for (int64_t i = first; i < first + lanes; ++i) {
          if (taps.index[tap][i] - base >= window) return false;
          relative.push_back(static_cast<int32_t>(taps.index[tap][i] - base));
          weight.push_back(static_cast<float>(taps.weight[tap][i]));
        }
      }
      windows->base.push_back(bases);
      windows->relative.push_back(relative);
      windows->weight.push_back(weight);
    }
    return true;
  };
  return fill(true) || fill(false);
}

// Of two axes as one: every tap of the one with every tap of the other.
Taps Combine(const Taps& rows, const Taps& columns, int64_t in_columns) {
  Taps taps;
  for (size_t r = 0; r < rows.index.size(); ++r) {
    for (size_t c = 0; c < columns.index.size(); ++c) {
      taps.index.emplace_back();
      taps.weight.emplace_back();
      for (size_t i = 0; i < rows.index[r].size(); ++i) {
        for (size_t j = 0; j < columns.index[c].size(); ++j) {
          taps.index.back().push_back(rows.index[r][i] * in_columns + columns.index[c][j]);
          taps.weight.back().push_back(rows.weight[r][i] * columns.weight[c][j]);
        }
      }
    }
  }
  return taps;
}

// How vectors along the last axis, of `lanes` results, find their taps.
struct Row {
  Extent width;
  size_t taps;
  int64_t window_lanes, lanes;
  std::function<bool(size_t tap)> shares;  // the window of the tap before it
  // Of vector j, whose first lane is `first` but for the last one's. Where a tap's window begins; where in it the lanes
  // are, as i32; the weights.
  std::function<Value(Kernel&, size_t tap, Value j)> base;
  std::function<Value(Kernel&, size_t tap, Value first, Value base)> relative;
  std::function<Value(Kernel&, size_t tap, Value first)> weight;
};

// Vectors are permutations of windows of consecutive elements, which the other axes' taps are summed up in first.
// flat: rows of the last two axes as one.
void EmitRows(FunctionEmitter& f, const Node& n, const std::vector<Table>& tables, size_t others, const Row& r,
              const Shape& outer, bool nearest, const ShapeMap* flat) {
  const Tensor &x = n.in(0), &out = n.out();
  int64_t points = static_cast<int64_t>(r.taps);
  for (size_t t = 0; t < others; ++t) points *= static_cast<int64_t>(tables[t].index.size());
  const Extent vectors = CeilDiv(r.width, r.lanes);
  f.ParallelEach(Product(outer), Cycles(vectors) * static_cast<double>(points + 4), [&](Kernel& k, Value item) {
    Ops& o = k.o;
    if (flat != nullptr) k.shapes = *flat;
    Indices row = Delinearise(o, item, outer);
    // Of the other axes, the same for the whole row.
    std::vector<std::vector<Value>> indices(others), weights(others);
    for (size_t t = 0; t < others; ++t) {
      Value position = row[tables[t].axis].base;
      for (size_t tap = 0; tap < tables[t].index.size(); ++tap) {
        indices[t].push_back(tables[t].Index(k, tap, position));
        if (nearest) continue;
        weights[t].push_back(
            o.Broadcast(o.LoadElements(DType::kF32, k.Pointer(tables[t].weight[tap]), position), r.window_lanes));
      }
    }
    o.For(o.Int(0), o.Int(vectors), 1, [&](Value j) {
      Eval e(k, r.window_lanes);
      std::function<Value(size_t, Indices)> sum_of_others = [&](size_t t, Indices from) -> Value {
        if (t == others) return e.At(x, from);
        Value sum;
        for (size_t tap = 0; tap < indices[t].size(); ++tap) {
          from[tables[t].axis] = indices[t][tap];
          Value v = sum_of_others(t + 1, from);
          if (nearest) return v;
          sum = sum ? o.Fma(v, weights[t][tap], sum) : o.MulF(v, weights[t][tap]);
        }
        return sum;
      };
      auto permuted = [&](Value x, Value lane) {
        if (r.lanes == r.window_lanes) return o.Permute(x, lane);
        std::vector<int64_t> low, twice;
        for (int64_t i = 0; i < r.window_lanes; ++i) twice.push_back(i % r.lanes);
        for (int64_t i = 0; i < r.lanes; ++i) low.push_back(i);
        Value wide = o.Permute(x, o.Shuffle(lane, lane, twice));
        return o.Shuffle(wide, wide, low);
      };
      Value first = o.Mul(j, r.lanes), base, window, sum;
      for (size_t tap = 0; tap < r.taps; ++tap) {
        if (tap == 0 || !r.shares(tap)) {
          Indices from = row;
          base = r.base(k, tap, j);
          from.emplace_back(base, 1);
          // x has memory, in which the rows of an image follow each other. An index of an extent of 1 is left out of
          // addresses.
          if (flat != nullptr) from.insert(x.dims.back() == Extent(1) ? from.end() : from.end() - 1, e.Constant(0));
          window = sum_of_others(0, from);
        }
        Value v = permuted(window, r.relative(k, tap, first, base));
        if (!nearest) {
          Value w = r.weight(k, tap, first);
          v = sum ? o.Fma(v, w, sum) : o.MulF(v, w);
        }
        sum = v;
      }
      Indices at = row;
      at.emplace_back(o.Min(first, o.Int(r.width - r.lanes)), 1);
      k.StoreResult(out, at, sum);
    });
  });
}

// Of f32, f16 and bf16 whose last axis is one of those resized. Windows are where they are found while compiling; where
// the row shrinks to not less than about a half, for half a vector each. Small images, with rows shorter than a vector:
// along both axes, as one. False: something else must do.
bool ResizeKnownRows(FunctionEmitter& f, const Node& n, const std::vector<Table>& tables, bool nearest) {
  const Tensor &x = n.in(0), &out = n.out();
  int last = out.rank() - 1;
  Shape outer(out.dims.begin(), out.dims.end() - 1);
  Taps taps = tables.back().taps;
  int64_t in = x.dims[last].value(), width = out.dims[last].value();
  size_t others = tables.size() - 1;
  ShapeMap shapes;
  std::vector<int> groups(std::max(last - 1, 0), 1);
  groups.push_back(2);
  int64_t whole = f.cpu().core.vector_bytes / 4;
  bool flat = others == 1 && tables[0].axis == last - 1 && tables[0].is_known() && !x.inlined && in < whole &&
              width < 2 * whole && width * outer.back().value() <= 4096 && f.MergeDims(n, groups, &shapes);
  if (flat) {
    taps = Combine(tables[0].taps, tables[1].taps, in);
    in *= x.dims[last - 1].value();
    width *= outer.back().value();
    outer.pop_back();
    others = 0;
  }
  Row row;
  row.width = width;
  row.taps = taps.index.size();
  row.window_lanes = std::min(f.LanesFor({&x, &out}, width), f.LanesFor({&x, &out}, in));
  row.lanes = row.window_lanes;
  Windows windows;
  if (!f.ops().CanPermute(row.lanes)) return false;
  if (!FindWindows(taps, in, width, row.lanes, row.lanes, &windows)) {
    row.lanes /= 2;
    if (!FindWindows(taps, in, width, row.window_lanes, row.lanes, &windows)) return false;
  }
  std::vector<Buffer> base, relative, weight;
  row.shares = [&](size_t tap) { return windows.base[tap] == windows.base[tap - 1]; };
  for (size_t tap = 0; tap < row.taps; ++tap) {
    base.push_back(tap > 0 && row.shares(tap) ? base.back() : DataOf(f, windows.base[tap]));
    relative.push_back(DataOf(f, windows.relative[tap]));
    weight.push_back(DataOf(f, windows.weight[tap]));
  }
  row.base = [&](Kernel& k, size_t tap, Value j) { return k.o.LoadElements(DType::kI64, k.Pointer(base[tap]), j); };
  row.relative = [&](Kernel& k, size_t tap, Value first, Value) {
    return k.o.LoadElements(DType::kI32, k.Pointer(relative[tap]), first, row.lanes);
  };
  row.weight = [&](Kernel& k, size_t tap, Value first) {
    return k.o.LoadElements(DType::kF32, k.Pointer(weight[tap]), first, row.lanes);
  };
  EmitRows(f, n, tables, others, row, outer, nearest, flat ? &shapes : nullptr);
  return true;
}

// The same where the last axis is open. A window begins at its first lane's tap: one holds all taps where the axis
// grows by enough, else each tap has its own, which holds it unless the axis shrinks. Half vectors where it shrinks by
// a scale that is known. Calls in which no window fits go element by element.
bool ResizeOpenRows(FunctionEmitter& f, const Node& n, const std::vector<Table>& tables, const Formula& formula,
                    const std::function<void()>& by_element) {
  const Tensor &x = n.in(0), &out = n.out();
  const Table& columns = tables.back();
  const double scale = formula.aligns_corners() ? 0 : columns.scale;  // of coordinates; 0: not known
  const bool shrinks = scale != 0 && scale < 1;
  if (shrinks && scale < 0.5) return false;
  const int64_t whole = std::min(f.LanesFor({&x, &out}, columns.out), f.LanesFor({&x, &out}, columns.in));
  if (!f.ops().CanPermute(whole)) return false;
  const Shape outer(out.dims.begin(), out.dims.end() - 1);
  auto emit = [&](int64_t window) {
    Row row;
    row.width = columns.out;
    row.taps = columns.index.size();
    row.window_lanes = window;
    row.lanes = shrinks ? window / 2 : window;
    const double span = std::ceil(static_cast<double>(row.lanes - 1) / scale) + static_cast<double>(row.taps);
    const bool joint = scale != 0 && span <= static_cast<double>(window);
    row.shares = [joint](size_t) { return joint; };
    // The last vector begins earlier.
    auto begin = [&](Ops& o, Value first) { return o.Min(first, o.Int(row.width - row.lanes)); };
    row.base = [&](Kernel& k, size_t tap, Value j) {
      const Value at = columns.Index(k, tap, begin(k.o, k.o.Mul(j, row.lanes)));
      return k.o.Min(at, k.o.Int(columns.in - window));
    };
    row.relative = [&](Kernel& k, size_t tap, Value first, Value base) {
      Ops& o = k.o;
      const Value from = o.Broadcast(o.TruncateI(base, o.b.getI32Type()), row.lanes);
      return o.SubI(o.LoadElements(columns.index_type, k.Pointer(columns.index[tap]), begin(o, first), row.lanes),
                    from);
    };
    row.weight = [&](Kernel& k, size_t tap, Value first) {
      return k.o.LoadElements(DType::kF32, k.Pointer(columns.weight[tap]), begin(k.o, first), row.lanes);
    };
    EmitRows(f, n, tables, tables.size() - 1, row, outer, formula.nearest(), nullptr);
  };
  using Conditions = std::vector<FunctionEmitter::Condition>;
  if (shrinks) {
    f.Either({{columns.in, whole, INT64_MAX}, {columns.out, whole / 2, INT64_MAX}}, [&] { emit(whole); }, by_element);
    return true;
  }
  auto fits = [&](int64_t least, int64_t most) {
    return Conditions{{columns.in, least, most}, {columns.out - columns.in, 0, INT64_MAX}};
  };
  int64_t least = whole;
  f.Either(fits(whole, INT64_MAX), [&] { emit(whole); }, [] {});
  for (; f.ops().CanPermute(least / 2); least /= 2) {
    f.Either(fits(least / 2, least - 1), [&] { emit(least / 2); }, [] {});
  }
  f.Either(fits(least, INT64_MAX), [] {}, by_element);
  return true;
}

// One element after another, or vectors of them whose lanes read each for itself.
void ResizeElements(FunctionEmitter& f, const Node& n, const std::vector<Table>& tables, bool nearest, DType acc,
                    int64_t lanes) {
  const Tensor &x = n.in(0), &out = n.out();
  const Shape outer(out.dims.begin(), out.rank() > 0 ? out.dims.end() - 1 : out.dims.end());
  const Extent inner = out.rank() > 0 ? out.dims.back() : 1;
  int64_t points = 1;
  for (const Table& table : tables) points *= static_cast<int64_t>(table.index.size());
  f.ParallelEach(Product(outer), Cycles(inner) * static_cast<double>(points) * 4 / lanes, [&](Kernel& k, Value item) {
    Ops& o = k.o;
    Indices row = Delinearise(o, item, outer);
    o.For(o.Int(0), o.Int(inner), lanes, [&](Value i) {
      if (!inner.IsMultipleOf(lanes)) i = o.Min(i, o.Int(inner - lanes));
      Indices at = row;
      if (out.rank() > 0) at.push_back(Index(i, lanes == 1 ? 0 : 1));
      Eval e(k, lanes);
      std::function<Value(size_t, Indices)> nest = [&](size_t t, Indices from) -> Value {
        if (t == tables.size()) return e.At(x, from);
        const Table& table = tables[t];
        const Index& position = at[table.axis];
        Value sum;
        for (size_t tap = 0; tap < table.index.size(); ++tap) {
          if (position.uniform()) {
            from[table.axis] = table.Index(k, tap, position.base);
          } else {
            Index irregular;
            for (int64_t l = 0; l < lanes; ++l) irregular.lanes.push_back(table.Index(k, tap, e.Lane(position, l)));
            from[table.axis] = irregular;
          }
          Value v = nest(t + 1, from);
          if (!nearest) {
            Value weights = k.Pointer(table.weight[tap]);
            Value w = position.uniform() ? o.Broadcast(o.LoadElements(acc, weights, position.base, 1), lanes)
                                         : o.LoadElements(acc, weights, position.base, lanes);
            v = o.MulF(v, w);
            v = sum ? o.AddF(sum, v) : v;
          }
          sum = v;
        }
        return sum;
      };
      k.StoreResult(out, at, nest(0, at));
    });
  });
}

absl::Status Resize(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &out = n.out();
  if (out.IsEmpty()) return absl::OkStatus();
  if (x.IsEmpty()) return absl::InvalidArgumentError("native: resize of a tensor without elements");
  const Formula formula(*n.attrs);
  const bool nearest = formula.nearest();
  const std::vector<double> scales = n.attrs->Floats("scales");
  DType acc = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<Table> tables;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.dims[i] == out.dims[i] && scales[i] == 1.0) continue;
    Table& table = tables.emplace_back(Table{i, x.dims[i], out.dims[i], scales[i]});
    if (!table.is_known()) table.index_type = DType::kI32;
    FillTables(f, formula, acc, &table);
  }
  const Extent inner = out.rank() > 0 ? out.dims.back() : 1;
  bool vary = !tables.empty() && tables.back().axis == out.rank() - 1;  // the last axis is resized
  if (vary && ir::IsFloat(x.dtype) && x.dtype != DType::kF64) {
    auto by_element = [&] { ResizeElements(f, n, tables, nearest, acc, 1); };
    if (tables.back().is_known() ? ResizeKnownRows(f, n, tables, nearest)
                                 : ResizeOpenRows(f, n, tables, formula, by_element)) {
      return absl::OkStatus();
    }
  }
  int64_t wanted = f.LanesFor({&x, &out}, inner);
  if (nearest && vary) wanted = 1;
  f.WithLanesOrScalar(inner, wanted, nearest ? 2 : 1000,
                      [&](int64_t lanes) { ResizeElements(f, n, tables, nearest, acc, lanes); });
  return absl::OkStatus();
}

}  // namespace

void RegisterResize(LoweringTable* table) {
  Lowering& resize = (*table)["resize"];
  resize.cost = 40;
  resize.epilogue = true;
  resize.arg_use = ArgUse::kMany;
  resize.kernel = Resize;
}

}  // namespace inlay::native
