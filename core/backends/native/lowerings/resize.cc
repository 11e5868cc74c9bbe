// ONNX's Resize: nearest, linear, cubic, separable over the axes whose extent or scale is not 1.
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

// Which elements of the input an output position along an axis reads, and with which weights: all known now.
struct Taps {
  std::vector<std::vector<int64_t>> index;  // [tap][position], inside the input
  std::vector<std::vector<double>> weight;  // likewise
};

struct Axis {
  int64_t in, out;
  double scale;
};

double Coordinate(const std::string& mode, const Axis& a, int64_t position) {
  double x = static_cast<double>(position);
  double out = static_cast<double>(a.out), in = static_cast<double>(a.in);
  if (mode == "half_pixel") return (x + 0.5) / a.scale - 0.5;
  if (mode == "half_pixel_symmetric") {
    double adjustment = out / (a.scale * in);
    return in / 2 * (1 - adjustment) + (x + 0.5) / a.scale - 0.5;
  }
  if (mode == "pytorch_half_pixel") return a.out > 1 ? (x + 0.5) / a.scale - 0.5 : 0.0;
  if (mode == "align_corners") return a.out > 1 ? x * (in - 1) / (out - 1) : 0.0;
  return x / a.scale;  // asymmetric
}

int64_t Nearest(const std::string& mode, double x) {
  double low = std::floor(x), fraction = x - low;
  if (mode == "floor") return static_cast<int64_t>(low);
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  bool up = mode == "round_prefer_ceil" ? fraction >= 0.5 : fraction > 0.5;
  return static_cast<int64_t>(low) + (up ? 1 : 0);
}

Taps TapsOf(const ir::Attrs& attrs, const Axis& a) {
  std::string mode = attrs.StringOr("mode", "nearest"), coordinate = attrs.StringOr("coordinate", "half_pixel");
  std::string nearest = attrs.StringOr("nearest_mode", "round_prefer_floor");
  double c = attrs.FloatOr("cubic_coeff", -0.75);
  bool exclude = attrs.BoolOr("exclude_outside", false);
  int64_t count = mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  Taps taps;
  taps.index.assign(count, std::vector<int64_t>(a.out));
  taps.weight.assign(count, std::vector<double>(a.out, 1));
  for (int64_t position = 0; position < a.out; ++position) {
    double x = Coordinate(coordinate, a, position);
    std::vector<int64_t> from(count);
    std::vector<double> weights(count, 1);
    if (mode == "nearest") {
      from[0] = Nearest(nearest, x);
    } else {
      int64_t low = static_cast<int64_t>(std::floor(x));
      double r = x - static_cast<double>(low);
      if (mode == "linear") {
        from = {low, low + 1};
        weights = {1 - r, r};
      } else {
        from = {low - 1, low, low + 1, low + 2};
        weights = {((c * (r + 1) - 5 * c) * (r + 1) + 8 * c) * (r + 1) - 4 * c, ((c + 2) * r - (c + 3)) * r * r + 1,
                   ((c + 2) * (1 - r) - (c + 3)) * (1 - r) * (1 - r) + 1,
                   ((c * (2 - r) - 5 * c) * (2 - r) + 8 * c) * (2 - r) - 4 * c};
      }
      if (exclude) {
        double sum = 0;
        for (int64_t t = 0; t < count; ++t) {
          if (from[t] < 0 || from[t] >= a.in) weights[t] = 0;
          sum += weights[t];
        }
        for (double& w : weights) w /= sum;
      }
    }
    for (int64_t t = 0; t < count; ++t) {
      taps.index[t][position] = std::min(std::max<int64_t>(from[t], 0), std::max<int64_t>(a.in - 1, 0));
      taps.weight[t][position] = weights[t];
    }
  }
  return taps;
}

std::vector<Axis> AxesOf(const Node& n) {
  std::vector<double> scales = n.attrs->Floats("scales");
  std::vector<Axis> axes;
  for (int i = 0; i < n.in(0).rank(); ++i) axes.push_back({n.in(0).shape[i], n.out().shape[i], scales[i]});
  return axes;
}

bool Trivial(const Axis& a) { return a.in == a.out && a.scale == 1.0; }

// An axis that is resized. The tables are small constants of the module: indices as i64, weights as f32 (f64 for f64).
struct Table {
  int axis;
  Taps taps;
  std::vector<Buffer> index, weight;
};

template <typename T>
Buffer DataOf(FunctionEmitter& f, const std::vector<T>& values) {
  return f.Data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
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

// The last axis is one of those resized: vectors along it are permutations of consecutive elements (where it shrinks to
// not less than about a half, as many of half a vector), which the other axes' taps are summed up in first. Small
// images, with rows shorter than a vector: along both axes, as one. False: something else must do.
bool ResizeRows(FunctionEmitter& f, const Node& n, const std::vector<Table>& tables, bool nearest) {
  const Tensor &x = n.in(0), &out = n.out();
  int last = out.rank() - 1;
  if (!ir::IsFloat(x.dtype) || x.dtype == DType::kF64) return false;
  std::vector<int64_t> outer(out.shape.begin(), out.shape.end() - 1);
  Taps taps = tables.back().taps;
  int64_t in = x.shape[last], width = out.shape[last];
  size_t others = tables.size() - 1;
  ShapeMap shapes;
  std::vector<int> groups(std::max(last - 1, 0), 1);
  groups.push_back(2);
  int64_t whole = f.cpu().core.vector_bytes / 4;
  bool flat = others == 1 && tables[0].axis == last - 1 && !x.inlined && in < whole && width < 2 * whole &&
              width * outer.back() <= 4096 && f.MergeDims(n, groups, &shapes);
  if (flat) {
    taps = Combine(tables[0].taps, tables[1].taps, in);
    in *= x.shape[last - 1];
    width *= outer.back();
    outer.pop_back();
    others = 0;
  }
  int64_t window_lanes = std::min(f.LanesFor({&x, &out}, width), f.LanesFor({&x, &out}, in)), lanes = window_lanes;
  Windows windows;
  if (!f.ops().CanPermute(lanes)) return false;
  if (!FindWindows(taps, in, width, lanes, lanes, &windows)) {
    lanes /= 2;
    if (!FindWindows(taps, in, width, window_lanes, lanes, &windows)) return false;
  }
  std::vector<Buffer> base, relative, weight;
  for (size_t tap = 0; tap < windows.base.size(); ++tap) {
    bool same = tap > 0 && windows.base[tap] == windows.base[tap - 1];
    base.push_back(same ? base.back() : DataOf(f, windows.base[tap]));
    relative.push_back(DataOf(f, windows.relative[tap]));
    weight.push_back(DataOf(f, windows.weight[tap]));
  }
  int64_t points = static_cast<int64_t>(taps.index.size());
  for (size_t t = 0; t < others; ++t) points *= static_cast<int64_t>(tables[t].index.size());
  int64_t vectors = CeilDiv(width, lanes);
  f.ParallelEach(Product(outer), static_cast<double>(vectors * (points + 4)), [&](Kernel& k, Value item) {
    Ops& o = k.o;
    if (flat) k.shapes = shapes;
    Indices row = Delinearise(o, item, outer);
    // Of the other axes, the same for the whole row.
    std::vector<std::vector<Value>> indices(others), weights(others);
    for (size_t t = 0; t < others; ++t) {
      Value position = row[tables[t].axis].base;
      for (size_t tap = 0; tap < tables[t].index.size(); ++tap) {
        indices[t].push_back(o.LoadElements(DType::kI64, k.Pointer(tables[t].index[tap]), position));
        if (nearest) continue;
        weights[t].push_back(
            o.Broadcast(o.LoadElements(DType::kF32, k.Pointer(tables[t].weight[tap]), position), window_lanes));
      }
    }
    o.For(o.Int(0), o.Int(vectors), 1, [&](Value j) {
      Eval e(k, window_lanes);
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
        if (lanes == window_lanes) return o.Permute(x, lane);
        std::vector<int64_t> low, twice;
        for (int64_t i = 0; i < window_lanes; ++i) twice.push_back(i % lanes);
        for (int64_t i = 0; i < lanes; ++i) low.push_back(i);
        Value wide = o.Permute(x, o.Shuffle(lane, lane, twice));
        return o.Shuffle(wide, wide, low);
      };
      Value first = o.Mul(j, lanes), window, sum;
      for (size_t tap = 0; tap < base.size(); ++tap) {
        if (tap == 0 || windows.base[tap] != windows.base[tap - 1]) {
          Indices from = row;
          from.emplace_back(o.LoadElements(DType::kI64, k.Pointer(base[tap]), j), 1);
          // x has memory, in which the rows of an image follow each other. An index of an extent of 1 is left out of
          // addresses.
          if (flat) from.insert(x.shape[last] == 1 ? from.end() : from.end() - 1, e.Constant(0));
          window = sum_of_others(0, from);
        }
        Value v = permuted(window, o.LoadElements(DType::kI32, k.Pointer(relative[tap]), first, lanes));
        if (!nearest) {
          Value w = o.LoadElements(DType::kF32, k.Pointer(weight[tap]), first, lanes);
          v = sum ? o.Fma(v, w, sum) : o.MulF(v, w);
        }
        sum = v;
      }
      Indices at = row;
      at.emplace_back(o.Min(first, o.Int(width - lanes)), 1);
      k.StoreResult(out, at, sum);
    });
  });
  return true;
}

absl::Status Resize(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &out = n.out();
  if (out.NumElements() == 0) return absl::OkStatus();
  if (x.NumElements() == 0) return absl::InvalidArgumentError("native: resize of a tensor without elements");
  std::vector<Axis> axes = AxesOf(n);
  bool nearest = n.attrs->StringOr("mode", "nearest") == "nearest";
  DType acc = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<Table> tables;
  int64_t points = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (Trivial(axes[i])) continue;
    Table table{i, TapsOf(*n.attrs, axes[i]), {}, {}};
    points *= static_cast<int64_t>(table.taps.index.size());
    for (const std::vector<int64_t>& values : table.taps.index) table.index.push_back(DataOf(f, values));
    for (const std::vector<double>& values : table.taps.weight) {
      std::vector<float> narrow(values.begin(), values.end());
      table.weight.push_back(acc == DType::kF64 ? DataOf(f, values) : DataOf(f, narrow));
    }
    tables.push_back(std::move(table));
  }
  std::vector<int64_t> outer(out.shape.begin(), out.rank() > 0 ? out.shape.end() - 1 : out.shape.end());
  int64_t inner = out.rank() > 0 ? out.shape.back() : 1;
  bool vary = !tables.empty() && tables.back().axis == out.rank() - 1;  // the last axis is resized
  if (vary && ResizeRows(f, n, tables, nearest)) return absl::OkStatus();
  int64_t wanted = f.LanesFor({&x, &out}, inner);
  if (nearest && vary) wanted = 1;
  f.WithLanesOrScalar(inner, wanted, nearest ? 2 : 1000, [&](int64_t lanes) {
    f.ParallelEach(Product(outer), static_cast<double>(inner) * points * 4 / lanes, [&](Kernel& k, Value item) {
      Ops& o = k.o;
      Indices row = Delinearise(o, item, outer);
      o.For(o.Int(0), o.Int(inner), lanes, [&](Value i) {
        if (inner % lanes != 0) i = o.Min(i, o.Int(inner - lanes));
        Indices at = row;
        if (out.rank() > 0) at.push_back(Index(i, lanes == 1 ? 0 : 1));
        Eval e(k, lanes);
        std::function<Value(size_t, Indices)> nest = [&](size_t t, Indices from) -> Value {
          if (t == tables.size()) return e.At(x, from);
          const Table& table = tables[t];
          const Index& position = at[table.axis];
          Value sum;
          for (size_t tap = 0; tap < table.index.size(); ++tap) {
            Value base = k.Pointer(table.index[tap]);
            if (position.uniform()) {
              from[table.axis] = o.LoadElements(DType::kI64, base, position.base, 1);
            } else {
              Index irregular;
              for (int64_t l = 0; l < lanes; ++l) {
                irregular.lanes.push_back(o.LoadElements(DType::kI64, base, e.Lane(position, l), 1));
              }
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
  });
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
