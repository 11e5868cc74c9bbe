// Depthwise convolutions of images whose size is open, and those of groups that fit into a vector, a vector of channels
// at a time.
//
// A task is a block of the results of some channels of an image, no larger than a size that is known: it brings what
// they see into its scratch, padded, channels innermost, where a window's taps are vectors whatever the stride and
// however short the rows; and brings the results back into rows of pixels. Each lane of a group's vector needs all of
// the group's channels, one after the other.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/backends/native/conv_planes.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/open_planes.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/winograd_parts.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using Values = std::vector<Value>;

// Of a block: L1 holds what a few rows see.
constexpr int64_t kBlockRows = 16, kBlockColumns = 64, kMaxBlockBytes = 128 << 10;
// Sums at once hide what a multiply-add takes; where a row has no more left than half of them, those are computed.
constexpr int64_t kColumns = 8;
constexpr int64_t kMaxUnrolledTaps = 64;
// Vectors along rows cost more where a row does not fill one, and where windows are as large as this and rows as short
// (Zen 3, us by rows and by channels: 5x5 of 1104 of 7x7 75 -> 49, of 672 of 14x14 133 -> 120, of 144 by 2 to 28x28 181
// -> 159; 3x3 of 576 of 14x14 54 and 60, of 192 of 28x28 69 and 80).
constexpr int64_t kManyTaps = 25, kShortRow = 32;

class OpenChannels {
 public:
  OpenChannels(FunctionEmitter& f, const Node& n)
      : f_(f),
        n_(n),
        types_(f, n.in(0).dtype),
        planes_(n),
        stride_(planes_.strides[2]),
        channels_(n.out().dims[1].value()),
        in_channels_(n.in(0).dims[1].value()),
        group_(n.in(1).dims[1].value()),
        steps_(group_ * planes_.taps()) {
    lanes_ = f.cpu().core.vector_bytes / types_.accumulator_bytes;
    block_rows_ = std::max<int64_t>(kBlockRows / planes_.strides[1], 1);
    block_columns_ = std::max<int64_t>(kBlockColumns / stride_, kColumns);
    const int64_t in_rows = (block_rows_ - 1) * planes_.strides[1] + Reach(1) + 1;
    pitch_ = RoundUp((block_columns_ + kColumns - 1) * stride_ + Reach(2) + lanes_, lanes_);
    const int64_t results = block_rows_ * block_columns_ + kColumns;
    square_at_ = (in_rows * pitch_ + results) * lanes_;
    results_at_ = in_rows * pitch_ * lanes_;
    scratch_bytes_ = (square_at_ + lanes_ * lanes_) * types_.accumulator_bytes;
  }

  bool Pays() {
    const bool is_plane = planes_.kernel[0] == 1 && planes_.in[0] == Extent(1) && planes_.out[0] == Extent(1);
    return is_plane && lanes_ > 1 && channels_ >= lanes_ && group_ * planes_.kernel[2] <= kMaxUnrolledTaps &&
           types_.accumulator_dtype == ir::DType::kF32 && scratch_bytes_ <= kMaxBlockBytes &&
           (group_ == 1 ? AreRowsShort() : channels_ == in_channels_ && lanes_ % group_ == 0) &&
           FlatPixels(f_, n_, &shapes_);
  }

  void Emit() {
    const Tensor& out = n_.out();
    const int64_t blocks = CeilDiv(channels_, lanes_);
    const Buffer weights = PackedWeights(blocks);
    const Extent bands = CeilDiv(planes_.out[1], block_rows_), parts = CeilDiv(planes_.out[2], block_columns_);
    const double cycles = static_cast<double>(block_rows_ * block_columns_ * (steps_ + 8));
    EmitTasks(f_, out.dims[0] * blocks * bands * parts, cycles, scratch_bytes_,
              [&](Kernel& k, Value begin, Value end, Value scratch) {
                k.shapes = shapes_;
                KernelBuilder& kb = k.o;
                kb.For(begin, end, 1, [&](Value item) {
                  auto digit = [&](const Extent& base) {
                    const Value number = kb.Rem(item, base);
                    item = kb.Div(item, base);
                    return number;
                  };
                  Block b;
                  // Parts of a row, and rows of an image, are of equal size.
                  auto share = [&](const Extent& all, const Extent& parts) -> std::pair<Value, Value> {
                    const Value size = kb.Div(kb.Add(kb.Int(all), kb.Add(kb.Int(parts), -1)), parts);
                    const Value first = kb.Mul(digit(parts), size);
                    return {first, kb.Min(size, kb.Sub(kb.Int(all), first))};
                  };
                  std::tie(b.column, b.columns) = share(planes_.out[2], parts);
                  std::tie(b.row, b.rows) = share(planes_.out[1], bands);
                  b.channel = kb.Mul(digit(Extent(blocks)), lanes_);
                  b.image = item;
                  b.copy = scratch;
                  b.results = kb.At(scratch, results_at_, Float(k.o));
                  b.square = kb.At(scratch, square_at_, Float(k.o));
                  b.weights = kb.At(k.Pointer(weights), kb.Mul(b.channel, steps_), Float(k.o));
                  Copy(k, b);
                  kb.For(kb.Int(0), b.rows, 1, [&](Value row) { ComputeRow(k, b, row); });
                  Store(k, b, kb.Equal(kb.Int(parts), kb.Int(1)));
                });
              });
  }

 private:
  struct Block {
    Value image, channel, row, rows, column, columns;  // the first channel, row, column
    Value copy;                                        // of what it sees: [row][pitch_][lane]
    Value results;                                     // [pixel][lane]
    Value square, weights;                             // [tap][lane]
  };

  bool AreRowsShort() const { return planes_.NominalOut(2) < (planes_.taps() < kManyTaps ? lanes_ : kShortRow); }

  Type Float(Ops& o) const { return types_.Accumulator(o); }
  int64_t Reach(int axis) const { return (planes_.kernel[axis] - 1) * planes_.dilations[axis]; }

  // [block][channel of a group][tap][lane]
  Buffer PackedWeights(int64_t blocks) {
    const Tensor& w = n_.in(1);
    const bool constant = f_.IsConstantParam(w);
    const int64_t bytes = blocks * steps_ * lanes_ * types_.accumulator_bytes;
    const Buffer packed = constant ? f_.State(bytes) : f_.Temporary(bytes);
    auto pack = [&](Kernel& k, Value block) {
      KernelBuilder& kb = k.o;
      const Type stored = types_.Stored(k.o), f32 = Float(k.o);
      const Value first = kb.Mul(block, lanes_), at = kb.Mul(first, steps_);
      const StridedMatrix from{kb.At(k.Pointer(w), at, stored), stored, 1, steps_};
      const Value lanes = kb.Min(kb.Int(lanes_), kb.Sub(kb.Int(channels_), first));
      EmitPackBlock(kb, from, kb.Int(steps_), 1, lanes, lanes_, f32, kb.At(k.Pointer(packed), at, f32));
    };
    f_.ParallelEach(blocks, static_cast<double>(steps_ * lanes_), pack, constant ? Phase::kInit : Phase::kRun);
    return packed;
  }

  // The rows of x that there are, with the columns' padding. Channels beyond the last are the last.
  void Copy(Kernel& k, const Block& b) {
    KernelBuilder& kb = k.o;
    const Type stored = types_.Stored(k.o), f32 = Float(k.o);
    const int64_t multiplier = channels_ / in_channels_;
    const Value top = kb.Add(kb.Mul(b.row, planes_.strides[1]), -planes_.pads[1]);
    const Value rows = kb.Add(kb.Mul(kb.Add(b.rows, -1), planes_.strides[1]), Reach(1) + 1);
    const Value begin = kb.Max(kb.Sub(kb.Int(0), top), kb.Int(0));
    const Value end = kb.Min(kb.Sub(kb.Int(planes_.in[1]), top), rows);
    const Extent plane = planes_.in[1] * planes_.in[2];
    Values x;
    for (int64_t l = 0; l < lanes_; ++l) {
      const Value channel = kb.Div(kb.Min(kb.Add(b.channel, l), kb.Int(channels_ - 1)), multiplier);
      const Value from = kb.Mul(kb.Add(kb.Mul(b.image, in_channels_), channel), plane);
      x.push_back(kb.At(k.Pointer(n_.in(0)), kb.Add(from, kb.Mul(top, planes_.in[2])), stored));
    }
    const Value seen = kb.Add(kb.Mul(kb.Add(b.columns, -1), stride_), Reach(2) + 1);
    const Value left = kb.Add(kb.Mul(b.column, stride_), -planes_.pads[2]);
    const Value first = kb.Min(kb.Max(kb.Sub(kb.Int(0), left), kb.Int(0)), seen);
    const Value last = kb.Max(kb.Min(kb.Sub(kb.Int(planes_.in[2]), left), seen), first);
    auto to = [&](Value row, Value q) { return kb.At(b.copy, kb.Mul(kb.Add(kb.Mul(row, pitch_), q), lanes_), f32); };
    auto pad = [&](Value from, Value until) {
      kb.For(from, until, 1, [&](Value q) {
        const Value zero = kb.Zero(KernelBuilder::Vector(lanes_, f32));
        kb.For(begin, end, 1, [&](Value row) { kb.Store(zero, to(row, q)); });
      });
    };
    pad(kb.Int(0), first);
    // A vector beyond x's end is padding as well.
    kb.For(first, last, lanes_, [&](Value q) {
      const Value column = kb.Add(left, q);
      const Value mask = kb.LaneMask(lanes_, kb.Int(0), kb.Sub(kb.Int(planes_.in[2]), column));
      kb.For(begin, end, 1, [&](Value row) {
        const Value at = kb.Add(kb.Mul(row, planes_.in[2]), column);
        Values square;
        for (const Value& plane : x) {
          const Value none = kb.Zero(KernelBuilder::Vector(lanes_, stored));
          square.push_back(kb.Widen(kb.MaskedLoad(kb.At(plane, at, stored), mask, none), f32));
        }
        square = TransposeSquare(kb, square);
        for (int64_t i = 0; i < lanes_; ++i) kb.Store(square[i], kb.At(to(row, q), i * lanes_, f32));
      });
    });
    pad(kb.Add(first, kb.RoundUp(kb.Sub(last, first), lanes_)), seen);
  }

  // In ascending order: what is computed beyond a row's end is overwritten by the next.
  void ComputeRow(Kernel& k, const Block& b, Value row) {
    KernelBuilder& kb = k.o;
    const Value top = kb.Add(kb.Mul(kb.Add(b.row, row), planes_.strides[1]), -planes_.pads[1]);
    const int64_t dilation = planes_.dilations[1];
    auto ceil = [&](Value x) { return kb.Div(kb.Add(kb.Max(x, kb.Int(0)), dilation - 1), dilation); };
    const Value begin = ceil(kb.Sub(kb.Int(0), top));
    const Value end = kb.Min(kb.Int(planes_.kernel[1]), ceil(kb.Sub(kb.Int(planes_.in[1]), top)));
    const Value x = kb.At(b.copy, kb.Mul(row, planes_.strides[1] * pitch_ * lanes_), Float(k.o));
    const Value to = kb.At(b.results, kb.Mul(kb.Mul(row, b.columns), lanes_), Float(k.o));
    const Value whole = kb.RoundUp(kb.Add(b.columns, -kColumns / 2), kColumns);
    kb.For(kb.Int(0), whole, kColumns, [&](Value at) { Columns(k, b, x, begin, end, at, kColumns, to); });
    kb.If(kb.Less(whole, b.columns), [&] { Columns(k, b, x, begin, end, whole, kColumns / 2, to); });
  }

  // Results [at, at + count) of a row whose windows begin with the row of x at `x`: of the kernel's rows [begin, end).
  void Columns(Kernel& k, const Block& b, Value x, Value begin, Value end, Value at, int64_t count, Value to) {
    KernelBuilder& kb = k.o;
    const Type f32 = Float(k.o), vector = KernelBuilder::Vector(lanes_, f32);
    // By the column of x, what sees it: (the result, the kernel's column).
    std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> windows;
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t w = 0; w < planes_.kernel[2]; ++w) {
        windows[c * stride_ + w * planes_.dilations[2]].push_back({c, w});
      }
    }
    const Value first = kb.At(x, kb.Mul(at, stride_ * lanes_), f32);
    const Values sums = kb.For(begin, end, 1, Values(count, kb.Zero(vector)), [&](Value h, Values sums) {
      const Value row = kb.At(first, kb.Mul(h, planes_.dilations[1] * pitch_ * lanes_), f32);
      const Value weights = kb.At(b.weights, kb.Mul(h, planes_.kernel[2] * lanes_), f32);
      for (int64_t member = 0; member < group_; ++member) {
        Values taps(planes_.kernel[2]);
        for (const auto& [column, uses] : windows) {
          const Value pixel = OfMember(kb, kb.Load(vector, kb.At(row, column * lanes_, f32)), member);
          for (const auto& [c, w] : uses) {
            const int64_t step = member * planes_.taps() + w;
            if (!taps[w]) taps[w] = kb.Load(vector, kb.At(weights, step * lanes_, f32));
            sums[c] = kb.MultiplyAdd(taps[w], pixel, sums[c]);
          }
        }
      }
      return sums;
    });
    for (int64_t c = 0; c < count; ++c) {
      kb.Store(sums[c], kb.At(to, kb.Mul(kb.Add(at, c), lanes_), f32));
    }
  }

  // A group's channel, for each of its lanes.
  Value OfMember(KernelBuilder& kb, Value pixel, int64_t member) const {
    if (group_ == 1) return pixel;
    llvm::SmallVector<int64_t> lanes(lanes_);
    for (int64_t l = 0; l < lanes_; ++l) lanes[l] = l / group_ * group_ + member;
    return kb.b.create<mlir::vector::ShuffleOp>(kb.loc, pixel, pixel, lanes);
  }

  // `is_whole`: rows of the block are the image's.
  void Store(Kernel& k, const Block& b, Value is_whole) {
    KernelBuilder& kb = k.o;
    const Epilogue store = StorePixels(k, n_, 1, /*flat=*/true, nullptr);
    const PanelChannels channels{b.channel, kb.Min(kb.Int(lanes_), kb.Sub(kb.Int(channels_), b.channel))};
    const Value runs = kb.Select(is_whole, kb.Int(1), b.rows);
    const Value length = kb.Select(is_whole, kb.Mul(b.rows, b.columns), b.columns);
    kb.For(kb.Int(0), runs, 1, [&](Value run) {
      const Value pixel = kb.Add(kb.Mul(kb.Add(b.row, run), planes_.out[2]), b.column);
      const Value from = kb.At(b.results, kb.Mul(kb.Mul(run, length), lanes_), Float(k.o));
      EmitPixelRun(kb, lanes_, from, length, b.image, channels, pixel, store, b.square);
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  GemmTypes types_;
  OpenPlanes planes_;
  ShapeMap shapes_;
  const int64_t stride_, channels_, in_channels_, group_, steps_;  // group_: channels of x; steps_: of a result
  int64_t lanes_, block_rows_, block_columns_;
  int64_t pitch_, results_at_, square_at_, scratch_bytes_;  // pitch_: pixels from row to row; the others: elements
};

}  // namespace

bool EmitOpenChannels(FunctionEmitter& f, const Node& n) {
  OpenChannels channels(f, n);
  if (!channels.Pays()) return false;
  channels.Emit();
  return true;
}

}  // namespace inlay::native
