#include "core/backends/native/depthwise.h"

#include <map>
#include <optional>

#include "core/backends/native/conv_planes.h"
#include "core/backends/native/depthwise_plan.h"
#include "core/backends/native/rounding.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// Of input and result together: more than a guest has of L3. Then a band's rows, each a stream that ends with its page,
// are late (Zen 3, in turns in one process, minima in us: 3x3 of 128 channels of 147x147 3626 -> 2623, of 64 1203 ->
// 1007, /2 of 144 of 112x112 355 -> 305, 5x5 of 64 of 112x112 566 -> 514). Where L3 has them, asking costs (256 of
// 37x37 116 -> 133).
constexpr int64_t kAheadBytes = int64_t{5} << 20;

// kDepthwise.
class RowTasks {
 public:
  RowTasks(KernelBuilder& kb, const ConvKernel& kernel, Value scratch)
      : kb_(kb),
        kernel_(kernel),
        plan_(kernel.plan),
        s_(kernel.plan.shape),
        tile_(kernel.plan.depthwise),
        direct_(tile_.direct && kernel.input_elements.stored == kernel.accumulator),
        type_(kernel.accumulator),
        vector_(KernelBuilder::Vector(plan_.lanes, type_)),
        padded_(scratch),
        sums_(kb.At(scratch, DepthwisePaddedElements(plan_), type_)),
        inline_(kernel.inline_epilogue && s_.out[2] % plan_.lanes == 0 && s_.out[0] == 1) {}

  void Emit(Value task) {
    x_ = kb_.At(kernel_.input, kb_.Mul(task, s_.in_elements()), kernel_.input_elements.stored);
    const int64_t multiples = s_.m / s_.groups;
    auto for_channels = [&](const std::function<void(Value)>& body) {
      kb_.For(multiples, [&](Value multiple) {
        Value channel = kb_.Add(kb_.Mul(kb_.Rem(task, s_.c), multiples), multiple);
        weights_ = kb_.At(kernel_.weights, kb_.Mul(channel, s_.taps()), kernel_.weight_element);
        body(multiple);
      });
    };
    if (plan_.band == s_.out[1]) {
      Pad(kb_.Int(0));
      for_channels([&](Value multiple) {
        kb_.For(s_.out[0], [&](Value slice) {
          ForTiles([&](const Rows& rows) { Compute(rows, task, multiple, slice, rows.first); });
        });
        if (!inline_) EmitDenseEpilogue(kb_, kernel_, task, multiple, kb_.Int(0), s_.pixels(), sums_);
      });
      return;
    }
    ForTiles([&](const Rows& rows) {
      Pad(rows.first);
      for_channels([&](Value multiple) {
        Compute(rows, task, multiple, kb_.Int(0), kb_.Int(0));
        Value first = kb_.Mul(rows.first, s_.out[2]);
        if (!inline_) EmitDenseEpilogue(kb_, kernel_, task, multiple, first, rows.count * s_.out[2], sums_);
      });
    });
  }

 private:
  struct Rows {
    Value first;
    int64_t count;
    std::optional<int64_t> number;  // of the first; absent: all input rows that these see exist
  };
  // Sums of a tile: row * vectors + vector.
  using Sums = std::vector<Value>;

  void Pad(Value row) {
    if (!direct_) EmitPadPlane(kb_, plan_, x_, kernel_.input_elements, type_, row, padded_);
  }

  // In ascending order: what a tile stores beyond its last row is overwritten by the next.
  void ForTiles(const std::function<void(const Rows&)>& body) {
    const int64_t rows = tile_.rows, whole = s_.out[1] / rows, rest = s_.out[1] % rows;
    auto inside = [&](int64_t t) {
      int64_t first = t * rows * s_.stride[1] - s_.pad[1];
      return !direct_ || (first >= 0 && first + (rows - 1) * s_.stride[1] + s_.kernel[1] <= s_.in[1]);
    };
    int64_t begin = 0, end = whole;
    while (begin < end && !inside(begin)) ++begin;
    while (end > begin && !inside(end - 1)) --end;
    auto known = [&](int64_t first, int64_t count) { body({kb_.Int(first), count, first}); };
    for (int64_t t = 0; t < begin; ++t) known(t * rows, rows);
    kb_.For(kb_.Int(begin), kb_.Int(end), 1, [&](Value t) { body({kb_.Mul(t, rows), rows, std::nullopt}); });
    for (int64_t t = end; t < whole; ++t) known(t * rows, rows);
    if (rest > 0) known(whole * rows, rest);
  }

  // Output rows to sums_, dense. The last vectors of rows first: what they store beyond a row's end is overwritten.
  void Compute(const Rows& rows, Value task, Value multiple, Value slice, Value band_row) {
    task_ = task;
    multiple_ = multiple;
    if (inline_) {
      Value first = kb_.Mul(rows.first, s_.out[2]);
      store_ = [=, this](Value pixel, Value sum) { kernel_.epilogue(kb_, task, multiple, kb_.Add(first, pixel), sum); };
    } else {
      Value sums = kb_.At(sums_, kb_.Mul(kb_.Add(kb_.Mul(slice, plan_.band), band_row), s_.out[2]), type_);
      store_ = [=, this](Value pixel, Value sum) { kb_.Store(sum, kb_.At(sums, pixel, type_)); };
    }
    Value plane = kb_.At(padded_, kb_.Mul(kb_.Add(kb_.Mul(slice, plan_.padded[1]), band_row), plan_.padded[2]), type_);
    if (direct_) plane = kb_.At(x_, kb_.Mul(kb_.Add(kb_.Mul(rows.first, s_.stride[1]), -s_.pad[1]), s_.in[2]), type_);
    const int64_t width = tile_.vectors * plan_.lanes, whole = s_.out[2] / width, rest = s_.out[2] % width;
    int64_t left = 0, right = whole;
    while (left < right && !IsInside(left)) ++left;
    while (right > left && !IsInside(right - 1)) --right;
    auto groups = [&](int64_t begin, int64_t end, bool inside) {
      kb_.For(kb_.Int(begin), kb_.Int(end), 1,
              [&](Value i) { Columns(rows, plane, {kb_.Mul(i, width), tile_.vectors, inside}); });
    };
    if (rest > 0) Columns(rows, plane, {kb_.Int(whole * width), CeilDiv(rest, plan_.lanes), false});
    groups(right, whole, false);
    groups(0, left, false);
    groups(left, right, true);
  }

  // Vectors of output columns.
  struct Group {
    Value first;
    int64_t vectors;
    bool inside;  // every lane of every tap is a column of x
  };

  bool IsInside(int64_t group) const {
    if (!direct_) return true;
    const int64_t width = tile_.vectors * plan_.lanes, stride = s_.stride[2];
    const int64_t begin = group * width * stride - s_.pad[2], last_tap = (s_.kernel[2] - 1) / stride * stride;
    return begin >= 0 && begin + last_tap + width * stride <= s_.in[2];
  }

  bool IsFar() const {
    const int64_t input = s_.n * s_.c * s_.in_elements() * kernel_.input_elements.stored.getIntOrFloatBitWidth() / 8;
    return input + s_.n * s_.m * s_.pixels() * type_.getIntOrFloatBitWidth() / 8 > kAheadBytes;
  }
  // What the next band reads and stores in these columns.
  void Ahead(const Rows& rows, const Group& group) {
    if (!kernel_.ahead || !IsFar()) return;
    const Value next = kb_.Add(rows.first, rows.count);
    for (int64_t r = 0; r < rows.count; ++r) {
      kernel_.ahead(kb_, task_, multiple_, kb_.Add(kb_.Mul(kb_.Add(next, r), s_.out[2]), group.first));
    }
    const int64_t line = kLineBytes / (kernel_.input_elements.stored.getIntOrFloatBitWidth() / 8);
    const Value column = kb_.Mul(group.first, s_.stride[2]);
    for (int64_t r = 0; r < rows.count * s_.stride[1]; ++r) {
      const Value row = kb_.Add(kb_.Mul(next, s_.stride[1]), r);
      for (int64_t c = 0; c < group.vectors * plan_.lanes * s_.stride[2]; c += line) {
        kb_.Prefetch(kb_.At(x_, kb_.Add(kb_.Add(kb_.Mul(row, s_.in[2]), column), c), kernel_.input_elements.stored));
      }
    }
  }

  void Columns(const Rows& rows, Value plane, const Group& group) {
    const int64_t vectors = group.vectors;
    Ahead(rows, group);
    Sums sums(rows.count * vectors, kb_.Zero(vector_));
    // Strided columns that lie side by side come apart two at a time.
    const int64_t step = direct_ ? tile_.kernel_columns : 1, whole = s_.kernel[2] / step * step;
    sums = kb_.For(kb_.Int(0), kb_.Int(s_.kernel[0]), 1, sums, [&](Value d, const Sums& sums) {
      auto taps = [&](Value w, const Sums& sums) { return KernelColumns(rows, plane, group, d, w, step, sums); };
      Sums all = sums;
      if (s_.kernel[1] * s_.kernel[2] > kMaxUnrolledTaps) {
        all = kb_.For(kb_.Int(0), kb_.Int(whole), step, sums, taps);
      } else {
        for (int64_t w = 0; w < whole; w += step) all = taps(kb_.Int(w), all);
      }
      if (whole == s_.kernel[2]) return all;
      return KernelColumns(rows, plane, group, d, kb_.Int(whole), s_.kernel[2] - whole, all);
    });
    for (int64_t r = 0; r < rows.count; ++r) {
      for (int64_t v = 0; v < vectors; ++v) {
        Value at = kb_.Add(group.first, r * s_.out[2] + v * plan_.lanes);
        Value sum = sums[r * vectors + v];
        store_(at, direct_ && s_.stride[2] == 2 ? InOrder(sum) : sum);
      }
    }
  }

  // Where output row r sees input row r * stride + h, for kernel rows [h_begin, h_end): offset of the input row in
  // memory, and the pairs (r, h).
  struct Use {
    int64_t row, tap;
  };
  std::map<int64_t, std::vector<Use>> InputRows(const Rows& rows, int64_t h_begin, int64_t h_end) {
    std::map<int64_t, std::vector<Use>> uses;
    for (int64_t r = 0; r < rows.count; ++r) {
      for (int64_t h = h_begin; h < h_end; ++h) {
        if (direct_) {
          int64_t i = r * s_.stride[1] + h;
          int64_t row = rows.number.value_or(0) * s_.stride[1] - s_.pad[1] + i;
          if (rows.number && (row < 0 || row >= s_.in[1])) continue;
          uses[i * s_.in[2]].push_back({r, h});
        } else {
          int64_t at = h * s_.dilation[1], phase = plan_.phases[1] == 1 ? 0 : at % s_.stride[1];
          int64_t offset = phase * plan_.phases[2] * plan_.phase_elements();
          uses[offset + (at / s_.stride[1] + r) * plan_.padded[2]].push_back({r, h});
        }
      }
    }
    return uses;
  }

  // The taps (d, all, [w, w + count)).
  Sums KernelColumns(const Rows& rows, Value plane, const Group& group, Value d, Value w, int64_t count, Sums sums) {
    const int64_t stride = direct_ ? s_.stride[2] : 1, vectors = group.vectors;
    const bool masked = direct_ && !group.inside;
    Value at = kb_.Add(group.first, TapOffset(kb_, plan_, d, kb_.Int(0), w));
    std::map<int64_t, Value> masks;  // by the column of lane 0, from `at` on
    if (direct_) at = kb_.Add(kb_.Add(kb_.Mul(group.first, stride), w), -s_.pad[2]);
    Value from = kb_.At(plane, at, type_);
    auto load = [&](int64_t row_offset, int64_t column) {
      Value x = kb_.At(from, row_offset + column, type_);
      if (!masked) return kb_.Load(vector_, x);
      Value& mask = masks[column];
      if (!mask) {
        Value first = kb_.Sub(kb_.Int(-column), at);
        mask = kb_.LaneMask(plan_.lanes, first, kb_.Add(first, s_.in[2]));
      }
      return kb_.MaskedLoad(x, mask, kb_.Zero(vector_));
    };
    const int64_t groups = CeilDiv(s_.kernel[1], kMaxUnrolledKernelRows);
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<Value> weights(s_.kernel[1] * count);
      for (const auto& [offset, pairs] : InputRows(rows, s_.kernel[1] * g / groups, s_.kernel[1] * (g + 1) / groups)) {
        for (int64_t v = 0; v < vectors; ++v) {
          std::vector<Value> x;  // of each of the taps' columns
          for (int64_t c = 0; c < count; c += stride) {
            const int64_t first = v * stride * plan_.lanes + c;
            x.push_back(load(offset, first));
            if (stride == 1) continue;
            Value high = load(offset, first + plan_.lanes);
            x.push_back(EverySecond(x[c], high, 1));
            x[c] = EverySecond(x[c], high, 0);
          }
          for (int64_t c = 0; c < count; ++c) {
            for (const Use& use : pairs) {
              Value& weight = weights[use.tap * count + c];
              if (!weight) weight = Weight(d, kb_.Int(use.tap), kb_.Add(w, c));
              Value& sum = sums[use.row * vectors + v];
              sum = kb_.MultiplyAdd(weight, x[c], sum);
            }
          }
        }
      }
    }
    return sums;
  }

  // Strided columns come apart within 128 bits, which is one instruction for a vector where their order would take
  // two; InOrder mends that once for a sum.
  int64_t SmallLanes() const { return std::min<int64_t>(plan_.lanes, 128 / type_.getIntOrFloatBitWidth()); }
  Value Shuffle(Value x, Value y, const std::function<int64_t(int64_t)>& from) {
    llvm::SmallVector<int64_t> lanes(plan_.lanes);
    for (int64_t l = 0; l < plan_.lanes; ++l) lanes[l] = from(l);
    return kb_.b.create<mlir::vector::ShuffleOp>(kb_.loc, x, y, lanes);
  }
  // Every second element of low followed by high, from `first` on.
  Value EverySecond(Value low, Value high, int64_t first) {
    const int64_t n = SmallLanes();
    return Shuffle(low, high, [&](int64_t l) {
      int64_t at = 2 * (l % n) + first;
      return l / n * n + at % n + (at < n ? 0 : plan_.lanes);
    });
  }
  Value InOrder(Value sum) {
    const int64_t n = SmallLanes(), half = n / 2;
    if (n == plan_.lanes) return sum;
    return Shuffle(sum, sum, [&](int64_t l) {
      bool high = l >= plan_.lanes / 2;
      int64_t i = high ? l - plan_.lanes / 2 : l;
      return i / half * n + i % half + (high ? half : 0);
    });
  }

  Value Weight(Value d, Value h, Value w) {
    Value t = kb_.Add(kb_.Mul(kb_.Add(kb_.Mul(d, s_.kernel[1]), h), s_.kernel[2]), w);
    if (s_.reversed) t = kb_.Sub(kb_.Int(s_.taps() - 1), t);
    Value weight = kb_.Load(kernel_.weight_element, kb_.At(weights_, t, kernel_.weight_element));
    return kb_.Splat(kb_.Widen(weight, type_), vector_);
  }

  KernelBuilder& kb_;
  const ConvKernel& kernel_;
  const ConvPlan& plan_;
  const ConvShape& s_;
  const DepthwiseTile& tile_;
  const bool direct_;
  const Type type_, vector_;
  const Value padded_, sums_;
  const bool inline_;                                  // sums go to the epilogue from registers
  Value task_, multiple_;                              // of the tile
  Value x_, weights_;                                  // of the task, of the channel
  std::function<void(Value pixel, Value sum)> store_;  // pixels count from the tile's first
};

}  // namespace

void EmitDenseEpilogue(KernelBuilder& kb, const ConvKernel& kernel, Value batch, Value row, Value first, int64_t count,
                       Value sums) {
  const int64_t lanes = kernel.plan.lanes, whole = count / lanes * lanes;
  Type type = kernel.accumulator, vector = KernelBuilder::Vector(lanes, type);
  // Two vectors at a time, where they come out even: they share the loads of the epilogue's constants.
  const int64_t step = whole / lanes % 2 == 0 ? 2 : 1;
  kb.For(kb.Int(0), kb.Int(whole), step * lanes, [&](Value pair) {
    for (int64_t i = 0; i < step; ++i) {
      Value pixel = kb.Add(pair, i * lanes);
      kernel.epilogue(kb, batch, row, kb.Add(first, pixel), kb.Load(vector, kb.At(sums, pixel, type)));
    }
  });
  kb.For(kb.Int(whole), kb.Int(count), 1, [&](Value pixel) {
    kernel.epilogue(kb, batch, row, kb.Add(first, pixel), kb.Load(type, kb.At(sums, pixel, type)));
  });
}

void EmitDepthwiseTasks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  if (kernel.plan.method == ConvMethod::kDepthwiseChannels) {
    EmitDepthwiseChannelTasks(kb, kernel, begin, end, scratch);
    return;
  }
  if (kernel.plan.method == ConvMethod::kDepthwiseLines) {
    EmitDepthwiseLineTasks(kb, kernel, begin, end, scratch);
    return;
  }
  RowTasks tasks(kb, kernel, scratch);
  kb.For(begin, end, 1, [&](Value task) { tasks.Emit(task); });
}

}  // namespace inlay::native
