// Depthwise convolutions of images whose channels lie last: a vector is channels of one pixel, so that nothing is
// transposed, and lanes are full whatever the image's width. A tile's output columns have their sums in registers,
// each pixel that they see is loaded once a row of the kernel for all of them; what falls into the padding is not
// computed. Channels go in blocks whose pixels and weights L1 holds, rows of the image one after the other. Pixels that
// would share few sets of L1 are copied, a row at a time. Integers of 8 bits, and bf16, are widened as they are loaded;
// f32 holds the integers' sums exactly.
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
    // Of what a vector of channels meets for a tile, pixels and results, L1 would hold few (Zen 4, 3x3 on 28x28 of 1024
    // channels 920 us, of 1008 180; copied 225).
    const int64_t lines = s_.kernel[1] * ((kColumns - 1) * s_.stride[2] + s_.kernel[2]) + kColumns;
    copies_ = L1LinesHeld(s_.c * ir::ByteSize(x_.dtype)) < lines && CopyBytes() <= kMaxScratchBytes;
  }

  void Emit() {
    PackWeights();
    const double vectors = static_cast<double>(s_.c * s_.out[2]) / static_cast<double>(lanes_);
    f_.Parallel(s_.n * s_.out[1], Cycles(vectors * static_cast<double>(s_.taps()) * 0.7 + 50),
                [&](Kernel& k, Value begin, Value end) {
                  Ops& o = k.o;
                  k_ = &k;
                  if (copies_) rows_ = k.Scratch(CopyBytes());
                  auto blocks = [&](const std::function<void()>& body) {
                    o.For(o.Int(0), o.Int(s_.c), Block(), [&](Value first) {
                      block_begin_ = first;
                      block_end_ = o.Min(o.Int(s_.c), o.KernelBuilder::Add(first, Block()));
                      body();
                    });
                  };
                  auto rows = [&](const std::function<void()>& body) {
                    o.For(begin, end, 1, [&](Value item) {
                      image_ = o.Div(item, s_.out[1]);
                      row_ = o.Rem(item, s_.out[1]);
                      is_first_ = o.Or(o.Equal(item, begin), o.Equal(row_, o.Int(0)));
                      body();
                    });
                  };
                  // Copied rows are a block's.
                  if (copies_) {
                    blocks([&] { rows([&] { Row(); }); });
                  } else {
                    rows([&] { blocks([&] { Row(); }); });
                  }
                });
  }

 private:
  // [vector of channels][tap][lane]: by taps, many channels' would share few sets of L1. The last vector ends with the
  // last channel.
  void PackWeights() {
    const int64_t vectors = CeilDiv(s_.c, lanes_);
    weights_ = f_.State(vectors * s_.taps() * lanes_ * int64_t{sizeof(float)});
    f_.Parallel(
        1, 0,
        [&](Kernel& k, Value, Value) {
          Type type = k.o.b.getF32Type();
          Value from = k.Pointer(n_.in(1)), to = k.Pointer(weights_);
          const Type stored = k.o.StoredType(n_.in(1).dtype);
          k.o.For(vectors, [&](Value vector) {
            const Value first = k.o.Min(k.o.Mul(vector, lanes_), k.o.Int(s_.c - lanes_));
            k.o.For(lanes_, [&](Value lane) {
              const Value channel = k.o.Add(first, lane);
              for (int64_t tap = 0; tap < s_.taps(); ++tap) {
                Value w = k.o.Load(stored, k.o.At(from, k.o.Add(k.o.Mul(channel, s_.taps()), tap), stored));
                w = integers_ ? integers_->Join(k.o, {w}, /*of_x=*/false) : k.o.Widen(w, type);
                const Value at = k.o.Add(k.o.Mul(k.o.Add(k.o.Mul(vector, s_.taps()), tap), lanes_), lane);
                k.o.Store(w, k.o.At(to, at, type));
              }
            });
          });
        },
        Phase::kInit);
  }

  void Row() {
    Ops& o = k_->o;
    top_ = o.KernelBuilder::Add(o.Mul(row_, s_.stride[1]), -s_.pad[1]);
    tap_begin_ = o.Max(o.Int(0), o.Sub(o.Int(0), top_));
    tap_end_ = o.Min(o.Int(s_.kernel[1]), o.Sub(o.Int(s_.in[1]), top_));
    if (copies_) CopyRows();
    Value all = o.Int(s_.kernel[1]), taps = o.Sub(tap_end_, tap_begin_);
    // Rows that see no padding have code of their own, without a loop.
    o.If(
        o.Equal(taps, all),
        [&] {
          sees_all_ = true;
          Tiles();
        },
        [&] {
          sees_all_ = false;
          Tiles();
        });
  }

  int64_t CopyBytes() const { return s_.kernel[1] * s_.in[2] * Block() * ir::ByteSize(x_.dtype); }
  int64_t Block() const { return std::max<int64_t>(kBlockChannels / lanes_, 1) * lanes_; }

  // Of x, what this row is the first to see, of the block's channels: [row modulo the kernel's][column][channel].
  void CopyRows() {
    Ops& o = k_->o;
    const Type stored = o.StoredType(x_.dtype), vector = KernelBuilder::Vector(lanes_, stored);
    const Value from = k_->Pointer(x_), first_row = o.KernelBuilder::Add(o.Mul(image_, s_.in[1]), top_);
    const Value seen = o.Int(std::max<int64_t>(s_.kernel[1] - s_.stride[1], 0));
    o.For(o.Select(is_first_, tap_begin_, o.Max(tap_begin_, seen)), tap_end_, 1, [&](Value h) {
      o.For(s_.in[2], [&](Value column) {
        const Value pixel = o.Add(o.Mul(o.KernelBuilder::Add(first_row, h), s_.in[2]), column);
        const Value to = o.KernelBuilder::Add(CopyOf(h), o.Mul(column, Block()));
        o.For(block_begin_, block_end_, lanes_, [&](Value c) {
          const Value at = o.Add(o.Mul(pixel, s_.c), o.Min(c, o.Int(s_.c - lanes_)));
          const Value copied = o.Load(vector, o.At(from, at, stored));
          o.Store(copied, o.At(rows_, o.Add(to, o.Sub(c, block_begin_)), stored));
        });
      });
    });
  }

  // Where a row of x that this one sees, so none of the padding, is copied to.
  Value CopyOf(Value h) {
    Ops& o = k_->o;
    return o.Mul(o.Rem(o.KernelBuilder::Add(top_, h), s_.kernel[1]), s_.in[2] * Block());
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
      weights_at_ = o.Mul(c, s_.taps());
      copied_at_ = o.Sub(c, block_begin_);
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
    const int64_t x_pitch = copies_ ? Block() : s_.c;
    Value shift = o.Mul(o.Mul(o.KernelBuilder::Add(column, -like), s_.stride[2]), x_pitch);
    Value first_row = o.Add(o.Mul(image_, s_.in[1]), top_);
    InputElements elements{o.StoredType(x_.dtype)};
    if (integers_) {
      elements = {elements.stored, [&](KernelBuilder&, Value v) { return integers_->Join(o, {v}, /*of_x=*/true); }};
    }
    const Value x = copies_ ? o.At(rows_, o.Add(shift, copied_at_), elements.stored)
                            : o.At(k_->Pointer(x_), o.Add(shift, c), elements.stored);
    Value w = o.At(k_->Pointer(weights_), weights_at_, type);
    auto row = [&](Value h, std::vector<Value> sums) {
      const Value row_at = copies_ ? CopyOf(h) : o.Mul(o.KernelBuilder::Add(first_row, h), s_.in[2] * s_.c);
      Value x_row = o.At(x, row_at, elements.stored), w_row = o.At(w, o.Mul(h, s_.kernel[2] * lanes_), type);
      return EmitChannelRow(o, s_, elements, x_row, x_pitch, w_row, lanes_, like, std::move(sums));
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
  Value is_first_;                // of the rows of an image that a task computes
  Value weights_at_, copied_at_;  // of a vector of channels
  Value rows_;                    // of x, copied
  bool sees_all_ = false;
  bool copies_ = false;  // rows of x, whose pixels would share few sets of L1
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
