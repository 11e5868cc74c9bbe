#include "core/backends/native/depthwise.h"

#include "core/backends/native/conv_planes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// Sum over the taps for the `lanes` padded-row positions from `position`.
Value SlideTaps(KernelBuilder& kb, const ConvKernel& kernel, Value plane, Value position,
                const std::vector<Value>& weights, Value weight_pointer) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  Type vector = KernelBuilder::Vector(plan.lanes, kernel.accumulator);
  auto load = [&](Value d, Value h, Value w) {
    return kb.Load(vector,
                   kb.At(kb.At(plane, position, kernel.accumulator), TapOffset(kb, plan, d, h, w), kernel.accumulator));
  };
  if (!weights.empty()) {
    Value sum = kb.Zero(vector);
    for (int64_t t = 0; t < s.taps(); ++t) {
      int64_t w = t % s.kernel[2], h = t / s.kernel[2] % s.kernel[1], d = t / s.kernel[2] / s.kernel[1];
      sum = kb.MultiplyAdd(weights[t], load(kb.Int(d), kb.Int(h), kb.Int(w)), sum);
    }
    return sum;
  }
  std::vector<Value> sum = {kb.Zero(vector)};
  auto loop = [&](int64_t extent, const std::vector<Value>& in, const auto& body) {
    return kb.For(kb.Int(0), kb.Int(extent), 1, in, body);
  };
  return loop(s.kernel[0], sum, [&](Value d, const std::vector<Value>& sum) {
    return loop(s.kernel[1], sum, [&](Value h, const std::vector<Value>& sum) {
      return loop(s.kernel[2], sum, [&](Value w, const std::vector<Value>& sum) {
        Value t = kb.Add(kb.Mul(kb.Add(kb.Mul(d, s.kernel[1]), h), s.kernel[2]), w);
        if (kernel.plan.shape.reversed) t = kb.Sub(kb.Int(s.taps() - 1), t);
        Value weight = kb.Load(kernel.weight_element, kb.At(weight_pointer, t, kernel.weight_element));
        Value splat = kb.Splat(kb.Widen(weight, kernel.accumulator), vector);
        return std::vector<Value>{kb.MultiplyAdd(splat, load(d, h, w), sum[0])};
      });
    });
  })[0];
}

// The weights of an output channel in registers, if there are few.
std::vector<Value> LoadWeights(KernelBuilder& kb, const ConvKernel& kernel, Value pointer) {
  const ConvShape& s = kernel.plan.shape;
  Type vector = KernelBuilder::Vector(kernel.plan.lanes, kernel.accumulator);
  std::vector<Value> weights;
  if (s.taps() > kMaxDepthwiseTaps) return weights;
  for (int64_t t = 0; t < s.taps(); ++t) {
    int64_t at = kernel.plan.shape.reversed ? s.taps() - 1 - t : t;
    Value weight = kb.Load(kernel.weight_element, kb.At(pointer, at, kernel.weight_element));
    weights.push_back(kb.Splat(kb.Widen(weight, kernel.accumulator), vector));
  }
  return weights;
}

// Rows [row, row_end) of one output channel from their padded band.
void OutputBand(KernelBuilder& kb, const ConvKernel& kernel, Value task, Value multiple, Value row, Value row_end,
                Value plane, Value results) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  Type type = kernel.accumulator;
  Value channel = kb.Add(kb.Mul(kb.Rem(task, s.c), s.m / s.groups), multiple);
  Value weight_pointer = kb.At(kernel.weights, kb.Mul(channel, s.taps()), kernel.weight_element);
  std::vector<Value> weights = LoadWeights(kb, kernel, weight_pointer);
  // Rows as wide as the padded ones, so that vectors run on from one row to the next: what lies between is garbage.
  int64_t slice_elements = plan.band * plan.padded[2];
  Value used = kb.Mul(kb.Sub(row_end, row), plan.padded[2]);
  kb.For(s.out[0], [&](Value slice) {
    Value from = kb.Mul(slice, plan.padded[1] * plan.padded[2]), to = kb.Mul(slice, slice_elements);
    kb.For(kb.Int(0), used, plan.lanes, [&](Value position) {
      Value sum = SlideTaps(kb, kernel, plane, kb.Add(from, position), weights, weight_pointer);
      kb.Store(sum, kb.At(results, kb.Add(to, position), type));
    });
  });
  // Several slices only come with a band of all rows, so pixels of a band are always consecutive.
  Value first = kb.Mul(row, s.out[2]);
  Value pixels = kb.Mul(kb.Sub(row_end, row), s.out[0] * s.out[2]);
  Value whole = kb.Mul(kb.Div(pixels, plan.lanes), plan.lanes);
  kb.For(kb.Int(0), whole, plan.lanes, [&](Value pixel) {
    PixelVector at = LocatePixels(kb, plan, results, type, pixel, plan.band);
    kernel.epilogue(kb, task, multiple, kb.Add(first, pixel), LoadPixels(kb, plan, at, kb.Int(0), type));
  });
  if (plan.bands() == 1 && s.pixels() % plan.lanes == 0) return;
  kb.For(whole, pixels, 1, [&](Value pixel) {
    Value at = kb.Add(kb.Mul(kb.Div(pixel, s.out[2]), plan.padded[2]), kb.Rem(pixel, s.out[2]));
    kernel.epilogue(kb, task, multiple, kb.Add(first, pixel), kb.Load(type, kb.At(results, at, type)));
  });
}

// Vectors of x for the taps of one kernel row: element l of tap j is x[row][(first + l) * stride + j - pad], or zero
// where x has no such column. `first` is `chunk` vectors into the output's row; only there it matters which lanes
// exist.
class RowTaps {
 public:
  RowTaps(KernelBuilder& kb, const ConvKernel& kernel, int64_t chunk, Value first)
      : kb_(kb), kernel_(kernel), s_(kernel.plan.shape), lanes_(kernel.plan.lanes), chunk_(chunk), first_(first) {}

  // Whether all lanes of all taps of that chunk are columns of x.
  static bool IsInside(const ConvPlan& plan, int64_t chunk) {
    const ConvShape& s = plan.shape;
    int64_t begin = chunk * plan.lanes * s.stride[2] - s.pad[2];
    int64_t vectors = s.stride[2] == 1 ? 1 : 2;
    int64_t last_load = s.stride[2] == 1 ? s.kernel[2] - 1 : (s.kernel[2] - 1) / 2 * 2;
    return begin >= 0 && begin + last_load + vectors * plan.lanes <= s.in[2];
  }

  std::vector<Value> Load(Value row) {
    std::vector<Value> taps;
    for (int64_t j = 0; j < s_.kernel[2]; ++j) {
      if (s_.stride[2] == 1) {
        taps.push_back(Columns(row, j));
      } else if (j % 2 == 0) {
        Value low = Columns(row, j), high = Columns(row, j + lanes_);
        taps.push_back(EverySecond(low, high, 0));
        if (j + 1 < s_.kernel[2]) taps.push_back(EverySecond(low, high, 1));
      }
    }
    for (Value& tap : taps) tap = kb_.Widen(tap, kernel_.accumulator);
    return taps;
  }

 private:
  // x's columns from that of tap `j` on, dense.
  Value Columns(Value row, int64_t j) {
    int64_t begin = chunk_ * lanes_ * s_.stride[2] - s_.pad[2] + j;
    Value from = kb_.At(row, kb_.Add(kb_.Mul(first_, s_.stride[2]), j - s_.pad[2]), kernel_.input_element);
    return kb_.LoadLanes(KernelBuilder::Vector(lanes_, kernel_.input_element), from, -begin, s_.in[2] - begin);
  }
  Value EverySecond(Value low, Value high, int64_t offset) {
    llvm::SmallVector<int64_t> lanes(lanes_);
    for (int64_t l = 0; l < lanes_; ++l) lanes[l] = 2 * l + offset;
    return kb_.b.create<mlir::vector::ShuffleOp>(kb_.loc, low, high, lanes);
  }

  KernelBuilder& kb_;
  const ConvKernel& kernel_;
  const ConvShape& s_;
  const int64_t lanes_, chunk_;
  const Value first_;
};

// Output rows [row, row + num_rows) of a channel straight from x, each of whose rows is read once for all of them.
class RowBlock {
 public:
  RowBlock(KernelBuilder& kb, const ConvKernel& kernel, Value x, Value zeros, const std::vector<Value>& weights,
           Value row, int64_t num_rows)
      : kb_(kb), kernel_(kernel), s_(kernel.plan.shape), weights_(weights), num_rows_(num_rows) {
    for (int64_t i = 0; i < (num_rows - 1) * s_.stride[1] + s_.kernel[1]; ++i) {
      Value in_row = kb.Add(kb.Mul(row, s_.stride[1]), i - s_.pad[1]);
      Value inside = kb.And(kb.Less(kb.Int(-1), in_row), kb.Less(in_row, kb.Int(s_.in[1])));
      Value at = kb.At(x, kb.Mul(in_row, s_.in[2]), kernel.input_element);
      in_rows_.push_back(kb.b.create<mlir::arith::SelectOp>(kb.loc, inside, at, zeros));
    }
  }

  using StoreFn = std::function<void(int64_t row, Value column, Value sum)>;

  // The last vector of a row first: where it goes beyond the row's end, what is stored next overwrites it.
  void Emit(const StoreFn& store) {
    const int64_t lanes = kernel_.plan.lanes, chunks = (s_.out[2] + lanes - 1) / lanes;
    int64_t left = 0, right = chunks - 1;
    while (left < right && !RowTaps::IsInside(kernel_.plan, left)) ++left;
    while (right > left && !RowTaps::IsInside(kernel_.plan, right - 1)) --right;
    for (int64_t chunk = chunks - 1; chunk >= right; --chunk) EmitChunk(chunk, kb_.Int(chunk * lanes), store);
    for (int64_t chunk = 0; chunk < left; ++chunk) EmitChunk(chunk, kb_.Int(chunk * lanes), store);
    kb_.For(kb_.Int(left * lanes), kb_.Int(right * lanes), lanes,
            [&](Value column) { EmitChunk(left, column, store); });
  }

 private:
  void EmitChunk(int64_t chunk, Value column, const StoreFn& store) {
    std::vector<Value> sums(num_rows_, kb_.Zero(KernelBuilder::Vector(kernel_.plan.lanes, kernel_.accumulator)));
    RowTaps taps(kb_, kernel_, chunk, column);
    for (int64_t i = 0; i < static_cast<int64_t>(in_rows_.size()); ++i) {
      std::vector<Value> x = taps.Load(in_rows_[i]);
      for (int64_t row = 0; row < num_rows_; ++row) {
        int64_t h = i - row * s_.stride[1];
        if (h < 0 || h >= s_.kernel[1]) continue;
        for (int64_t w = 0; w < s_.kernel[2]; ++w) {
          sums[row] = kb_.MultiplyAdd(weights_[h * s_.kernel[2] + w], x[w], sums[row]);
        }
      }
    }
    for (int64_t row = 0; row < num_rows_; ++row) store(row, column, sums[row]);
  }

  KernelBuilder& kb_;
  const ConvKernel& kernel_;
  const ConvShape& s_;
  const std::vector<Value>& weights_;
  const int64_t num_rows_;
  std::vector<Value> in_rows_;  // pointers; those outside of x are rows of zeros
};

// The epilogue of consecutive pixels [first, first + count) whose sums lie at `sums`.
void EmitDenseEpilogue(KernelBuilder& kb, const ConvKernel& kernel, Value task, Value multiple, Value first,
                       int64_t count, Value sums) {
  const int64_t lanes = kernel.plan.lanes, whole = count / lanes * lanes;
  Type type = kernel.accumulator, vector = KernelBuilder::Vector(lanes, type);
  kb.For(kb.Int(0), kb.Int(whole), lanes, [&](Value pixel) {
    kernel.epilogue(kb, task, multiple, kb.Add(first, pixel), kb.Load(vector, kb.At(sums, pixel, type)));
  });
  kb.For(kb.Int(whole), kb.Int(count), 1, [&](Value pixel) {
    kernel.epilogue(kb, task, multiple, kb.Add(first, pixel), kb.Load(type, kb.At(sums, pixel, type)));
  });
}

void EmitRowBlocks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  Type type = kernel.accumulator;
  // A row of zeros, of the input's type, stands for rows of padding.
  Value zeros = scratch, sums = kb.At(scratch, plan.zero_row_elements(), type);
  Type vector = KernelBuilder::Vector(plan.lanes, type);
  kb.For(kb.Int(0), kb.Int(plan.zero_row_elements()), plan.lanes,
         [&](Value i) { kb.Store(kb.Zero(vector), kb.At(zeros, i, type)); });
  const bool dense = s.out[2] % plan.lanes == 0;
  kb.For(begin, end, 1, [&](Value task) {
    Value x = kb.At(kernel.input, kb.Mul(task, s.in_elements()), kernel.input_element);
    kb.For(s.m / s.groups, [&](Value multiple) {
      Value channel = kb.Add(kb.Mul(kb.Rem(task, s.c), s.m / s.groups), multiple);
      std::vector<Value> weights =
          LoadWeights(kb, kernel, kb.At(kernel.weights, kb.Mul(channel, s.taps()), kernel.weight_element));
      auto block = [&](Value row, int64_t num_rows) {
        RowBlock rows(kb, kernel, x, zeros, weights, row, num_rows);
        Value first = kb.Mul(row, s.out[2]);
        rows.Emit([&](int64_t r, Value column, Value sum) {
          Value pixel = kb.Add(column, r * s.out[2]);
          if (dense) {
            kernel.epilogue(kb, task, multiple, kb.Add(first, pixel), sum);
          } else {
            kb.Store(sum, kb.At(sums, pixel, type));
          }
        });
        if (!dense) EmitDenseEpilogue(kb, kernel, task, multiple, first, num_rows * s.out[2], sums);
      };
      const int64_t rest = s.out[1] % plan.block_rows, whole = s.out[1] - rest;
      kb.For(kb.Int(0), kb.Int(whole), plan.block_rows, [&](Value row) { block(row, plan.block_rows); });
      if (rest > 0) block(kb.Int(whole), rest);
    });
  });
}

}  // namespace

void EmitDepthwiseTasks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  const ConvPlan& plan = kernel.plan;
  if (plan.block_rows > 0) {
    EmitRowBlocks(kb, kernel, begin, end, scratch);
    return;
  }
  const ConvShape& s = plan.shape;
  Type type = kernel.accumulator;
  Value results = kb.At(scratch, (plan.padded_elements() + 15) / 16 * 16, type);
  kb.For(begin, end, 1, [&](Value task) {
    Value x = kb.At(kernel.input, kb.Mul(task, s.in_elements()), kernel.input_element);
    kb.For(plan.bands(), [&](Value band) {
      Value row = kb.Mul(band, plan.band);
      Value row_end = kb.Min(kb.Int(s.out[1]), kb.Add(row, plan.band));
      EmitPadPlane(kb, plan, x, kernel.input_element, type, row, scratch);
      kb.For(s.m / s.groups,
             [&](Value multiple) { OutputBand(kb, kernel, task, multiple, row, row_end, scratch, results); });
    });
  });
}

}  // namespace inlay::native
