// Depthwise convolutions of images whose size is open.
//
// A task is a block of a channel's results, no larger than a size that is known: it copies what they see, padded and
// split by the stride, to its scratch, and computes vectors along rows from there, some rows at a time. Rows shorter
// than a vector are gathered, and stored as runs of pixels.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/backends/native/conv_planes.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/open_planes.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// Of a block of stride 1: L1 holds what it sees.
constexpr int64_t kBlockRows = 16, kBlockColumns = 128, kMaxBlockBytes = 128 << 10;
// Results of a channel of x: with more, they are rows of a product.
constexpr int64_t kMaxMultiplier = 4;
// Code for each tap; of so many, a block's weights are loaded once.
constexpr int64_t kMaxTaps = 128, kMaxKeptWeights = 9;
// Sums at once: as many as hide what a multiply-add takes, and leave registers for a column's weights.
constexpr int64_t kSums = 4;
constexpr int64_t kManyVectors = 4;
constexpr int64_t kMaxStride = 8;  // as many vectors are taken apart at once

// Results of channel m are of channel m / multiplier of x.
class OpenDepthwise {
 public:
  OpenDepthwise(FunctionEmitter& f, const Node& n)
      : f_(f), n_(n), types_(f, n.in(0).dtype), planes_(n), stride_(planes_.strides[2]) {
    const bool is_line = planes_.out[1] == Extent(1);
    lanes_ = f.cpu().core.vector_bytes / types_.accumulator_bytes;
    rows_at_once_ = is_line ? 1 : kSums;
    chunk_ = lanes_ * (is_line ? kSums : 1);
    block_rows_ = is_line ? 1 : RoundUp(std::max<int64_t>(kBlockRows / planes_.strides[1], 1), rows_at_once_);
    block_columns_ = std::max(stride_ > 2 ? kBlockColumns / stride_ : kBlockColumns, 2 * lanes_) * (is_line ? 4 : 1);
    in_rows_ = (block_rows_ - 1) * planes_.strides[1] + Reach(1) + 1;
    pitch_ = RoundUp(block_columns_ + Reach(2) / stride_ + chunk_, lanes_);
    for (int64_t row = 0; row < rows_at_once_; ++row) {
      for (int64_t h = 0; h < planes_.kernel[1]; ++h) {
        windows_of_[row * planes_.strides[1] + h * planes_.dilations[1]].push_back({row, h});
      }
    }
    const int64_t copied = planes_.kernel[0] * planes_.phases[2] * in_rows_ * pitch_;
    results_at_ = RoundUp(copied, 16);
    scratch_bytes_ = (results_at_ + (block_rows_ + 1) * chunk_) * types_.accumulator_bytes;
  }

  bool Fits() const { return planes_.taps() <= kMaxTaps && stride_ <= kMaxStride && scratch_bytes_ <= kMaxBlockBytes; }

  void Emit() {
    const Tensor& out = n_.out();
    const Extent bands = CeilDiv(planes_.out[1], block_rows_), parts = CeilDiv(planes_.out[2], block_columns_);
    ShapeMap shapes;
    flat_ = FlatPixels(f_, n_, &shapes);
    const double cycles = static_cast<double>(block_rows_ * block_columns_ * (planes_.taps() + 5)) / lanes_;
    EmitTasks(f_, out.dims[0] * out.dims[1] * planes_.out[0] * bands * parts, cycles, scratch_bytes_,
              [&](Kernel& k, Value begin, Value end, Value scratch) {
                k.shapes = shapes;
                KernelBuilder& kb = k.o;
                kb.For(begin, end, 1, [&](Value item) {
                  Block b;
                  auto digit = [&](const Extent& base) {
                    const Value number = kb.Rem(item, base);
                    item = kb.Div(item, base);
                    return number;
                  };
                  // Parts of a row are of equal size.
                  const Value columns = kb.Div(kb.Add(kb.Int(planes_.out[2]), kb.Add(kb.Int(parts), -1)), parts);
                  b.column = kb.Mul(digit(parts), columns);
                  b.columns = kb.Min(columns, kb.Sub(kb.Int(planes_.out[2]), b.column));
                  b.row = kb.Mul(digit(bands), block_rows_);
                  b.rows = kb.Min(kb.Int(block_rows_), kb.Sub(kb.Int(planes_.out[1]), b.row));
                  b.slice = digit(planes_.out[0]);
                  b.channel = digit(out.dims[1]);
                  b.image = item;
                  b.copy = scratch;
                  b.results = kb.At(scratch, results_at_, Accumulator(k.o));
                  Copy(k, b, kb.Equal(kb.Int(parts), kb.Int(1)));
                  Compute(k, b);
                });
              });
  }

 private:
  struct Block {
    Value image, channel, slice, row, rows, column, columns;
    Value copy;     // of what it sees: [kernel's slice][phase][x's row][pitch_]
    Value results;  // of rows shorter than a vector one after the other, or of one row
  };

  Type Accumulator(Ops& o) const { return types_.Accumulator(o); }
  int64_t Reach(int axis) const { return (planes_.kernel[axis] - 1) * planes_.dilations[axis]; }
  int64_t CopyOffset(int64_t d, int64_t phase) const { return (d * planes_.phases[2] + phase) * in_rows_ * pitch_; }

  // A slice of x that a block sees: its rows [begin, end), counted as the copy's, which has `rows`, and where row 0
  // lies.
  struct Seen {
    int64_t d;  // the kernel's slice
    Value x, begin, end, rows;
  };

  // `is_whole`: all of x's rows.
  void Copy(Kernel& k, const Block& b, Value is_whole) {
    KernelBuilder& kb = k.o;
    const int64_t channels = n_.in(0).dims[1].value(), multiplier = n_.out().dims[1].value() / channels;
    const Value plane = kb.Add(kb.Mul(b.image, channels), kb.Div(b.channel, multiplier));
    const Value rows = kb.Add(kb.Mul(kb.Add(b.rows, -1), planes_.strides[1]), Reach(1) + 1);
    const Value in_row = kb.Add(kb.Mul(b.row, planes_.strides[1]), -planes_.pads[1]);
    auto within = [&](Value row) { return kb.Min(kb.Max(row, kb.Int(0)), rows); };
    const Value begin = within(kb.Sub(kb.Int(0), in_row));
    const Value end = kb.Max(within(kb.Sub(kb.Int(planes_.in[1]), in_row)), begin);
    for (int64_t d = 0; d < planes_.kernel[0]; ++d) {
      const Value slice = kb.Add(kb.Mul(b.slice, planes_.strides[0]), d * planes_.dilations[0] - planes_.pads[0]);
      const Value exists = kb.IsWithin(slice, planes_.in[0]);
      const Value row = kb.Add(kb.Mul(kb.Add(kb.Mul(plane, planes_.in[0]), slice), planes_.in[1]), in_row);
      const Value x = kb.At(k.Pointer(n_.in(0)), kb.Mul(row, planes_.in[2]), types_.Stored(k.o));
      const Seen seen{d, x, kb.Select(exists, begin, rows), kb.Select(exists, end, rows), rows};
      AskForNext(k, b, seen, is_whole);
      CopySlice(k, b, seen);
    }
  }

  // No prefetcher follows vectors below each other: what the next block most likely sees.
  void AskForNext(Kernel& k, const Block& b, const Seen& seen, Value is_whole) {
    KernelBuilder& kb = k.o;
    const Type stored = types_.Stored(k.o);
    const Value from = kb.At(seen.x, kb.Mul(seen.begin, planes_.in[2]), stored);
    const Value there = kb.Max(kb.Sub(seen.end, seen.begin), kb.Int(0));
    const Value length = kb.Select(is_whole, kb.Mul(there, planes_.in[2]), kb.Mul(b.columns, stride_));
    const int64_t line = kLineBytes / ir::ByteSize(types_.dtype);
    kb.For(kb.Int(0), kb.Select(is_whole, kb.Int(1), there), 1, [&](Value row) {
      const Value next = kb.At(from, kb.Add(kb.Mul(row, planes_.in[2]), length), stored);
      kb.For(kb.Int(0), length, line, [&](Value at) { kb.PrefetchIntoL1(kb.At(next, at, stored)); });
    });
  }

  void CopySlice(Kernel& k, const Block& b, const Seen& seen) {
    KernelBuilder& kb = k.o;
    const Value all = kb.RoundUp(kb.Add(b.columns, Reach(2) / stride_), lanes_);
    if (planes_.NominalOut(2) < kManyVectors * lanes_) {
      CopyMasked(k, b, seen, kb.Int(0), all);
    } else {
      // Vectors of x alone are copied row by row, which a prefetcher follows, where they are many.
      const Value in_padding = kb.Sub(kb.Int(planes_.pads[2]), kb.Mul(b.column, stride_));
      const Value padding_ends = kb.Div(kb.Add(kb.Max(in_padding, kb.Int(0)), stride_ - 1), stride_);
      const Value x_ends = kb.Div(kb.Max(kb.Add(kb.Int(planes_.in[2]), in_padding), kb.Int(0)), stride_ * lanes_);
      Value first = kb.RoundUp(padding_ends, lanes_), last = kb.Min(kb.Mul(x_ends, lanes_), all);
      const Value are_few = kb.Less(kb.Sub(last, first), kb.Int(kManyVectors * lanes_));
      first = kb.Select(are_few, all, first);
      last = kb.Select(are_few, all, last);
      CopyMasked(k, b, seen, kb.Int(0), first);
      EachRow(kb, b, seen.begin, seen.end, first, [&](Value at, Value to) {
        kb.For(kb.Int(0), kb.Sub(last, first), lanes_,
               [&](Value q) { CopyVectors(k, b, seen, kb.Add(at, kb.Mul(q, stride_)), kb.Add(to, q), {}); });
      });
      CopyMasked(k, b, seen, last, all);
    }
    kb.For(kb.Int(0), all, lanes_, [&](Value q) {
      const Value padding = kb.Zero(KernelBuilder::Vector(lanes_, Accumulator(k.o)));
      auto pad = [&](Value, Value to) { StoreCopy(k, b, seen.d, std::vector<Value>(planes_.phases[2], padding), to); };
      EachRow(kb, b, kb.Int(0), seen.begin, q, pad);
      EachRow(kb, b, seen.end, seen.rows, q, pad);
    });
  }

  // Columns [first, last) of vectors that x's edges lie in, or beyond: masks are made once.
  void CopyMasked(Kernel& k, const Block& b, const Seen& seen, Value first, Value last) {
    KernelBuilder& kb = k.o;
    kb.For(first, last, lanes_, [&](Value q) {
      const Value column = InColumn(kb, b, q);
      const Value before = kb.Sub(kb.Int(0), column), after = kb.Sub(kb.Int(planes_.in[2]), column);
      std::vector<Value> masks;
      for (int64_t i = 0; i < stride_; ++i) {
        masks.push_back(kb.LaneMask(lanes_, kb.Add(before, -i * lanes_), kb.Add(after, -i * lanes_)));
      }
      EachRow(kb, b, seen.begin, seen.end, q, [&](Value at, Value to) { CopyVectors(k, b, seen, at, to, masks); });
    });
  }

  Value InColumn(KernelBuilder& kb, const Block& b, Value q) const {
    return kb.Add(kb.Mul(kb.Add(b.column, q), stride_), -planes_.pads[2]);
  }

  // Rows [first, last), from column q on: where each lies in x, and in the copy.
  void EachRow(KernelBuilder& kb, const Block& b, Value first, Value last, Value q,
               const std::function<void(Value at, Value to)>& body) {
    const Value at = kb.Add(kb.Mul(first, planes_.in[2]), InColumn(kb, b, q));
    const Value to = kb.Add(kb.Mul(first, pitch_), q);
    kb.For(first, last, 1, {at, to}, [&](Value, const std::vector<Value>& places) -> std::vector<Value> {
      body(places[0], places[1]);
      return {kb.Add(places[0], planes_.in[2]), kb.Add(places[1], pitch_)};
    });
  }

  // As many vectors as the stride, each phase's apart. No masks: x has all of them.
  void CopyVectors(Kernel& k, const Block& b, const Seen& seen, Value at, Value to, const std::vector<Value>& masks) {
    KernelBuilder& kb = k.o;
    const Type stored = types_.Stored(k.o), accumulator = Accumulator(k.o);
    const Type vector = KernelBuilder::Vector(lanes_, stored);
    const Value padding = kb.Zero(KernelBuilder::Vector(lanes_, accumulator));
    std::vector<Value> run;
    for (int64_t i = 0; i < stride_; ++i) {
      const Value from = kb.At(seen.x, kb.Add(at, i * lanes_), stored);
      if (masks.empty()) {
        run.push_back(kb.Widen(kb.Load(vector, from), accumulator));
      } else {
        const Value there = kb.Widen(kb.MaskedLoad(from, masks[i], kb.Zero(vector)), accumulator);
        run.push_back(k.o.Select(masks[i], there, padding));
      }
    }
    run = Deinterleave(kb, run);
    run.resize(planes_.phases[2]);
    StoreCopy(k, b, seen.d, run, to);
  }

  void StoreCopy(Kernel& k, const Block& b, int64_t d, const std::vector<Value>& phases, Value to) {
    KernelBuilder& kb = k.o;
    for (size_t i = 0; i < phases.size(); ++i) {
      kb.Store(phases[i], kb.At(b.copy, kb.Add(to, CopyOffset(d, i)), Accumulator(k.o)));
    }
  }

  // A block's, by tap: few are loaded once.
  using Weights = std::function<Value(int64_t tap)>;
  Weights WeightsOf(Kernel& k, const Block& b) {
    KernelBuilder& kb = k.o;
    const Type stored = types_.Stored(k.o), accumulator = Accumulator(k.o);
    const Value from = kb.At(k.Pointer(n_.in(1)), kb.Mul(b.channel, planes_.taps()), stored);
    auto load = [&kb, stored, accumulator, from](int64_t tap) {
      return kb.Widen(kb.Load(stored, kb.At(from, tap, stored)), accumulator);
    };
    if (planes_.taps() > kMaxKeptWeights) return load;
    std::vector<Value> kept;
    for (int64_t tap = 0; tap < planes_.taps(); ++tap) kept.push_back(load(tap));
    return [kept](int64_t tap) { return kept[tap]; };
  }

  void Compute(Kernel& k, const Block& b) {
    KernelBuilder& kb = k.o;
    const Type accumulator = Accumulator(k.o);
    const Weights weight = WeightsOf(k, b);
    const Epilogue store = StorePixels(k, n_, 1, flat_, b.image);
    const Value is_narrow = kb.Less(b.columns, kb.Int(chunk_));
    const Value last = kb.Max(kb.Sub(b.columns, kb.Int(chunk_)), kb.Int(0));
    auto pixel_at = [&](Value row, Value column) {
      const Value line = kb.Add(kb.Mul(b.slice, planes_.out[1]), kb.Add(b.row, row));
      return kb.Add(kb.Mul(line, planes_.out[2]), kb.Add(b.column, column));
    };
    // Results in memory, as pixels from `first` on.
    auto store_run = [&](int64_t lanes, Value first, Value length) {
      const Type type = lanes == 1 ? accumulator : Type(KernelBuilder::Vector(lanes, accumulator));
      kb.For(kb.Int(0), length, lanes, [&](Value at) {
        if (lanes > 1) at = kb.Min(at, kb.Sub(length, kb.Int(lanes)));  // the last begins earlier
        store(kb, kb.Int(0), b.channel, kb.Add(first, at), kb.Load(type, kb.At(b.results, at, accumulator)));
      });
    };
    kb.For(kb.Int(0), b.columns, chunk_, [&](Value at) {
      const Value column = kb.Min(at, last);  // the last begins earlier
      kb.For(kb.Int(0), b.rows, rows_at_once_, [&](Value row) {
        const std::vector<Value> sums = Sums(k, b, weight, row, column);
        auto each_row = [&](const std::function<void(Value row, Value sum)>& store_row) {
          for (int64_t r = 0; r < rows_at_once_; ++r) {
            const Value at = kb.Add(row, r);
            auto emit = [&] { store_row(at, sums[r]); };
            r == 0 ? emit() : kb.If(kb.Less(at, b.rows), emit);
          }
        };
        if (!flat_) {
          return each_row([&](Value row, Value sum) {
            kb.Store(sum, b.results);
            store_run(1, pixel_at(row, column), kb.Min(b.columns, kb.Int(chunk_)));
          });
        }
        // What a vector has beyond its row's end is where the next row's first ones go.
        auto keep = [&] {
          each_row([&](Value row, Value sum) { kb.Store(sum, kb.At(b.results, kb.Mul(row, b.columns), accumulator)); });
        };
        kb.If(is_narrow, keep, [&] {
          each_row([&](Value row, Value sum) { store(kb, kb.Int(0), b.channel, pixel_at(row, column), sum); });
        });
      });
    });
    if (!flat_) return;
    kb.If(is_narrow, [&] {
      const Value length = kb.Mul(b.rows, b.columns), first = pixel_at(kb.Int(0), kb.Int(0));
      kb.If(
          kb.Less(length, kb.Int(lanes_)), [&] { store_run(1, first, length); },
          [&] { store_run(lanes_, first, length); });
    });
  }

  // Of rows_at_once_ rows and chunk_ columns; of rows beyond the block's, anything. One of the kernel's columns after
  // the other, so that its weights are in registers, and what rows of windows share is loaded once.
  std::vector<Value> Sums(Kernel& k, const Block& b, const Weights& weight, Value row, Value column) {
    KernelBuilder& kb = k.o;
    const Type accumulator = Accumulator(k.o), vector = KernelBuilder::Vector(chunk_, accumulator);
    const Value line = kb.Add(kb.Mul(row, planes_.strides[1] * pitch_), column);
    const Value first = kb.At(b.copy, line, accumulator);
    // By the parity of the kernel's column, where a window's taps one after the other would be waited for.
    const int64_t parts = planes_.taps() > kMaxKeptWeights && planes_.kernel[2] > 1 ? 2 : 1;
    std::vector<std::vector<Value>> sums(parts, std::vector<Value>(rows_at_once_, kb.Zero(vector)));
    for (int64_t d = 0; d < planes_.kernel[0]; ++d) {
      for (int64_t w = 0; w < planes_.kernel[2]; ++w) {
        const int64_t in_column = w * planes_.dilations[2];
        const int64_t offset = CopyOffset(d, in_column % stride_) + in_column / stride_;
        for (const auto& [in_row, windows] : windows_of_) {
          const Value pixels = kb.Load(vector, kb.At(first, offset + in_row * pitch_, accumulator));
          for (const auto& [r, h] : windows) {
            const Value factor = weight((d * planes_.kernel[1] + h) * planes_.kernel[2] + w);
            sums[w % parts][r] = kb.MultiplyAdd(pixels, kb.Splat(factor, vector), sums[w % parts][r]);
          }
        }
      }
    }
    for (int64_t r = 0; parts > 1 && r < rows_at_once_; ++r) sums[0][r] = k.o.AddF(sums[0][r], sums[1][r]);
    return sums[0];
  }

  FunctionEmitter& f_;
  const Node& n_;
  const GemmTypes types_;
  const OpenPlanes planes_;
  const int64_t stride_;
  int64_t lanes_, rows_at_once_, chunk_;
  // Of a block; and of its scratch, in elements.
  int64_t block_rows_, block_columns_, in_rows_, pitch_, results_at_, scratch_bytes_;
  bool flat_ = false;
  // By the row of x, of those that rows_at_once_ rows of windows see: (the windows' row, the kernel's).
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> windows_of_;
};

}  // namespace

bool EmitOpenDepthwise(FunctionEmitter& f, const Node& n) {
  const int64_t groups = n.attrs->IntOr("groups", 1);
  if (groups == 1 || n.in(1).dims[1] != Extent(1) || n.in(1).dims[0].value() > groups * kMaxMultiplier) return false;
  OpenDepthwise depthwise(f, n);
  if (!depthwise.Fits()) return false;
  depthwise.Emit();
  return true;
}

}  // namespace inlay::native
