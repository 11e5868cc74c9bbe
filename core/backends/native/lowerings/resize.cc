// ONNX's Resize: nearest, linear, cubic, separable over the axes whose extent or scale is not 1.
#include <algorithm>
#include <cmath>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/loops.h"
#include "core/backends/native/lowering.h"

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

// The tables are small constants of the module: indices as i64, weights as f32 (f64 for f64).
absl::Status Resize(FunctionEmitter& f, const Node& n) {
  const Tensor &x = n.in(0), &out = n.out();
  if (out.NumElements() == 0) return absl::OkStatus();
  if (x.NumElements() == 0) return absl::InvalidArgumentError("native: resize of a tensor without elements");
  std::vector<Axis> axes = AxesOf(n);
  bool nearest = n.attrs->StringOr("mode", "nearest") == "nearest";
  DType acc = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  struct Table {
    int axis;
    Taps taps;
    std::vector<Buffer> index, weight;
  };
  std::vector<Table> tables;
  int64_t points = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (Trivial(axes[i])) continue;
    Table table{i, TapsOf(*n.attrs, axes[i]), {}, {}};
    points *= static_cast<int64_t>(table.taps.index.size());
    for (const std::vector<int64_t>& values : table.taps.index) {
      table.index.push_back(f.Data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 8)));
    }
    for (const std::vector<double>& values : table.taps.weight) {
      std::string data;
      for (double v : values) {
        float narrow = static_cast<float>(v);
        if (acc == DType::kF64)
          data.append(reinterpret_cast<const char*>(&v), 8);
        else
          data.append(reinterpret_cast<const char*>(&narrow), 4);
      }
      table.weight.push_back(f.Data(data));
    }
    tables.push_back(std::move(table));
  }
  std::vector<int64_t> outer(out.shape.begin(), out.rank() > 0 ? out.shape.end() - 1 : out.shape.end());
  int64_t inner = out.rank() > 0 ? out.shape.back() : 1;
  bool vary = !tables.empty() && tables.back().axis == out.rank() - 1;  // the last axis is resized
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
