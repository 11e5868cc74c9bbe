#include "core/backends/native/conv.h"

#include "core/backends/native/conv_bands.h"
#include "core/backends/native/conv_pixels.h"
#include "core/backends/native/conv_planes.h"
#include "core/backends/native/depthwise.h"
#include "core/backends/native/packing.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

constexpr int64_t kMaxUnrolledTaps = 8;

// Packs channels [k_begin, k_end) / taps of a panel: to[k][column] = plane(channel)[pixel(column) + offset(tap)].
void PackPixels(KernelBuilder& kb, const ConvKernel& kernel, const PackRequest& request) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  int64_t taps = s.taps(), width = request.vectors * plan.lanes, channels = s.c / s.groups;
  Type type = kernel.accumulator;
  Value first_plane = kb.At(kernel.input, kb.Mul(request.batch, channels * plan.plane_elements()), type);
  std::vector<PixelVector> columns;
  for (int64_t v = 0; v < request.vectors; ++v) {
    Value first = kb.Add(kb.Mul(request.panel, plan.gemm.nr()), v * plan.lanes);
    columns.push_back(LocatePixels(kb, plan, first_plane, type, first, plan.padded[1]));
  }
  Value begin = kb.Div(request.k_begin, taps), end = kb.Div(request.k_end, taps);
  kb.For(begin, end, 1, [&](Value channel) {
    Value plane = kb.Mul(channel, plan.plane_elements());
    Value to = kb.At(request.to, kb.Mul(kb.Sub(channel, begin), taps * width), type);
    kb.For(s.kernel[0], [&](Value d) {
      kb.For(s.kernel[1], [&](Value h) {
        Value row = kb.Mul(kb.Add(kb.Mul(d, s.kernel[1]), h), s.kernel[2]);
        auto tap = [&](Value w) {
          Value offset = kb.Add(plane, TapOffset(kb, plan, d, h, w));
          Value at = kb.At(to, kb.Mul(kb.Add(row, w), width), type);
          for (int64_t v = 0; v < request.vectors; ++v) {
            kb.Store(LoadPixels(kb, plan, columns[v], offset, type), kb.At(at, v * plan.lanes, type));
          }
        };
        if (s.kernel[2] <= kMaxUnrolledTaps) {
          for (int64_t w = 0; w < s.kernel[2]; ++w) tap(kb.Int(w));
        } else {
          kb.For(s.kernel[2], tap);
        }
      });
    });
  });
}

// Zeros as wide as a row of x, behind the scratch of the contraction.
Value ZeroRow(KernelBuilder& kb, const ConvKernel& kernel, Value scratch) {
  const ConvPlan& plan = kernel.plan;
  Value zeros = kb.At(scratch, plan.gemm.scratch_bytes() / plan.gemm.element_bytes, kernel.accumulator);
  Value zero = kb.Zero(KernelBuilder::Vector(plan.lanes, kernel.accumulator));
  kb.For(kb.Int(0), kb.Int(plan.zero_row_elements()), plan.lanes,
         [&](Value i) { kb.Store(zero, kb.At(zeros, i, kernel.accumulator)); });
  return zeros;
}

// Row = pixel: tiles of consecutive pixels, within an image row, whole ones, or wherever they lie; k over channels and
// taps.
void EmitPixelRows(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  int64_t channels = s.c / s.groups, groups = s.groups;
  int64_t plane = plan.padded_input ? plan.plane_elements() : s.in_elements();
  GemmKernel g;
  g.plan = plan.gemm;
  g.accumulator = kernel.accumulator;
  g.multiply_add = kernel.multiply_add;
  g.epilogue = kernel.epilogue;
  g.ahead = kernel.ahead;
  g.transpose_output = true;
  g.inline_epilogue = kernel.inline_epilogue;
  g.p.pointer = kernel.input;
  g.p.element = plan.padded_input ? kernel.accumulator : kernel.input_elements.stored;
  g.p.row_stride = 1;
  g.p.k_stride = plan.tiled_input ? plan.gemm.mr : plane;
  g.p.tile_stride = plan.tiled_input ? plan.gemm.mr * plan.gemm.k : 0;
  const int64_t image = plan.tiled_input ? plan.gemm.packed_row_elements() : channels * plane;
  g.p.batch_offset = [=](KernelBuilder& kb, Value batch) { return kb.Mul(batch, image); };
  if (plan.pixels_in_place()) {
    Value zeros = ZeroRow(kb, kernel, scratch);
    g.tile = [&kernel, zeros](KernelBuilder& kb, const TileRequest& tile, const std::vector<Value>& in) {
      return EmitPixelTile(kb, kernel, zeros, tile, in);
    };
  } else if (s.taps() > 1) {
    const Spatial padded = plan.padded;
    for (int d = 0; d < 3; ++d) {
      g.p.inner.push_back({s.kernel[d], [&plan, d](KernelBuilder& kb, Value tap) {
                             Value at[3] = {kb.Int(0), kb.Int(0), kb.Int(0)};
                             at[d] = tap;
                             return TapOffset(kb, plan, at[0], at[1], at[2]);
                           }});
    }
    int64_t mr = plan.gemm.mr, width = s.out[2], height = s.out[1];
    if (IsPixelTile(s, mr)) {
      for (int64_t r = 0; r < mr; ++r) g.p.rows.push_back(r / width * padded[2] + r % width);
      g.p.tile_offset = [=](KernelBuilder& kb, Value tile) {
        if (mr > width) return kb.Mul(tile, mr / width * padded[2]);
        int64_t tiles = width / mr;
        Value row = kb.Div(tile, tiles);
        Value at = kb.Add(kb.Mul(kb.Div(row, height), padded[1]), kb.Rem(row, height));
        return kb.Add(kb.Mul(at, padded[2]), kb.Mul(kb.Rem(tile, tiles), mr));
      };
    } else {
      g.p.row_offset = [=](KernelBuilder& kb, Value tile, int64_t r) {
        const Value pixel = kb.Add(kb.Mul(tile, mr), r);
        return kb.Add(kb.Mul(kb.Div(pixel, width), padded[2]), kb.Rem(pixel, width));
      };
    }
  }
  g.q.pointer = kernel.weights;
  g.q.element = kernel.accumulator;
  int64_t group = plan.gemm.k * plan.gemm.packed_columns();
  g.q.batch_offset = [=](KernelBuilder& kb, Value batch) { return kb.Mul(kb.Rem(batch, groups), group); };
  EmitGemmTasks(kb, g, begin, end, scratch);
}

}  // namespace

void EmitPadInput(KernelBuilder& kb, const ConvPlan& plan, Value x, const InputElements& elements, Type accumulator,
                  Value begin, Value end, Value to) {
  if (plan.tiled_input) {
    kb.For(begin, end, 1, [&](Value task) { EmitTilePixels(kb, plan, x, elements, accumulator, task, to); });
    return;
  }
  kb.For(begin, end, 1, [&](Value plane) {
    const Value from = kb.At(x, kb.Mul(plane, plan.shape.in_elements()), elements.stored);
    EmitPadPlane(kb, plan, from, elements, accumulator, kb.Int(0),
                 kb.At(to, kb.Mul(plane, plan.plane_elements()), accumulator));
  });
}

void EmitPackConvWeights(KernelBuilder& kb, const ConvPlan& plan, Value w, Type element, Type packed, Value to) {
  if (plan.has_channel_lanes()) {
    EmitPackDepthwiseWeights(kb, plan, w, element, packed, to);
    return;
  }
  const ConvShape& s = plan.shape;
  const GemmPlan& g = plan.gemm;
  int64_t taps = s.taps(), rows = s.m / s.groups, channels = s.c / s.groups;
  int64_t group = plan.packed_weight_elements() / s.groups;
  kb.For(s.groups, [&](Value i) {
    Value from = kb.At(w, kb.Mul(i, rows * channels * taps), element);
    Value target = kb.At(to, kb.Mul(i, group), packed);
    if (plan.method == ConvMethod::kPixelRows) {
      EmitPackColumns(kb, g, StridedMatrix{from, element, 1, g.k}, packed, target);
      return;
    }
    if (!s.reversed) {
      EmitPackRows(kb, g, StridedMatrix{from, element, 1, g.k}, target);
      return;
    }
    kb.For(channels, [&](Value c) {
      kb.For(rows, [&](Value r) {
        kb.For(taps, [&](Value t) {
          Value at = kb.Add(kb.Mul(kb.Add(kb.Mul(c, rows), r), taps), kb.Sub(kb.Int(taps - 1), t));
          Value k = kb.Add(kb.Mul(c, taps), t);
          const Value row = PackedRow(kb, g, r);
          kb.Store(kb.Load(element, kb.At(from, at, element)), kb.At(target, kb.Add(row, kb.Mul(k, g.mr)), packed));
        });
      });
    });
  });
}

void EmitConvTasks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  const ConvPlan& plan = kernel.plan;
  if (plan.is_depthwise()) {
    EmitDepthwiseTasks(kb, kernel, begin, end, scratch);
    return;
  }
  if (plan.method == ConvMethod::kPixelRows) {
    EmitPixelRows(kb, kernel, begin, end, scratch);
    return;
  }
  if (plan.method == ConvMethod::kBands) {
    EmitBandTasks(kb, kernel, begin, end, scratch);
    return;
  }
  const ConvShape& s = plan.shape;
  GemmKernel g;
  g.plan = plan.gemm;
  g.accumulator = kernel.accumulator;
  g.multiply_add = kernel.multiply_add;
  g.inline_epilogue = kernel.inline_epilogue;
  g.epilogue = kernel.epilogue;
  g.ahead = kernel.ahead;
  g.p.pointer = kernel.weights;
  g.p.element = kernel.weight_element;
  g.p.row_stride = 1;
  g.p.k_stride = plan.gemm.mr;
  g.p.tile_stride = plan.gemm.mr * plan.gemm.k;
  if (s.groups > 1) {
    int64_t group = plan.packed_weight_elements() / s.groups;
    g.p.batch_offset = [=](KernelBuilder& kb, Value batch) { return kb.Mul(kb.Rem(batch, s.groups), group); };
  }
  if (plan.method == ConvMethod::kPointwise) {
    int64_t image = s.c / s.groups * s.pixels();
    g.q.pointer = kernel.input;
    g.q.element = kernel.input_elements.stored;
    g.q.k_stride = s.pixels();
    g.q.batch_offset = [=](KernelBuilder& kb, Value batch) { return kb.Mul(batch, image); };
  } else {
    g.q.element = kernel.accumulator;
    g.q.pack = [&](KernelBuilder& kb, const PackRequest& request) { PackPixels(kb, kernel, request); };
  }
  g.tile = kernel.tile;
  EmitGemmTasks(kb, g, begin, end, scratch);
}

}  // namespace inlay::native
