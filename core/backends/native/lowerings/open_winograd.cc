// Winograd's convolutions (winograd_plan.h) of images whose size is open.
//
// Tiles are counted row by row, image by image, and a block is as many that follow each other, wherever rows and images
// end: so the products are of a size that is known, all blocks but the last are whole, and small images share them (of
// a sequence whose tiles see others, each has blocks of its own). The plan is that of a block as an image of its own;
// it is chosen for an image of a nominal size.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/backends/native/conv_shape.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/conv_support.h"
#include "core/backends/native/lowerings/open_planes.h"
#include "core/backends/native/microkernel.h"
#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/winograd.h"
#include "core/backends/native/winograd_parts.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using Values = std::vector<Value>;

constexpr int64_t kFloatBytes = 4;
// What the plan is chosen for where an extent is open: of images, and of sequences.
constexpr int64_t kNominalSide = 64, kNominalLength = 2048;
// Of a stride, an image's results that are too few tiles for 49 products' weights (Zen 3, us by Winograd and by rows of
// pixels: 512 channels of 14x14 by 2 to 512 5360 and 2570, four of 6x10 6670 and 4270; of 28x28 level).
constexpr int64_t kFewStridedPixels = 128;

// The convolution, of one image of the nominal size.
ConvShape NominalShape(const Node& n) {
  const OpenPlanes planes(n);
  ConvShape s;
  s.c = n.in(0).dims[1].value();
  s.m = n.out().dims[1].value();
  s.groups = n.attrs->IntOr("groups", 1);
  s.kernel = planes.kernel;
  s.stride = planes.strides;
  s.dilation = planes.dilations;
  s.pad = planes.pads;
  for (int d = 0; d < 3; ++d) {
    const int64_t nominal = n.out().rank() == 3 ? kNominalLength : kNominalSide,
                  reach = (s.kernel[d] - 1) * s.dilation[d];
    s.out[d] = planes.out[d].is_static() ? planes.out[d].value() : nominal;
    s.in[d] = planes.in[d].is_static() ? planes.in[d].value() : (s.out[d] - 1) * s.stride[d] + reach + 1 - 2 * s.pad[d];
    s.in[d] = std::max<int64_t>(s.in[d], 1);
  }
  return s;
}

class OpenWinograd {
 public:
  OpenWinograd(FunctionEmitter& f, const Node& n, const WinogradPlan& nominal)
      : f_(f), n_(n), planes_(n), lanes_(nominal.lanes), apart_(nominal.folded ? nominal.shape.dilation[2] : 1) {
    folded_ = nominal.folded;
    if (nominal.is_split()) {
      in_ = {planes_.padded[1], planes_.padded[2]};
    } else {
      in_ = {planes_.in[1], planes_.in[2]};
      pads_ = {planes_.pads[1], planes_.pads[2]};
    }
    block_cycles_ = nominal.cycles / nominal.tasks();
    plan_ = nominal;
    plan_.folded = false;
    const int64_t tiles = nominal.block_tiles();
    ConvShape& s = plan_.shape;
    s.n = 1;
    s.dilation = {1, 1, 1};
    s.pad = {0, 0, 0};
    s.kernel = {1, plan_.rows.taps, plan_.columns.taps};
    plan_.tile_rows = plan_.block_rows = folded_ ? nominal.block_rows : 1;
    plan_.tile_columns = plan_.block_columns = folded_ ? apart_ : tiles;
    s.out = {1, plan_.rows.m * plan_.tile_rows, plan_.columns.m * plan_.tile_columns};
    s.in = {1, plan_.rows.inputs_of(plan_.tile_rows), plan_.columns.inputs_of(plan_.tile_columns)};
    plan_.gemm.m = plan_.gemm.mc = tiles;

    out_columns_ = folded_ ? Extent(apart_) : planes_.out[2];
    const Extent out_rows = folded_ ? CeilDiv(planes_.out[2], apart_) : planes_.out[1];
    tile_columns_ = CeilDiv(out_columns_, plan_.columns.m);
    tile_rows_ = CeilDiv(out_rows, plan_.rows.m);
    tiles_ = tile_columns_ * tile_rows_ * (shares_blocks() ? images() : Extent(1));
    blocks_ = CeilDiv(tiles_, tiles);
    all_blocks_ = blocks_ * (shares_blocks() ? Extent(1) : images());
    // Room for whole tiles, and those that the last one's chunks see.
    auto beyond = [](const WinogradAxis& axis) {
      return (axis.chunks * axis.m - 1) * axis.stride + axis.tile_taps() - axis.stride;
    };
    auto room = [&](const Extent& out, const WinogradAxis& axis) { return out * axis.stride + beyond(axis); };
    plane_columns_ = folded_ ? Extent(apart_) : room(planes_.out[2], plan_.columns);
    line_columns_ = plane_columns_;
    lines_ = room(planes_.out[1], plan_.rows);
    if (folded_) {
      // Of one line, as many rows of `apart` as its last result needs.
      line_columns_ = planes_.out[2] + apart_ * (1 + beyond(plan_.rows));
      lines_ = 1;
    }
  }

  // Whether a task's scratch is its own.
  bool Fits() const { return plan_.scratch_bytes() <= Kernel::kMaxStackBytes; }

  void Emit() {
    const Tensor& w = n_.in(1);
    const Buffer weights = f_.State((plan_.packed_weight_elements() + 64) * kFloatBytes);
    f_.Parallel(
        1, 0, [&](Kernel& k, Value, Value) { EmitWinogradWeights(k.o, plan_, k.Pointer(w), k.Pointer(weights)); },
        Phase::kInit);
    const GemmTypes types(f_, ir::DType::kF32);
    const Buffer x = plan_.is_split() ? planes_.Emit(f_, n_.in(0), types, lanes_, 0) : f_.BufferOf(n_.in(0));
    const Extent planes_elements = images() * plan_.channel_vectors() * plane_elements();
    const Buffer planes = f_.Temporary((planes_elements + 64) * kFloatBytes);
    f_.ParallelEach(images() * plan_.channel_vectors() * lines_, Cycles(line_columns_) * 6,
                    [&](Kernel& k, Value item) { PadLine(k.o, item, k.Pointer(x), k.Pointer(planes)); });
    ShapeMap shapes;
    const bool flat = FlatPixels(f_, n_, &shapes);
    Buffer transformed = planes;
    if (!plan_.fused) {
      transformed = f_.Temporary(images() * TransformedBytes());
      const Extent items = all_blocks_ * plan_.channel_vectors();
      f_.ParallelEach(items, static_cast<double>(plan_.block_tiles() * plan_.points() * 4), [&](Kernel& k, Value item) {
        const Value block = k.o.Div(item, plan_.channel_vectors());
        const Value to = k.o.At(k.Pointer(transformed), k.o.Mul(block, plan_.input_elements()), k.o.b.getF32Type());
        TransformInput(k.o, k.Pointer(planes), block, k.o.Rem(item, plan_.channel_vectors()), to);
      });
    }
    const int64_t panels = plan_.panels();
    EmitTasks(
        f_, all_blocks_ * (plan_.fused ? 1 : panels), block_cycles_, plan_.scratch_bytes(),
        [&](Kernel& k, Value begin, Value end, Value scratch) {
          k.shapes = shapes;
          KernelBuilder& kb = k.o;
          const Epilogue store = StorePixels(k, n_, 1, flat, nullptr);
          kb.For(begin, end, 1, [&](Value task) {
            if (plan_.fused) {
              const Value input = Scratch(kb, scratch, 3);
              kb.For(plan_.channel_vectors(), [&](Value v) { TransformInput(kb, k.Pointer(planes), task, v, input); });
              kb.For(panels, [&](Value panel) { Panel(kb, task, panel, input, k.Pointer(weights), scratch, store); });
              return;
            }
            const Value block = plan_.panels_outer ? kb.Rem(task, all_blocks_) : kb.Div(task, panels);
            const Value panel = plan_.panels_outer ? kb.Div(task, all_blocks_) : kb.Rem(task, panels);
            const Value input = kb.At(k.Pointer(transformed), kb.Mul(block, plan_.input_elements()), kb.b.getF32Type());
            Panel(kb, block, panel, input, k.Pointer(weights), scratch, store);
          });
        });
  }

 private:
  Extent images() const { return n_.in(0).dims[0]; }
  bool shares_blocks() const { return !folded_ && plan_.chunks() == 1; }
  Extent plane_elements() const { return lines_ * line_columns_ * lanes_; }

  // Of an image; no less than all of its blocks take.
  Extent TransformedBytes() const {
    const int64_t block = plan_.input_elements() * kFloatBytes, tile = plan_.rows.m * plan_.columns.m;
    const Extent rows = folded_ ? planes_.out[2] + apart_ * plan_.rows.m : planes_.out[1] + (plan_.rows.m - 1);
    const Extent results = rows * (folded_ ? Extent(1) : planes_.out[2] + (plan_.columns.m - 1));
    return results * CeilDiv(block, tile * plan_.block_tiles()) + block;
  }

  // Parts of a task's scratch: products, results, a square, the transformed input.
  Value Scratch(KernelBuilder& kb, Value scratch, int part) const {
    const int64_t elements[] = {plan_.product_elements(), plan_.result_elements(), lanes_ * lanes_};
    int64_t at = 0;
    for (int i = 0; i < part; ++i) at += RoundUp(elements[i], kLineBytes / kFloatBytes);
    return kb.At(scratch, at, kb.b.getF32Type());
  }

  // A line of a vector of channels, channels innermost, with its padding.
  void PadLine(KernelBuilder& kb, Value item, Value x, Value planes) {
    const Type f32 = kb.b.getF32Type(), vector = KernelBuilder::Vector(lanes_, f32);
    const int64_t channels = plan_.shape.c, pad = pads_[1];
    const Value plane = kb.Div(item, lines_), row = kb.Rem(item, lines_);
    const Value image = kb.Div(plane, plan_.channel_vectors()), v = kb.Rem(plane, plan_.channel_vectors());
    const Value to = kb.At(planes, kb.Mul(item, line_columns_ * lanes_), f32), width = kb.Int(line_columns_);
    const Value in_row = kb.Add(row, -pads_[0]);
    auto zero = [&](Value first, Value last) {
      kb.For(first, last, 1, [&](Value q) { kb.Store(kb.Zero(vector), kb.At(to, kb.Mul(q, lanes_), f32)); });
    };
    auto copy = [&] {
      // Columns [left, left + count) are those of x from `skip` on.
      const int64_t skip = std::max<int64_t>(-pad, 0);
      const Value left = kb.Min(kb.Int(std::max<int64_t>(pad, 0)), width);
      const Value count = kb.Max(kb.Min(kb.Add(kb.Int(in_[1]), -skip), kb.Sub(width, left)), kb.Int(0));
      zero(kb.Int(0), left);
      zero(kb.Add(left, count), width);
      const Value first = kb.Add(kb.Mul(image, channels), kb.Mul(v, lanes_));
      const Value end = kb.Add(kb.Mul(image, channels), channels - 1);
      auto element = [&](Value lane, Value q) {
        // Channels beyond the last repeat it: no product reads them.
        const Value channel = kb.Min(kb.Add(first, lane), end);
        const Value line = kb.Add(kb.Mul(channel, in_[0]), in_row);
        return kb.At(x, kb.Add(kb.Add(kb.Mul(line, in_[1]), q), skip), f32);
      };
      auto pixel = [&](Value q) { return kb.At(to, kb.Mul(kb.Add(left, q), lanes_), f32); };
      auto squares = [&] {
        kb.For(kb.Int(0), count, lanes_, [&](Value at) {
          const Value q = kb.Min(at, kb.Sub(count, kb.Int(lanes_)));
          Values block;
          for (int64_t l = 0; l < lanes_; ++l) block.push_back(kb.Load(vector, element(kb.Int(l), q)));
          block = TransposeSquare(kb, block);
          for (int64_t l = 0; l < lanes_; ++l) kb.Store(block[l], kb.At(pixel(q), l * lanes_, f32));
        });
      };
      auto elements = [&] {
        kb.For(kb.Int(0), count, 1, [&](Value q) {
          kb.For(lanes_, [&](Value l) { kb.Store(kb.Load(f32, element(l, q)), kb.At(pixel(q), l, f32)); });
        });
      };
      kb.If(kb.Less(count, kb.Int(lanes_)), elements, squares);
    };
    kb.If(kb.IsWithin(in_row, in_[0]), copy, [&] { zero(kb.Int(0), width); });
  }

  Value TilesOf(KernelBuilder& kb, Value first) const {
    return kb.Min(kb.Int(plan_.block_tiles()), kb.Sub(kb.Int(tiles_), first));
  }
  Value FirstTile(KernelBuilder& kb, Value block) const { return kb.Mul(kb.Rem(block, blocks_), plan_.block_tiles()); }

  // How many tiles further a tile's next chunk lies; and so those of the block's last.
  int64_t ChunkTiles() const { return folded_ ? apart_ : 1; }
  int64_t TilesBeyond() const { return (plan_.chunks() - 1) * ChunkTiles(); }

  // A block's tiles and so many more, those of a row of an image after the other: body(which is the first in the block,
  // its image, its row and column there, how many).
  void ForRows(KernelBuilder& kb, Value block, int64_t more,
               const std::function<void(Value at, Value image, Value row, Value column, Value count)>& body) const {
    const Value first = FirstTile(kb, block), end = kb.Add(kb.Add(first, TilesOf(kb, first)), more);
    const Extent columns = folded_ ? tile_columns_ : tile_columns_ + more;  // of a sequence, its row goes on
    const Value last = kb.Div(kb.Add(end, -1), columns);
    kb.For(kb.Div(first, columns), kb.Add(last, 1), 1, [&](Value row) {
      const Value row_begin = kb.Mul(row, columns), begin = kb.Max(first, row_begin);
      const Value row_end = kb.Min(end, kb.Add(row_begin, columns));
      const Value image = shares_blocks() ? kb.Div(row, tile_rows_) : kb.Div(block, blocks_);
      const Value image_row = shares_blocks() ? kb.Rem(row, tile_rows_) : row;
      body(kb.Sub(begin, first), image, image_row, kb.Sub(begin, row_begin), kb.Sub(row_end, begin));
    });
  }

  // A vector of channels of a block.
  void TransformInput(KernelBuilder& kb, Value planes, Value block, Value v, Value to) {
    const Type f32 = kb.b.getF32Type();
    const Extent pitch = plane_columns_ * lanes_;
    ForRows(kb, block, TilesBeyond(), [&](Value at, Value image, Value row, Value column, Value count) {
      const Value plane = kb.Add(kb.Mul(image, plan_.channel_vectors()), v);
      const Value from = kb.At(planes, kb.Mul(plane, plane_elements()), f32);
      const Value line = kb.At(from, kb.Mul(kb.Mul(row, plan_.rows.step()), pitch), f32);
      kb.For(kb.Int(0), count, 1, [&](Value i) {
        const Value d = kb.At(line, kb.Mul(kb.Add(column, i), plan_.columns.step() * lanes_), f32);
        EmitWinogradTile(kb, plan_, d, pitch, kb.Add(at, i), kb.At(to, kb.Mul(v, lanes_), f32));
      });
    });
  }

  void Panel(KernelBuilder& kb, Value block, Value panel, Value input, Value weights, Value scratch,
             const Epilogue& store) {
    Multiply(kb, TilesOf(kb, FirstTile(kb, block)), input, weights, panel, scratch);
    const Value out_columns = kb.Int(out_columns_);
    const Value out_rows = kb.Int(folded_ ? CeilDiv(planes_.out[2], apart_) : planes_.out[1]);
    const Value results = Scratch(kb, scratch, 1), square = Scratch(kb, scratch, 2);
    kb.For(plan_.gemm.nv, [&](Value v) {
      const PanelChannels channels = ChannelsOf(kb, plan_, panel, v);
      ForRows(kb, block, 0, [&](Value at, Value image, Value row, Value column, Value count) {
        // Where the block has all of a tile row, its rows of results are one run; else a run each.
        const Value is_whole = kb.Equal(count, kb.Int(tile_columns_));
        const int64_t widest = plan_.block_columns * plan_.columns.m;
        const Value pitch = kb.Select(is_whole, out_columns, kb.Int(widest));
        TransformRow(kb, scratch, v, at, count, pitch, results);
        const Value first_row = kb.Mul(row, plan_.rows.m), first_column = kb.Mul(column, plan_.columns.m);
        const Value rows = kb.Min(kb.Int(plan_.rows.m), kb.Sub(out_rows, first_row));
        const Value columns = kb.Min(kb.Mul(count, plan_.columns.m), kb.Sub(out_columns, first_column));
        const Value runs = kb.Select(is_whole, kb.Int(1), rows);
        kb.For(kb.Int(0), runs, 1, [&](Value run) {
          const Value pixel = kb.Add(kb.Mul(kb.Add(first_row, run), out_columns), first_column);
          Value length = kb.Select(is_whole, kb.Mul(rows, out_columns), columns);
          if (folded_) length = kb.Min(length, kb.Sub(kb.Int(planes_.pixels()), pixel));
          const Value from = kb.At(results, kb.Mul(kb.Mul(run, pitch), lanes_), kb.b.getF32Type());
          EmitPixelRun(kb, lanes_, from, length, image, channels, pixel, store, square);
        });
      });
    });
  }

  void TransformRow(KernelBuilder& kb, Value products, Value v, Value at, Value count, Value pitch, Value results) {
    const Type f32 = kb.b.getF32Type();
    // From right to left, as winograd.cc does.
    kb.For(kb.Int(0), count, 1, [&](Value i) {
      const Value t = kb.Sub(kb.Add(count, -1), i);
      const Value from = kb.At(products, kb.Add(kb.Mul(kb.Add(at, t), plan_.gemm.nr()), kb.Mul(v, lanes_)), f32);
      const Value to = kb.At(results, kb.Mul(kb.Mul(t, plan_.columns.m), lanes_), f32);
      EmitWinogradResults(kb, plan_, from, to, pitch, 1);
    });
  }

  // All products of the block's tiles with a panel.
  void Multiply(KernelBuilder& kb, Value count, Value input, Value weights, Value panel, Value to) {
    for (const WinogradProducts& of : plan_.product_kinds()) MultiplyAlike(kb, of, count, input, weights, panel, to);
  }

  void MultiplyAlike(KernelBuilder& kb, const WinogradProducts& of, Value count, Value input, Value weights,
                     Value panel, Value to) {
    const GemmPlan& g = plan_.gemm;
    const Type f32 = kb.b.getF32Type();
    const int64_t mr = g.mr, point_weights = plan_.term_channels() * g.nr(), product_weights = of.terms * point_weights;
    const int64_t row_stride = of.terms * plan_.tile_channels();
    const Value panel_weights =
        kb.At(weights, kb.Add(kb.Mul(panel, plan_.panel_weight_elements()), of.first_point * point_weights), f32);
    const Value first_input = kb.At(input, plan_.input_offset(of.first, of.first_point), f32);
    const Value row_tiles = kb.Div(kb.Add(count, mr - 1), mr), last = kb.Max(kb.Sub(count, kb.Int(mr)), kb.Int(0));
    const Value ask_step = ShareOfRow(kb, g.nr() * kFloatBytes, row_tiles);
    kb.For(of.count, [&](Value product) {
      const Value p = kb.At(first_input, kb.Mul(product, plan_.input_pitch(of.terms)), f32);
      const Value q = kb.At(panel_weights, kb.Mul(product, product_weights), f32);
      const Value sums_at = kb.At(to, kb.Mul(kb.Add(product, of.first), plan_.product_pitch()), f32);
      kb.For(kb.Int(0), row_tiles, 1, [&](Value tile) {
        // The last tile begins earlier; of fewer tiles than it has rows, some are nobody's.
        const Value row = kb.Min(kb.Mul(tile, mr), last);
        RegisterTile t;
        t.rows = mr;
        t.vectors = g.nv;
        t.lanes = lanes_;
        t.accumulator = t.p_element = t.q_element = f32;
        t.p = kb.At(p, kb.Mul(row, row_stride), f32);
        t.p_row_stride = row_stride;
        t.q = q;
        t.q_k_stride = t.q_columns = g.nr();
        t.few_registers = g.core.has_few_registers();
        int64_t steps = of.terms * g.k;
        if (plan_.chunks() > 1) {
          steps = plan_.chunks();
          t.p_k_stride = ChunkTiles() * plan_.tile_channels();
          t.inner.push_back({plan_.group_inputs(), [](KernelBuilder&, Value channel) { return channel; }});
        } else {
          t.unrolled = g.unrolled_steps();
          t.prefetch_step = ask_step;  // of the next product's weights
          const Value asked = kb.Mul(kb.Mul(tile, t.prefetch_step), steps);
          t.prefetch = kb.At(kb.At(q, product_weights, f32), asked, kb.b.getI8Type());
        }
        const Values zeros(mr * g.nv, kb.Zero(KernelBuilder::Vector(lanes_, f32)));
        const Values sums = EmitRegisterTile(kb, t, kb.Int(0), kb.Int(steps), zeros);
        for (int64_t r = 0; r < mr; ++r) {
          const Value at = kb.At(sums_at, kb.Mul(kb.Add(row, r), g.nr()), f32);
          for (int64_t v = 0; v < g.nv; ++v) kb.Store(sums[r * g.nv + v], kb.At(at, v * lanes_, f32));
        }
      });
    });
  }

  FunctionEmitter& f_;
  const Node& n_;
  OpenPlanes planes_;
  // Rows and columns of what is cut into tiles: x, or its planes, which have the padding.
  std::array<Extent, 2> in_;
  std::array<int64_t, 2> pads_{0, 0};
  int64_t lanes_, apart_;
  bool folded_;
  double block_cycles_;
  WinogradPlan plan_;
  Extent out_columns_, tile_columns_, tile_rows_;
  Extent tiles_, blocks_;  // of an image, or of all that share blocks
  Extent all_blocks_;
  Extent plane_columns_, line_columns_, lines_;  // line: what is padded at a time, a row or a folded sequence
};

}  // namespace

bool EmitOpenWinograd(FunctionEmitter& f, const Node& n) {
  if (n.in(0).dtype != ir::DType::kF32 || !f.IsConstantParam(n.in(1)) || n.out().rank() > 4) return false;
  const Core& core = f.cpu().core;
  const ConvShape shape = NominalShape(n);
  const std::optional<WinogradPlan> plan = ChooseWinograd(core, PlanConv(core, shape, kFloatBytes), f.winograd());
  if (!plan || plan->has_phases() || plan->shape.groups > 1) return false;
  const bool is_sequence = n.out().rank() == 3;
  if (plan->is_split() && (is_sequence || shape.dilation != Spatial{1, 1, 1})) return false;
  if (plan->is_strided() && OpenPlanes(n).NominalPixels() <= kFewStridedPixels) return false;
  if ((plan->chunks() > 1 && !is_sequence) || plan->block_tiles() < plan->gemm.mr) return false;
  OpenWinograd winograd(f, n, *plan);
  if (!winograd.Fits()) return false;
  winograd.Emit();
  return true;
}

}  // namespace inlay::native
