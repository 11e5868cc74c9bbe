// Depthwise convolutions of images whose channels lie last: a vector is channels of one pixel, so that nothing is
// transposed, and lanes are full whatever the image's width. A tile's output columns have their sums in registers,
// each pixel that they see is loaded once a row of the kernel for all of them; what falls into the padding is not
// computed. Channels go in blocks whose pixels and weights L1 holds, rows of the image one after the other. Integers of
// 8 bits, and bf16, are widened as they are loaded; f32 holds the integers' sums exactly.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/backends/native/composites.h"
#include "core/backends/native/depthwise.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowering.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/word_products.h"
#include "core/backends/native/rounding.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

constexpr int64_t kColumns = 4;  // of a tile
constexpr int64_t kBlockChannels = 128;

class DepthwiseTokens {
 public:
  DepthwiseTokens(FunctionEmitter& f, const Node& n)
      : f_(f),
        n_(n),
        x_(n.in(0)),
        conv_(*n.parts.at("conv")),
        s_(ConvShapeOf(conv_, /*transposed=*/false)),
        lanes_(f.LanesForBytes(sizeof(float), Extent(s_.c))),
        pixels_(n.out().dims.begin() + 1, n.out().dims.end() - 1) {
    if (conv_.op == "conv_integer") integers_ = *ProductsOfConv(f, conv_);
  }

  void Emit() {
    PackWeights();
    const double vectors = static_cast<double>(s_.c * s_.out[2]) / static_cast<double>(lanes_);
    f_.ParallelEach(s_.n * s_.out[1], Cycles(vectors * static_cast<double>(s_.taps()) * 0.7 + 50),
                    [&](Kernel& k, Value item) {
                      k_ = &k;
                      image_ = k.o.Div(item, s_.out[1]);
                      row_ = k.o.Rem(item, s_.out[1]);
                      Row();
                    });
  }

 private:
  // [tap][channel].
  void PackWeights() {
    weights_ = f_.State((s_.taps() * s_.c + lanes_) * int64_t{sizeof(float)});
    f_.Parallel(
        1, 0,
        [&](Kernel& k, Value, Value) {
          Type type = k.o.b.getF32Type();
          Value from = k.Pointer(n_.in(1)), to = k.Pointer(weights_);
          k.o.For(s_.c, [&](Value channel) {
            const Type stored = k.o.StoredType(n_.in(1).dtype);
            for (int64_t tap = 0; tap < s_.taps(); ++tap) {
              Value w = k.o.Load(stored, k.o.At(from, k.o.Add(k.o.Mul(channel, s_.taps()), tap), stored));
              w = integers_ ? integers_->Join(k.o, {w}, /*of_x=*/false) : k.o.Widen(w, type);
              k.o.Store(w, k.o.At(to, k.o.Add(channel, tap * s_.c), type));
            }
          });
        },
        Phase::kInit);
  }

  void Row() {
    Ops& o = k_->o;
    top_ = o.KernelBuilder::Add(o.Mul(row_, s_.stride[1]), -s_.pad[1]);
    tap_begin_ = o.Max(o.Int(0), o.Sub(o.Int(0), top_));
    tap_end_ = o.Min(o.Int(s_.kernel[1]), o.Sub(o.Int(s_.in[1]), top_));
    Value all = o.Int(s_.kernel[1]), taps = o.Sub(tap_end_, tap_begin_);
    // Rows that see no padding have code of their own, without a loop.
    o.If(
        o.Equal(taps, all),
        [&] {
          sees_all_ = true;
          Blocks();
        },
        [&] {
          sees_all_ = false;
          Blocks();
        });
  }

  void Blocks() {
    Ops& o = k_->o;
    const int64_t block = std::max<int64_t>(kBlockChannels / lanes_, 1) * lanes_;
    o.For(o.Int(0), o.Int(s_.c), block, [&](Value first) {
      block_begin_ = first;
      block_end_ = o.Min(o.Int(s_.c), o.KernelBuilder::Add(first, block));
      Tiles();
    });
  }

  bool IsInside(int64_t column) const {
    const int64_t left = column * s_.stride[2] - s_.pad[2];
    return left >= 0 && left + s_.kernel[2] <= s_.in[2];
  }

  // Those that see no padding are a loop.
  void Tiles() {
    Ops& o = k_->o;
    for (int64_t first = 0; first < s_.out[2];) {
      int64_t end = first;
      while (end + kColumns <= s_.out[2] && IsInside(end) && IsInside(end + kColumns - 1)) end += kColumns;
      if (end > first) {
        o.For(o.Int(first), o.Int(end), kColumns, [&](Value column) { Tile(column, first, kColumns); });
        first = end;
      } else {
        const int64_t count = std::min(kColumns, s_.out[2] - first);
        Tile(o.Int(first), first, count);
        first += count;
      }
    }
  }

  // Output columns [column, column + count), which see of the padding what those from `like` on do.
  void Tile(Value column, int64_t like, int64_t count) {
    Ops& o = k_->o;
    o.For(block_begin_, block_end_, lanes_, [&](Value c) {
      if (s_.c % lanes_ != 0) c = o.Min(c, o.Int(s_.c - lanes_));
      std::vector<Value> sums = Sums(column, like, count, c);
      const Indices channel = {Index(c, lanes_ == 1 ? 0 : 1)};
      for (int64_t i = 0; i < count; ++i) {
        Value sum = sums[i];
        if (n_.inputs.size() > 2) {
          Eval e(*k_, lanes_);
          sum = o.AddF(sum, e.At(n_.in(2), channel));
        }
        Indices at = {image_};
        Value pixel = o.Add(o.Mul(row_, s_.out[2]), o.KernelBuilder::Add(column, i));
        if (integers_) sum = integers_->Sum(o, sum);
        Eval last(*k_, lanes_);
        last.Provide(conv_.out(), sum);
        sum = last.At(n_.parts.at("last")->out(), {image_, channel[0], row_, o.KernelBuilder::Add(column, i)});
        for (const Index& index : Delinearise(o, pixel, pixels_)) at.push_back(index);
        at.push_back(channel[0]);
        k_->StoreResult(n_.out(), at, sum);
      }
    });
  }

  std::vector<Value> Sums(Value column, int64_t like, int64_t count, Value c) {
    Ops& o = k_->o;
    Type type = o.b.getF32Type(), vector = KernelBuilder::Vector(lanes_, type);
    const int64_t pitch = s_.in[2] * s_.c;
    Value shift = o.Mul(o.KernelBuilder::Add(column, -like), s_.stride[2]);
    Value first_row = o.Add(o.Mul(image_, s_.in[1]), top_);
    InputElements elements{o.StoredType(x_.dtype)};
    if (integers_) {
      elements = {elements.stored, [&](KernelBuilder&, Value v) { return integers_->Join(o, {v}, /*of_x=*/true); }};
    }
    Value x = o.At(k_->Pointer(x_), o.Add(o.Mul(first_row, pitch), o.Add(o.Mul(shift, s_.c), c)), elements.stored);
    Value w = o.At(k_->Pointer(weights_), c, type);
    auto row = [&](Value h, std::vector<Value> sums) {
      Value x_row = o.At(x, o.Mul(h, pitch), elements.stored), w_row = o.At(w, o.Mul(h, s_.kernel[2] * s_.c), type);
      return EmitChannelRow(o, s_, elements, x_row, w_row, s_.c, like, std::move(sums));
    };
    std::vector<Value> sums(count, o.Zero(vector));
    if (!sees_all_) return o.For(tap_begin_, tap_end_, 1, sums, row);
    for (int64_t h = 0; h < s_.kernel[1]; ++h) sums = row(o.Int(h), sums);
    return sums;
  }

  FunctionEmitter& f_;
  const Node& n_;
  const Tensor& x_;
  const Node& conv_;
  const ConvShape s_;
  const int64_t lanes_;
  const Shape pixels_;  // of the result
  std::optional<WordProducts> integers_;
  Buffer weights_;
  // Of what is being emitted.
  Kernel* k_ = nullptr;
  Value image_, row_, top_, tap_begin_, tap_end_, block_begin_, block_end_;
  bool sees_all_ = false;
};

absl::Status EmitDepthwiseTokens(FunctionEmitter& f, const Node& n) {
  DepthwiseTokens(f, n).Emit();
  return absl::OkStatus();
}

}  // namespace

void RegisterDepthwiseTokens(LoweringTable* table) {
  Lowering& lowering = (*table)[kDepthwiseTokens];
  lowering.kernel = EmitDepthwiseTokens;
  lowering.cost = 100;
  lowering.epilogue = true;
  lowering.arg_use_of = [](const Node&, int arg) { return arg == 2 ? ArgUse::kMany : ArgUse::kMemory; };
}

}  // namespace inlay::native
