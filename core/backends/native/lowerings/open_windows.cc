#include "core/backends/native/lowerings/open_windows.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// Of a block of stride 1: L1 holds what it sees, and its results.
constexpr int64_t kBlockRows = 16, kBlockColumns = 128, kMaxBlockBytes = 128 << 10;
// Results of a channel of x: with more, they are rows of a product.
constexpr int64_t kMaxMultiplier = 4;
// Code for each tap; of so many, a block's weights are loaded once.
constexpr int64_t kMaxTaps = 128, kMaxKeptWeights = 9;

class OpenWindows {
 public:
  OpenWindows(FunctionEmitter& f, const Node& n, const GemmTypes& types, const OpenPlanes& planes,
              const WindowRule& rule)
      : f_(f), n_(n), types_(types), planes_(planes), rule_(rule) {
    lanes_ = f.cpu().core.vector_bytes / types_.accumulator_bytes;
    const bool is_line = planes_.out[1] == Extent(1);
    rows_at_once_ = is_line ? 1 : 2;
    block_rows_ = is_line ? 1 : RoundUp(std::max<int64_t>(kBlockRows / planes_.strides[1], 1), rows_at_once_);
    block_columns_ = std::max(kBlockColumns / planes_.strides[2], 2 * lanes_) * (is_line ? 4 : 1);
    phase_rows_ = block_rows_ + Reach(1);
    pitch_ = RoundUp(block_columns_ + Reach(2) + 2 * lanes_, lanes_);
    results_at_ = RoundUp(planes_.kernel[0] * planes_.phases[1] * planes_.phases[2] * phase_rows_ * pitch_, 16);
    spare_at_ = results_at_ + RoundUp(block_rows_ * block_columns_ + 2 * lanes_, 16);
  }

  bool Fits() const { return planes_.taps() <= kMaxTaps && spare_at_ * types_.accumulator_bytes <= kMaxBlockBytes; }

  void Emit() {
    const Tensor& out = n_.out();
    const Extent bands = CeilDiv(planes_.out[1], block_rows_), parts = CeilDiv(planes_.out[2], block_columns_);
    const Extent blocks = planes_.out[0] * bands * parts;
    ShapeMap shapes;
    const bool flat = FlatPixels(f_, n_, &shapes);
    const double cycles = static_cast<double>(block_rows_ * block_columns_ * (planes_.taps() + 5)) / lanes_;
    EmitTasks(f_, out.dims[0] * out.dims[1] * blocks, cycles, spare_at_ * types_.accumulator_bytes,
              [&](Kernel& k, Value begin, Value end, Value scratch) {
                k.shapes = shapes;
                KernelBuilder& kb = k.o;
                kb.For(begin, end, 1, [&](Value item) {
                  Block b;
                  const Value in_plane = kb.Rem(item, blocks), row = kb.Div(in_plane, parts);
                  // Parts of a row are of equal size.
                  const Value columns = kb.Div(kb.Add(kb.Int(planes_.out[2]), kb.Add(kb.Int(parts), -1)), parts);
                  b.column = kb.Mul(kb.Rem(in_plane, parts), columns);
                  b.columns = kb.Min(columns, kb.Sub(kb.Int(planes_.out[2]), b.column));
                  b.row = kb.Mul(kb.Rem(row, bands), block_rows_);
                  b.rows = kb.Min(kb.Int(block_rows_), kb.Sub(kb.Int(planes_.out[1]), b.row));
                  b.slice = kb.Div(row, bands);
                  const Value plane = kb.Div(item, blocks);
                  b.channel = kb.Rem(plane, out.dims[1]);
                  b.image = kb.Div(plane, out.dims[1]);
                  b.scratch = scratch;
                  Pad(k, b);
                  Compute(k, b);
                  Store(k, b, flat);
                });
              });
  }

 private:
  struct Block : WindowBlock {
    Value scratch;
  };

  int64_t Reach(int axis) const { return (planes_.kernel[axis] - 1) * planes_.dilations[axis] / planes_.strides[axis]; }
  // Of the phases' row 0, what the kernel's slice d sees.
  int64_t PhaseOffset(int64_t d, int64_t h, int64_t w) const {
    return ((d * planes_.phases[1] + h) * planes_.phases[2] + w) * phase_rows_ * pitch_;
  }
  int64_t TapOffset(int64_t d, int64_t h, int64_t w) const {
    const int64_t in_row = h * planes_.dilations[1], in_column = w * planes_.dilations[2];
    const int64_t rows = planes_.strides[1], columns = planes_.strides[2];
    return PhaseOffset(d, in_row % rows, in_column % columns) + in_row / rows * pitch_ + in_column / columns;
  }

  void Pad(Kernel& k, const Block& b) {
    KernelBuilder& kb = k.o;
    const int64_t channels = n_.in(0).dims[1].value(), multiplier = n_.out().dims[1].value() / channels;
    const Value plane = kb.Add(kb.Mul(b.image, channels), kb.Div(b.channel, multiplier)), x = k.Pointer(n_.in(0));
    const Value rows =
        kb.Add(kb.Mul(kb.Div(kb.Add(b.rows, rows_at_once_ - 1), rows_at_once_), rows_at_once_), Reach(1));
    PaddedRow out;
    out.stored = types_.Stored(k.o);
    out.accumulator = types_.Accumulator(k.o);
    out.lanes = lanes_;
    out.stride = planes_.strides[2];
    out.width = kb.Add(b.columns, Reach(2));
    out.start = kb.Add(kb.Mul(b.column, planes_.strides[2]), -planes_.pads[2]);
    out.columns = kb.Int(planes_.in[2]);
    out.padding = rule_.padding(k.o);
    for (int64_t d = 0; d < planes_.kernel[0]; ++d) {
      const int64_t in_slice = d * planes_.dilations[0] - planes_.pads[0];
      const Value slice = kb.Add(kb.Mul(b.slice, planes_.strides[0]), in_slice);
      for (int64_t phase = 0; phase < planes_.phases[1]; ++phase) {
        kb.For(kb.Int(0), rows, 1, [&](Value row) {
          const Value in_row = kb.Add(kb.Mul(kb.Add(b.row, row), planes_.strides[1]), phase - planes_.pads[1]);
          PaddedRow line = out;
          for (int64_t w = 0; w < planes_.phases[2]; ++w) {
            const Value at = kb.Add(kb.Mul(row, pitch_), PhaseOffset(d, phase, w));
            line.to.push_back(kb.At(b.scratch, at, out.accumulator));
          }
          const Value inside = kb.And(kb.IsWithin(slice, planes_.in[0]), kb.IsWithin(in_row, planes_.in[1]));
          const Value number = kb.Add(kb.Mul(kb.Add(kb.Mul(plane, planes_.in[0]), slice), planes_.in[1]), in_row);
          EmitPaddedRow(kb, line, inside, kb.At(x, kb.Mul(number, planes_.in[2]), out.stored));
        });
      }
    }
  }

  void Compute(Kernel& k, const Block& b) {
    KernelBuilder& kb = k.o;
    const Type accumulator = types_.Accumulator(k.o);
    const WindowRule::Take take = rule_.begin(k, b);
    const Value results = kb.At(b.scratch, results_at_, accumulator);
    auto compute = [&](int64_t lanes) {
      const Type vector = KernelBuilder::Vector(lanes, accumulator);
      // From right to left: what a vector has beyond its row's end is where the next row's first ones go. Rows beyond
      // the last are nobody's.
      kb.For(kb.Int(0), b.rows, rows_at_once_, [&](Value row) {
        const Value line = kb.At(b.scratch, kb.Mul(row, pitch_), accumulator);
        const Value last = kb.Mul(kb.Div(kb.Add(b.columns, -1), lanes), lanes);
        kb.For(kb.Int(0), b.columns, lanes, [&](Value i) {
          const Value j = kb.Sub(last, i), first = kb.At(line, j, accumulator);
          // By where they lie, so that rows share what they both see.
          std::map<int64_t, Value> loaded;
          std::vector<Value> sums(rows_at_once_);
          for (int64_t tap = 0; tap < planes_.taps(); ++tap) {
            const int64_t w = tap % planes_.kernel[2], h = tap / planes_.kernel[2] % planes_.kernel[1];
            const int64_t d = tap / (planes_.kernel[1] * planes_.kernel[2]);
            for (int64_t r = 0; r < rows_at_once_; ++r) {
              const int64_t at = TapOffset(d, h, w) + r * pitch_;
              Value& pixels = loaded[at];
              if (!pixels) pixels = kb.Load(vector, kb.At(first, at, accumulator));
              sums[r] = take(tap, pixels, sums[r]);
            }
          }
          for (int64_t r = 0; r < rows_at_once_; ++r) {
            const Value at = kb.Add(row, r), to = kb.Add(kb.Mul(at, b.columns), j);
            if (rule_.finish) sums[r] = rule_.finish(k, b, at, j, sums[r]);
            kb.Store(sums[r], kb.At(results, to, accumulator));
          }
        });
      });
    };
    kb.If(kb.Less(b.columns, kb.Int(lanes_ + 1)), [&] { compute(lanes_); }, [&] { compute(2 * lanes_); });
  }

  void Store(Kernel& k, const Block& b, bool flat) {
    KernelBuilder& kb = k.o;
    const Type accumulator = types_.Accumulator(k.o);
    const Epilogue store = StorePixels(k, n_, 1, flat, b.image);
    const Value is_whole = kb.Equal(b.columns, kb.Int(planes_.out[2]));
    const Value runs = kb.Select(is_whole, kb.Int(1), b.rows);
    const Value length = kb.Select(is_whole, kb.Mul(b.rows, b.columns), b.columns);
    kb.For(kb.Int(0), runs, 1, [&](Value run) {
      const Value results = kb.At(b.scratch, kb.Add(kb.Mul(run, b.columns), results_at_), accumulator);
      const Value line = kb.Add(kb.Mul(b.slice, planes_.out[1]), kb.Add(b.row, run));
      const Value pixel = kb.Add(kb.Mul(line, planes_.out[2]), b.column);
      auto run_of = [&](int64_t lanes) {
        const Type type = lanes == 1 ? accumulator : Type(KernelBuilder::Vector(lanes, accumulator));
        kb.For(kb.Int(0), length, lanes, [&](Value at) {
          if (lanes > 1) at = kb.Min(at, kb.Sub(length, kb.Int(lanes)));  // the last begins earlier
          store(kb, kb.Int(0), b.channel, kb.Add(pixel, at), kb.Load(type, kb.At(results, at, accumulator)));
        });
      };
      if (!flat) return run_of(1);
      kb.If(kb.Less(length, kb.Int(lanes_)), [&] { run_of(1); }, [&] { run_of(lanes_); });
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  const GemmTypes& types_;
  const OpenPlanes& planes_;
  const WindowRule& rule_;
  int64_t lanes_, rows_at_once_;
  // Of a block; and of its scratch, in elements: [kernel's slice][phase][row][column], then the results.
  int64_t block_rows_, block_columns_, phase_rows_, pitch_, results_at_, spare_at_;
};

}  // namespace

bool EmitOpenWindows(FunctionEmitter& f, const Node& n, const GemmTypes& types, const OpenPlanes& planes,
                     const WindowRule& rule) {
  OpenWindows windows(f, n, types, planes, rule);
  if (!windows.Fits()) return false;
  if (rule.prepare) rule.prepare();
  windows.Emit();
  return true;
}

bool EmitOpenDepthwise(FunctionEmitter& f, const Node& n) {
  const int64_t groups = n.attrs->IntOr("groups", 1);
  if (groups == 1 || n.in(1).dims[1] != Extent(1) || n.in(1).dims[0].value() > groups * kMaxMultiplier) return false;
  const GemmTypes types(f, n.in(0).dtype);
  const OpenPlanes planes(n);
  WindowRule rule;
  rule.padding = [&](Ops& o) { return o.Zero(types.Accumulator(o)); };
  rule.begin = [&](Kernel& k, const WindowBlock& block) -> WindowRule::Take {
    Ops& o = k.o;
    const Type stored = types.Stored(o);
    const Value from = o.At(k.Pointer(n.in(1)), o.Mul(block.channel, planes.taps()), stored);
    auto weight = [&o, stored, from, accumulator = types.Accumulator(o)](int64_t tap) {
      return o.Widen(o.Load(stored, o.At(from, tap, stored)), accumulator);
    };
    std::vector<Value> kept;
    for (int64_t i = 0; planes.taps() <= kMaxKeptWeights && i < planes.taps(); ++i) kept.push_back(weight(i));
    return [&o, weight, kept](int64_t tap, Value pixels, Value before) {
      const Value factor = o.Splat(kept.empty() ? weight(tap) : kept[tap], pixels.getType());
      return o.MultiplyAdd(pixels, factor, before ? before : o.Zero(pixels.getType()));
    };
  };
  return EmitOpenWindows(f, n, types, planes, rule);
}

}  // namespace inlay::native
