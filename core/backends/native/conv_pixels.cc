#include "core/backends/native/conv_pixels.h"

#include <algorithm>

#include "core/backends/native/rounding.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// A tile is a segment of an image row, or several whole image rows. The kernel's columns are separate loops, in whose
// code the pixels are left out that lie in the padding there; segments at an edge have loops of their own.
class PixelTile {
 public:
  PixelTile(KernelBuilder& kb, const ConvKernel& kernel, Value zeros, const TileRequest& tile)
      : kb_(kb), kernel_(kernel), s_(kernel.plan.shape), g_(kernel.plan.gemm), zeros_(zeros), t_(tile) {
    const int64_t width = s_.out[2];
    rows_ = std::max<int64_t>(tile.rows / width, 1);
    pixels_ = std::min(tile.rows, width);
    segments_ = g_.mr < width ? width / g_.mr : 1;
    Value row = segments_ > 1 ? kb.Div(tile.tile, segments_) : kb.Mul(tile.tile, g_.mr / width);
    segment_ = segments_ > 1 ? kb.Rem(tile.tile, segments_) : kb.Int(0);
    first_row_ = kb.Add(kb.Mul(row, s_.stride[1]), -s_.pad[1]);
    channel_begin_ = kb.Div(tile.k_begin, s_.taps());
    channel_end_ = kb.Div(tile.k_end, s_.taps());
  }

  std::vector<Value> Emit(std::vector<Value> sums) {
    Value tap_begin = kb_.Int(0), tap_end = kb_.Int(s_.kernel[1]);
    if (rows_ == 1) {  // rows of padding are skipped
      const int64_t step = s_.dilation[1];
      auto taps = [&](Value x) { return kb_.Div(kb_.Add(kb_.Max(x, kb_.Int(0)), step - 1), step); };
      tap_begin = taps(kb_.Sub(kb_.Int(0), first_row_));
      tap_end = kb_.Min(tap_end, taps(kb_.Sub(kb_.Int(s_.in[1]), first_row_)));
    }
    for (int64_t w = 0; w < s_.kernel[2]; ++w) {
      for (int64_t segment = 0; segment < segments_;) {
        const auto [first, last] = Inside(w, segment);
        int64_t end = segment + 1;
        while (end < segments_ && Inside(w, end) == std::pair(first, last)) ++end;
        Value channels = segment == 0 && end == segments_ ? channel_end_ : ChannelsFor(segment, end);
        segment = end;
        if (first >= last) continue;
        if (rows_ > 1 && g_.core.blocks_k_for_l1()) {
          sums = kb_.For(tap_begin, tap_end, 1, sums, [&](Value h, const std::vector<Value>& sums) {
            const std::vector<StridedRow> rows = Rows(h, w);
            return kb_.For(channel_begin_, channels, 1, sums, [&](Value c, const std::vector<Value>& sums) {
              return Step(c, h, w, first, last, sums,
                          [&](int64_t r) { return rows[r].At(kb_, kb_.Sub(c, channel_begin_), kernel_.accumulator); });
            });
          });
          continue;
        }
        sums = kb_.For(channel_begin_, channels, 1, sums, [&](Value c, const std::vector<Value>& sums) {
          return kb_.For(tap_begin, tap_end, 1, sums, [&](Value h, const std::vector<Value>& sums) {
            return Step(c, h, w, first, last, sums, [&](int64_t r) { return Row(c, h, w, r); });
          });
        });
      }
    }
    return sums;
  }

 private:
  // The pixels [first, last) of a segment whose column for the tap w is one of x.
  std::pair<int64_t, int64_t> Inside(int64_t w, int64_t segment) const {
    const int64_t at = segment * pixels_ * s_.stride[2] - s_.pad[2] + w * s_.dilation[2];
    return {std::clamp<int64_t>(CeilDiv(-at, s_.stride[2]), 0, pixels_),
            std::clamp<int64_t>(CeilDiv(s_.in[2] - at, s_.stride[2]), 0, pixels_)};
  }

  // Where the loop on channels ends: at once, unless the tile is one of the segments [begin, end).
  Value ChannelsFor(int64_t begin, int64_t end) {
    Value here = kb_.And(kb_.Less(kb_.Int(begin - 1), segment_), kb_.Less(segment_, kb_.Int(end)));
    return kb_.Select(here, channel_end_, channel_begin_);
  }

  // A row of a channel of x, and of the ones that follow.
  struct StridedRow {
    Value first, stride;

    Value At(KernelBuilder& kb, Value channel, Type type) const { return kb.At(first, kb.Mul(channel, stride), type); }
  };

  // Of the tile's rows, where tap (h, w) sees the first channel. Selected once for all of them: in the loop on channels
  // it would be an address for each pixel, and registers are few.
  std::vector<StridedRow> Rows(Value h, int64_t w) {
    std::vector<StridedRow> rows;
    for (int64_t r = 0; r < rows_; ++r) {
      Value stride = kb_.Select(IsInside(RowOf(h, r)), kb_.Int(s_.in_elements()), kb_.Int(0));
      rows.push_back({Row(channel_begin_, h, w, r), stride});
    }
    return rows;
  }

  Value RowOf(Value h, int64_t r) { return kb_.Add(kb_.Add(first_row_, r * s_.stride[1]), kb_.Mul(h, s_.dilation[1])); }

  Value IsInside(Value row) { return kb_.And(kb_.Less(kb_.Int(-1), row), kb_.Less(row, kb_.Int(s_.in[1]))); }

  // Where tap (h, w) of a channel sees the tile's row r: of x, or zeros.
  Value Row(Value c, Value h, int64_t w, int64_t r) {
    const Type type = kernel_.accumulator;
    const int64_t column = w * s_.dilation[2] - s_.pad[2];  // of the tile's first pixel, if that is the row's
    Value plane = kb_.Add(kb_.Mul(t_.batch, kernel_.plan.group_channels()), c);
    Value row = RowOf(h, r);
    Value at = kb_.Add(kb_.Mul(kb_.Add(kb_.Mul(plane, s_.in[1]), row), s_.in[2]), column);
    at = kb_.Add(at, kb_.Mul(segment_, pixels_ * s_.stride[2]));
    Value from = kb_.At(kernel_.input, at, type);
    if (rows_ == 1) return from;
    return kb_.Select(IsInside(row), from, kb_.At(zeros_, column, type));
  }

  std::vector<Value> Step(Value c, Value h, int64_t w, int64_t first, int64_t last, std::vector<Value> sums,
                          const std::function<Value(int64_t r)>& row) {
    const Type type = kernel_.accumulator, vector = KernelBuilder::Vector(g_.lanes, type);
    Value done = kb_.Mul(kb_.Sub(c, channel_begin_), s_.taps());
    Value k = kb_.Add(kb_.Add(done, kb_.Mul(h, s_.kernel[2])), w);
    Value q = kb_.At(t_.q, kb_.Mul(k, t_.vectors * g_.lanes), type);
    std::vector<Value> weights;
    for (int64_t v = 0; v < t_.vectors; ++v) weights.push_back(kb_.Load(vector, kb_.At(q, v * g_.lanes, type)));
    if (t_.prefetch) kb_.Prefetch(kb_.At(t_.prefetch, kb_.Mul(k, t_.prefetch_step), kb_.b.getI8Type()));
    for (int64_t r = 0; r < rows_; ++r) {
      Value from = row(r);
      if (w == 0 && kernel_.plan.prefetches_pixels()) PrefetchBelow(from);
      for (int64_t i = first; i < last; ++i) {
        Value pixel = kb_.Splat(kb_.Load(type, kb_.At(from, i * s_.stride[2], type)), vector);
        for (int64_t v = 0; v < t_.vectors; ++v) {
          Value& sum = sums[(r * pixels_ + i) * t_.vectors + v];
          sum = kernel_.multiply_add ? kernel_.multiply_add(kb_, pixel, weights[v], sum)
                                     : kb_.MultiplyAdd(pixel, weights[v], sum);
        }
      }
    }
    return sums;
  }

  // What the tile below this one, which has one image row at most, reads of a row: channels' rows are too many streams
  // for a prefetcher.
  void PrefetchBelow(Value from) {
    const int64_t below = s_.stride[1] * s_.in[2] + s_.pad[2], line = kLineBytes / g_.element_bytes;
    for (int64_t i = 0; i < pixels_ * s_.stride[2]; i += line) {
      kb_.Prefetch(kb_.At(from, below + i, kernel_.accumulator));
    }
  }

  KernelBuilder& kb_;
  const ConvKernel& kernel_;
  const ConvShape& s_;
  const GemmPlan& g_;
  const Value zeros_;
  const TileRequest& t_;
  int64_t rows_ = 1, pixels_ = 1, segments_ = 1;  // image rows of the tile, pixels of each; segments of an image row
  Value segment_, first_row_;                     // the first row of x that the tile sees, which may be padding
  Value channel_begin_, channel_end_;
};

}  // namespace

std::vector<Value> EmitPixelTile(KernelBuilder& kb, const ConvKernel& kernel, Value zeros, const TileRequest& tile,
                                 const std::vector<Value>& accumulators) {
  return PixelTile(kb, kernel, zeros, tile).Emit(accumulators);
}

}  // namespace inlay::native
