#include "core/backends/native/winograd.h"

#include <algorithm>
#include <vector>

#include "core/backends/native/packing.h"
#include "core/backends/native/winograd_parts.h"
#include "core/backends/native/winograd_transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

namespace arith = mlir::arith;
using mlir::Type;
using mlir::Value;
using Values = std::vector<Value>;

// `count` tiles of a row of a vector of channels, from a row of the planes to `to`, where the vector of tile 0 goes;
// the first is tile `first`.
void TransformTiles(KernelBuilder& kb, const WinogradPlan& plan, Value row, Value first, int64_t count, Value to) {
  const int64_t pitch = plan.plane_columns() * plan.lanes;
  kb.For(count, [&](Value t) {
    const Value d = kb.At(row, kb.Mul(t, plan.columns.step() * plan.lanes), kb.b.getF32Type());
    EmitWinogradTile(kb, plan, d, pitch, kb.Add(first, t), to);
  });
}

// One block: its transformed input, products and results.
class BlockEmitter {
 public:
  BlockEmitter(KernelBuilder& kb, const WinogradPlan& plan, Value block)
      : kb_(kb), plan_(plan), f32_(kb.b.getF32Type()) {
    first_row_ = kb.Mul(kb.Div(block, plan.column_blocks()), plan.block_rows);
    first_column_ = kb.Mul(kb.Rem(block, plan.column_blocks()), plan.block_columns);
  }

  // One vector of channels of the block, from the planes to `to`, where its first tile goes.
  void TransformInput(Value planes, Value v, Value to) {
    int64_t lanes = plan_.lanes, pitch = plan_.plane_columns() * lanes;
    auto transform_row = [&](Value r, Value slice, Value row) {
      Value plane = kb_.Add(kb_.Mul(slice, plan_.channel_vectors()), v);
      Value from = kb_.At(planes, kb_.Mul(plane, plan_.plane_elements()), f32_);
      Value in_row = kb_.Mul(row, plan_.rows.step());
      if (plan_.has_phases()) {
        in_row = kb_.Add(kb_.Mul(kb_.Div(row, plan_.phase_rows()), plan_.plane_phase_rows()),
                         kb_.Mul(kb_.Rem(row, plan_.phase_rows()), plan_.rows.step()));
      }
      from = kb_.At(from, kb_.Mul(in_row, pitch), f32_);
      from = kb_.At(from, kb_.Mul(first_column_, plan_.columns.step() * lanes), f32_);
      const int64_t phases = plan_.column_phases(), count = plan_.block_pitch() / phases;
      kb_.For(phases, [&](Value phase) {
        TransformTiles(kb_, plan_, kb_.At(from, kb_.Mul(phase, plan_.plane_phase_columns() * lanes), f32_),
                       kb_.Add(kb_.Mul(r, plan_.block_pitch()), kb_.Mul(phase, count)), count, to);
      });
    };
    ForTileRows(transform_row);
    if (plan_.rows.chunks == 1) return;
    // Those that the last rows' chunks see, of the same slice.
    const Value after = RowsOfBlock(), slice = kb_.Div(first_row_, plan_.tile_rows);
    const Value next = kb_.Add(kb_.Rem(first_row_, plan_.tile_rows), after);
    kb_.For(plan_.rows.chunks - 1, [&](Value i) { transform_row(kb_.Add(after, i), slice, kb_.Add(next, i)); });
  }

  // Where the block's transformed input lies in that of the image (is_deep).
  Value InputOffset() {
    int64_t rows = plan_.shape.out[0] * plan_.tile_rows;
    Value tile = kb_.Add(kb_.Mul(kb_.Rem(first_row_, rows), plan_.row_tiles()), first_column_);
    Value image = kb_.Div(first_row_, rows);
    return kb_.Add(kb_.Mul(image, plan_.input_elements()), kb_.Mul(tile, plan_.tile_channels()));
  }

  // All products of the block with one panel of output channels.
  void Multiply(Value input, Value weights, Value panel, Value to) {
    for (const WinogradProducts& of : plan_.product_kinds()) MultiplyAlike(of, input, weights, panel, to);
  }

  // Products to results, tile row by tile row; `results`: result_elements(), `square`: lanes^2.
  void TransformOutput(Value products, Value panel, const Epilogue& epilogue, Value results, Value square) {
    const int64_t lanes = plan_.lanes;
    kb_.For(plan_.gemm.nv, [&](Value v) {
      const PanelChannels channels = ChannelsOf(kb_, plan_, panel, v);
      auto store = [&](Value from, Value length, Value image, Value pixel) {
        EmitPixelRun(kb_, lanes, from, length, image, channels, pixel, epilogue, square);
      };
      ForTileRows([&](Value r, Value slice, Value row) {
        TransformRow(products, v, r, results);
        StoreRow(r, slice, row, results, store);
      });
    });
  }

 private:
  // A tile row of a vector of channels to `results`.
  void TransformRow(Value products, Value v, Value r, Value results) {
    const int64_t lanes = plan_.lanes, pitch = plan_.result_pitch();
    // From right to left: what the last tile has too much falls into the next row's first columns, which are yet to
    // be written.
    kb_.For(plan_.block_columns, [&](Value i) {
      Value t = kb_.Sub(kb_.Int(plan_.block_columns - 1), i);
      Value tile = kb_.Add(kb_.Mul(r, plan_.block_pitch()), t);
      Value from = kb_.At(products, kb_.Add(kb_.Mul(tile, plan_.gemm.nr()), kb_.Mul(v, lanes)), f32_);
      const int64_t apart = plan_.column_phases();  // neighbouring columns of a tile
      Value first = kb_.Mul(t, plan_.columns.m);
      if (plan_.has_phases()) {
        first = kb_.Add(kb_.Mul(kb_.Rem(t, plan_.phase_columns()), plan_.columns.m * apart),
                        kb_.Div(t, plan_.phase_columns()));
      }
      if (plan_.block_runs_on()) first = kb_.Add(first, kb_.Mul(r, plan_.rows.m * pitch));
      EmitWinogradResults(kb_, plan_, from, kb_.At(results, kb_.Mul(first, lanes), f32_), kb_.Int(pitch), apart);
    });
  }

  // What there is to store after a tile row: `store` gets runs of pixels, [pixel][lane], from the image's `pixel` on.
  void StoreRow(Value r, Value slice, Value row, Value results,
                const std::function<void(Value from, Value length, Value image, Value pixel)>& store) {
    const int64_t lanes = plan_.lanes, pitch = plan_.result_pitch();
    Value first_row = kb_.Mul(row, plan_.rows.m), image = slice, first_pixel = kb_.Int(0);
    if (plan_.shape.out[0] > 1) {
      image = kb_.Div(slice, plan_.shape.out[0]);
      first_pixel = kb_.Mul(kb_.Rem(slice, plan_.shape.out[0]), plan_.shape.out[1] * plan_.shape.out[2]);
    }
    const int64_t rows_apart = plan_.row_phases();
    Value out_rows = kb_.Int(plan_.out_rows()), phase = kb_.Int(0);
    if (plan_.has_phases()) {
      first_row = kb_.Mul(kb_.Rem(row, plan_.phase_rows()), plan_.rows.m);
      phase = kb_.Div(row, plan_.phase_rows());
      out_rows = kb_.Div(kb_.Sub(kb_.Int(plan_.out_rows() + rows_apart - 1), phase), rows_apart);
    }
    Value rows = kb_.Min(kb_.Int(plan_.rows.m), kb_.Sub(out_rows, first_row));
    auto left = [&](Value pixel) { return kb_.Sub(kb_.Int(plan_.shape.pixels()), pixel); };
    if (plan_.block_runs_on()) {
      const Value before = kb_.Min(r, row);  // tile rows of the image in the block
      const Value goes_on =
          kb_.And(kb_.Less(row, kb_.Int(plan_.tile_rows - 1)), kb_.Less(r, kb_.Int(plan_.block_rows - 1)));
      const int64_t tile_row = plan_.rows.m * pitch;
      kb_.If(
          goes_on, [] {},
          [&] {
            const Value skipped = kb_.Mul(before, tile_row);
            const Value pixel = kb_.Add(first_pixel, kb_.Sub(kb_.Mul(first_row, pitch), skipped));
            Value length = kb_.Add(skipped, kb_.Mul(rows, pitch));
            if (plan_.folded) length = kb_.Min(length, left(pixel));
            store(kb_.At(results, kb_.Mul(kb_.Sub(r, before), tile_row * lanes), f32_), length, image, pixel);
          });
      return;
    }
    if (plan_.rows_run_on()) {
      Value pixel = kb_.Add(first_pixel, kb_.Mul(first_row, pitch));
      store(results, kb_.Mul(rows, pitch), image, pixel);
      return;
    }
    Value column = kb_.Mul(first_column_, plan_.columns.m);
    Value length = kb_.Min(kb_.Int(pitch), kb_.Sub(kb_.Int(plan_.out_columns()), column));
    kb_.For(kb_.Int(0), rows, 1, [&](Value p) {
      const Value out_row = kb_.Add(kb_.Mul(kb_.Add(first_row, p), rows_apart), phase);
      Value pixel = kb_.Add(kb_.Mul(out_row, plan_.out_columns()), column);
      pixel = kb_.Add(first_pixel, pixel);
      store(kb_.At(results, kb_.Mul(p, pitch * lanes), f32_), plan_.folded ? kb_.Min(length, left(pixel)) : length,
            image, pixel);
    });
  }

  void MultiplyAlike(const WinogradProducts& of, Value input, Value weights, Value panel, Value to) {
    const int64_t product_weights = of.terms * plan_.term_channels() * plan_.gemm.nr();
    GemmKernel g;
    g.plan = plan_.gemm_of(of);
    g.accumulator = g.p.element = g.q.element = f32_;
    g.inline_epilogue = true;
    Value group = kb_.Rem(kb_.Div(panel, plan_.group_panels()), plan_.task_groups());
    Value first_channel = kb_.Mul(group, plan_.group_inputs());
    g.p.pointer = kb_.At(input, kb_.Add(first_channel, plan_.input_offset(of.first, of.first_point)), f32_);
    g.p.row_stride = of.terms * plan_.tile_channels();
    if (of.terms > 1 && !plan_.terms_adjoin()) {
      g.p.k_stride = plan_.tile_channels();
      g.p.inner.push_back({plan_.group_inputs(), [](KernelBuilder&, Value channel) { return channel; }});
    }
    if (plan_.chunks() > 1) {
      g.p.k_stride = (plan_.rows.chunks > 1 ? plan_.block_pitch() : 1) * plan_.tile_channels();
      g.p.inner.push_back({plan_.group_inputs(), [](KernelBuilder&, Value channel) { return channel; }});
    }
    if (plan_.is_deep()) {
      int64_t slice = plan_.slice_tiles() * plan_.tile_channels();
      g.p.inner.push_back({plan_.shape.kernel[0], [=](KernelBuilder& kb, Value tap) { return kb.Mul(tap, slice); }});
    }
    g.p.batch_offset = [&](KernelBuilder& kb, Value batch) {
      return kb.Mul(kb.Rem(batch, of.count), plan_.input_pitch(of.terms));
    };
    g.q.pointer = kb_.At(weights, of.first_point * plan_.term_channels() * plan_.gemm.nr(), f32_);
    g.q.batch_offset = [&](KernelBuilder& kb, Value batch) {
      return kb.Add(kb.Mul(kb.Div(batch, of.count), plan_.panel_weight_elements()),
                    kb.Mul(kb.Rem(batch, of.count), product_weights));
    };
    g.epilogue = [&](KernelBuilder& kb, Value batch, Value row, Value column, Value acc) {
      Value at = kb.Add(kb.Mul(kb.Add(kb.Rem(batch, of.count), of.first), plan_.product_pitch()),
                        kb.Add(kb.Mul(row, plan_.gemm.nr()), column));
      kb.Store(acc, kb.At(to, at, f32_));
    };
    Value first = kb_.Mul(panel, of.count);
    EmitGemmTasks(kb_, g, first, kb_.Add(first, of.count), to);
  }

  // body(row in the block, slice, row in the slice) for the tile rows that exist; slices are counted through the batch.
  void ForTileRows(const std::function<void(Value, Value, Value)>& body) {
    kb_.For(kb_.Int(0), RowsOfBlock(), 1, [&](Value r) {
      Value row = kb_.Add(first_row_, r);
      if (plan_.shape.n * plan_.shape.out[0] == 1) return body(r, kb_.Int(0), row);
      body(r, kb_.Div(row, plan_.tile_rows), kb_.Rem(row, plan_.tile_rows));
    });
  }

  Value RowsOfBlock() {
    const int64_t all = plan_.shape.n * plan_.shape.out[0] * plan_.tile_rows;
    Value rows = kb_.Int(plan_.block_rows);
    if (all % plan_.block_rows != 0) rows = kb_.Min(rows, kb_.Sub(kb_.Int(all), first_row_));
    return rows;
  }

  KernelBuilder& kb_;
  const WinogradPlan& plan_;
  Type f32_;
  Value first_row_, first_column_;
};

// The kernels of an output channel, whose weights lie at w.
class Kernels {
 public:
  Kernels(KernelBuilder& kb, const WinogradPlan& plan, Value w) : kb_(kb), plan_(plan), w_(w) {}

  static int64_t Elements(const WinogradPlan& plan) {
    if (!plan.is_split()) return plan.group_inputs() * plan.shape.kernel[0] * plan.taps();
    const Spatial &stride = plan.split_stride, &kernel = plan.split_kernel;
    return plan.group_inputs() / (stride[1] * stride[2]) * kernel[1] * kernel[2];
  }

  // The taps of channel c's, widened; 0 beyond the last: of a chunk, or of a phase.
  std::function<Value(int64_t)> Of(Value c) const {
    if (!plan_.is_split()) {
      return [this, g = kb_.At(w_, kb_.Mul(c, plan_.taps()), f32_)](int64_t t) {
        return t < plan_.taps() ? Widened(kb_.At(g, t, f32_)) : kb_.Zero(f64_);
      };
    }
    const Spatial &stride = plan_.split_stride, &kernel = plan_.split_kernel;
    const int64_t all = stride[1] * stride[2], width = plan_.columns.taps;
    const Value g = kb_.At(w_, kb_.Mul(kb_.Div(c, all), kernel[1] * kernel[2]), f32_), phase = kb_.Rem(c, all);
    const Value first_row = kb_.Div(phase, stride[2]), first_column = kb_.Rem(phase, stride[2]);
    return [=, this](int64_t t) {
      if (t >= plan_.taps()) return kb_.Zero(f64_);
      const Value row = kb_.Add(first_row, t / width * stride[1]),
                  column = kb_.Add(first_column, t % width * stride[2]);
      const Value exists = kb_.And(kb_.Less(row, kb_.Int(kernel[1])), kb_.Less(column, kb_.Int(kernel[2])));
      const Value at = kb_.Select(exists, kb_.Add(kb_.Mul(row, kernel[2]), column), kb_.Int(0));
      return kb_.Select(exists, Widened(kb_.At(g, at, f32_)), kb_.Zero(f64_));
    };
  }

 private:
  Value Widened(Value pointer) const { return kb_.Widen(kb_.Load(f32_, pointer), f64_); }

  KernelBuilder& kb_;
  const WinogradPlan& plan_;
  const Value w_;
  const Type f32_ = kb_.b.getF32Type(), f64_ = kb_.b.getF64Type();
};

}  // namespace

void EmitWinogradWeights(KernelBuilder& kb, const WinogradPlan& plan, Value w, Value to) {
  Type f32 = kb.b.getF32Type();
  const ConvShape& s = plan.shape;
  int64_t kernels = plan.group_inputs() * s.kernel[0], nr = plan.gemm.nr(), point = plan.term_channels() * nr;
  const std::vector<WinogradPoint> places = plan.point_places();
  kb.For(plan.panels() * nr, [&](Value channel) {
    // Columns beyond the last channel repeat it: computed, never stored.
    Value panel = kb.Div(channel, nr), in_group = kb.Rem(channel, plan.group_panels() * nr);
    Value output = kb.Add(kb.Mul(kb.Div(panel, plan.group_panels()), plan.group_outputs()),
                          kb.Min(in_group, kb.Int(plan.group_outputs() - 1)));
    const Kernels kernels_of(kb, plan, kb.At(w, kb.Mul(output, Kernels::Elements(plan)), f32));
    Value column = kb.Add(kb.Mul(panel, plan.panel_weight_elements()), kb.Rem(channel, nr));
    const int64_t height = plan.rows.tile_taps(), width = plan.columns.tile_taps();
    for (int64_t chunk = 0; chunk < plan.chunks(); ++chunk) {
      const int64_t first = chunk * height * width;
      kb.For(kernels, [&](Value c) {
        const auto taps = kernels_of.Of(c);
        Values u = BothWays(
            plan, height, width, [&](int64_t i, int64_t j) { return taps(first + i * width + j); },
            [&](const WinogradAxis& axis, const Values& x) { return WeightTransform(kb, axis, x); });
        Value target = kb.At(to, kb.Add(column, kb.Mul(kb.Add(c, chunk * kernels), nr)), f32);
        for (size_t i = 0; i < u.size(); ++i) {
          kb.Store(kb.b.create<arith::TruncFOp>(kb.loc, f32, u[i]), kb.At(target, places[i].place * point, f32));
        }
      });
    }
    // Beyond the last channel, where terms adjoin.
    kb.For(kb.Int(kernels * plan.chunks()), kb.Int(plan.term_channels()), 1, [&](Value c) {
      Value target = kb.At(to, kb.Add(column, kb.Mul(c, nr)), f32);
      kb.For(plan.points(), [&](Value i) { kb.Store(kb.Zero(f32), kb.At(target, kb.Mul(i, point), f32)); });
    });
  });
}

void EmitWinogradPlanes(KernelBuilder& kb, const WinogradPlan& plan, Value x, Value begin, Value end, Value to) {
  const ConvShape& s = plan.shape;
  Type f32 = kb.b.getF32Type(), vector = KernelBuilder::Vector(plan.lanes, f32);
  int64_t lanes = plan.lanes, width = plan.plane_line_columns();
  // Columns [left, left + count) are those of x from `skip` on.
  int64_t left = std::clamp<int64_t>(s.pad[2], 0, width), skip = std::max<int64_t>(-s.pad[2], 0);
  int64_t count = std::clamp<int64_t>(s.in[2] - skip, 0, width - left);
  kb.For(begin, end, 1, [&](Value item) {
    Value plane = kb.Div(item, plan.plane_lines()), row = kb.Rem(item, plan.plane_lines());
    Value image = kb.Div(plane, plan.channel_vectors()), v = kb.Rem(plane, plan.channel_vectors());
    Value in_row = kb.Add(row, -s.pad[1]), in_slice = kb.Int(0);
    if (plan.has_phases()) {
      const Value phase = kb.Div(row, plan.plane_phase_rows()), of_phase = kb.Rem(row, plan.plane_phase_rows());
      in_row = kb.Add(kb.Add(kb.Mul(of_phase, s.dilation[1]), phase), -s.pad[1]);
    }
    if (plan.slices() > 1) {
      in_slice = kb.Add(kb.Rem(image, plan.slices()), -s.pad[0]);
      image = kb.Div(image, plan.slices());
    }
    Value target = kb.At(to, kb.Mul(item, width * lanes), f32);
    auto zero = [&](int64_t first, int64_t last) {
      kb.For(kb.Int(first), kb.Int(last), 1,
             [&](Value q) { kb.Store(kb.Zero(vector), kb.At(target, kb.Mul(q, lanes), f32)); });
    };
    Value inside = kb.IsWithin(in_row, s.in[1]);
    if (plan.slices() > 1) {
      inside = kb.And(inside, kb.IsWithin(in_slice, s.in[0]));
    }
    kb.If(
        inside,
        [&] {
          zero(0, plan.has_phases() ? width : left);
          zero(left + count, width);
          if (count == 0) return;
          Value first = kb.Add(kb.Mul(image, s.c), kb.Mul(v, lanes));
          Value in_rows = kb.Add(kb.Mul(in_slice, s.in[1]), in_row);
          int64_t loaded = std::min(count, lanes);
          kb.For(kb.Int(0), kb.Int(count), lanes, [&](Value at) {
            Value q = count < lanes ? kb.Int(0) : kb.Min(at, kb.Int(count - lanes));
            Value offset = kb.Add(kb.Add(kb.Mul(in_rows, s.in[2]), q), skip);
            Values block;
            for (int64_t l = 0; l < lanes; ++l) {
              // Channels beyond the last repeat it: no product reads them.
              Value channel = kb.Add(first, l);
              if (s.c % lanes != 0) channel = kb.Min(channel, kb.Add(kb.Mul(image, s.c), s.c - 1));
              block.push_back(
                  kb.LoadFirst(vector, kb.At(x, kb.Add(kb.Mul(channel, s.in_elements()), offset), f32), loaded));
            }
            block = TransposeSquare(kb, block);
            Value out = kb.At(target, kb.Mul(kb.Add(q, left), lanes), f32);
            for (int64_t l = 0; l < loaded; ++l) {
              Value pixel = kb.At(out, l * lanes, f32);
              if (plan.has_phases()) {
                const Value column = kb.Add(q, left + l), phase = kb.Rem(column, s.dilation[2]);
                const Value place = kb.Add(kb.Mul(phase, plan.plane_phase_columns()), kb.Div(column, s.dilation[2]));
                pixel = kb.At(target, kb.Mul(place, lanes), f32);
              }
              kb.Store(block[l], pixel);
            }
          });
        },
        [&] { zero(0, width); });
  });
}

void EmitWinogradInput(KernelBuilder& kb, const WinogradPlan& plan, Value planes, Value begin, Value end, Value to) {
  Type f32 = kb.b.getF32Type();
  kb.For(begin, end, 1, [&](Value item) {
    Value v = kb.Rem(item, plan.channel_vectors());
    if (!plan.is_deep()) {
      Value block = kb.Div(item, plan.channel_vectors());
      Value target = kb.At(to, kb.Add(kb.Mul(block, plan.input_elements()), kb.Mul(v, plan.lanes)), f32);
      BlockEmitter(kb, plan, block).TransformInput(planes, v, target);
      return;
    }
    // Slice by slice, as the planes lie.
    Value slice = kb.Div(item, plan.channel_vectors());
    Value image = kb.Div(slice, plan.slices()), tile = kb.Mul(kb.Rem(slice, plan.slices()), plan.slice_tiles());
    Value target = kb.At(to, kb.Add(kb.Mul(image, plan.input_elements()), kb.Mul(v, plan.lanes)), f32);
    Value plane = kb.At(planes, kb.Mul(item, plan.plane_elements()), f32);
    kb.For(plan.tile_rows, [&](Value row) {
      TransformTiles(kb, plan, kb.At(plane, kb.Mul(row, plan.rows.step() * plan.plane_columns() * plan.lanes), f32),
                     kb.Add(tile, kb.Mul(row, plan.row_tiles())), plan.row_tiles(), target);
    });
  });
}

void EmitWinogradTasks(KernelBuilder& kb, const WinogradKernel& kernel, Value begin, Value end, Value scratch) {
  const WinogradPlan& plan = kernel.plan;
  Type f32 = kb.b.getF32Type();
  auto aligned = [](int64_t elements) { return (elements + 15) / 16 * 16; };
  Value results = kb.At(scratch, aligned(plan.product_elements()), f32);
  Value square = kb.At(results, aligned(plan.result_elements()), f32);
  Value transformed = kb.At(square, aligned(plan.lanes * plan.lanes), f32);
  kb.For(begin, end, 1, [&](Value task) {
    auto panel_of = [&](BlockEmitter& emitter, Value input, Value panel) {
      emitter.Multiply(input, kernel.weights, panel, scratch);
      emitter.TransformOutput(scratch, panel, kernel.epilogue, results, square);
    };
    if (plan.fused) {
      // Group by group: the blocks of one read the same weights.
      const int64_t vectors = plan.channel_vectors() / plan.group_tasks(), panels = plan.panels() / plan.group_tasks();
      BlockEmitter emitter(kb, plan, kb.Rem(task, plan.blocks()));
      const Value group = kb.Div(task, plan.blocks());
      kb.For(vectors, [&](Value v) {
        emitter.TransformInput(kernel.input, kb.Add(kb.Mul(group, vectors), v),
                               kb.At(transformed, kb.Mul(v, plan.lanes), f32));
      });
      kb.For(panels, [&](Value p) { panel_of(emitter, transformed, kb.Add(kb.Mul(group, panels), p)); });
      return;
    }
    Value block = plan.panels_outer ? kb.Rem(task, plan.blocks()) : kb.Div(task, plan.panels());
    Value panel = plan.panels_outer ? kb.Div(task, plan.blocks()) : kb.Rem(task, plan.panels());
    BlockEmitter emitter(kb, plan, block);
    Value input = plan.is_deep() ? emitter.InputOffset() : kb.Mul(block, plan.input_elements());
    panel_of(emitter, kb.At(kernel.input, input, f32), panel);
  });
}

}  // namespace inlay::native
