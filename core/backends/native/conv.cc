#include "core/backends/native/conv.h"

#include <tuple>
#include <utility>

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
// `in_row`: the panel's pixels lie in one row.
void PackPixels(KernelBuilder& kb, const ConvKernel& kernel, const PackRequest& request, bool in_row) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  int64_t taps = s.taps(), width = request.vectors * plan.lanes, channels = s.c / s.groups;
  Type type = kernel.accumulator;
  Value first_plane = kb.At(kernel.input, kb.Mul(request.batch, channels * plan.plane_elements()), type);
  std::vector<PixelVector> columns;
  for (int64_t v = 0; v < request.vectors; ++v) {
    Value first = kb.Add(kb.Mul(request.panel, plan.gemm.nr()), v * plan.lanes);
    columns.push_back(LocatePixels(kb, plan, first_plane, type, first, plan.padded[1], in_row));
  }
  // A row of the kernel over a channel, the k-th of those from k_begin on.
  auto row = [&](Value channel, Value d, Value h, Value k) {
    auto tap = [&](Value w) {
      Value offset = kb.Add(kb.Mul(channel, plan.plane_elements()), TapOffset(kb, plan, d, h, w));
      Value at = kb.At(request.to, kb.Mul(kb.Add(kb.Mul(k, s.kernel[2]), w), width), type);
      for (int64_t v = 0; v < request.vectors; ++v) {
        kb.Store(LoadPixels(kb, plan, columns[v], offset, type), kb.At(at, v * plan.lanes, type));
      }
    };
    if (s.kernel[2] <= kMaxUnrolledTaps) {
      for (int64_t w = 0; w < s.kernel[2]; ++w) tap(kb.Int(w));
    } else {
      kb.For(s.kernel[2], tap);
    }
  };
  if (plan.skips_padding) {
    Value begin = kb.Div(request.k_begin, s.kernel[2]), end = kb.Div(request.k_end, s.kernel[2]);
    kb.For(begin, end, 1, [&](Value k) {
      Value kernel_row = kb.Div(k, channels);
      row(kb.Rem(k, channels), kb.Div(kernel_row, s.kernel[1]), kb.Rem(kernel_row, s.kernel[1]), kb.Sub(k, begin));
    });
    return;
  }
  Value begin = kb.Div(request.k_begin, taps), end = kb.Div(request.k_end, taps);
  kb.For(begin, end, 1, [&](Value channel) {
    kb.For(s.kernel[0], [&](Value d) {
      kb.For(s.kernel[1], [&](Value h) {
        Value rows = kb.Mul(kb.Sub(channel, begin), s.kernel[0] * s.kernel[1]);
        row(channel, d, h, kb.Add(rows, kb.Add(kb.Mul(d, s.kernel[1]), h)));
      });
    });
  });
}

// The same by code for panels within a row, where most are, and by code for the others (Zen 3, 48 channels of 7x127 to
// 32 by 8x8: 1.51 -> 1.43 ms).
void PackPanel(KernelBuilder& kb, const ConvKernel& kernel, const PackRequest& request) {
  const int64_t width = kernel.plan.shape.out[2], columns = request.vectors * kernel.plan.lanes;
  auto pack = [&](bool in_row) { PackPixels(kb, kernel, request, in_row); };
  const bool is_one_run = PixelsAdjoin(kernel.plan, kernel.plan.padded[1]);  // then panels across rows are as others
  if (!kernel.plan.has_panels_in_rows() || is_one_run) return pack(false);
  const Value column = kb.Rem(kb.Mul(request.panel, kernel.plan.gemm.nr()), width);
  kb.If(kb.Less(column, kb.Int(width - columns + 1)), [&] { pack(true); }, [&] { pack(false); });
}

// Of an axis' taps those, [first, second), that any of its output places [begin, end] sees inside of x.
std::pair<Value, Value> TapsInside(KernelBuilder& kb, const ConvShape& s, int axis, Value begin, Value end) {
  const int64_t step = s.dilation[axis], pad = s.pad[axis];
  auto count = [&](Value x) {
    return kb.Min(kb.Div(kb.Add(kb.Max(x, kb.Int(0)), step - 1), step), kb.Int(s.kernel[axis]));
  };
  const Value first = count(kb.Sub(kb.Int(pad), kb.Mul(end, s.stride[axis])));
  const Value last = count(kb.Sub(kb.Int(s.spread_in(axis) + pad), kb.Mul(begin, s.stride[axis])));
  return {first, kb.Max(first, last)};
}

// What of a kernel [first, last) a run of pixels sees inside of x: in all of its slices the same rows.
struct RowsSeen {
  std::pair<Value, Value> slices, rows;
};

RowsSeen SeeRows(KernelBuilder& kb, const ConvShape& s, Value pixel, int64_t pixels) {
  const Value last_pixel = kb.Min(kb.Add(pixel, pixels - 1), kb.Int(s.pixels() - 1));
  const Value first = kb.Div(pixel, s.out[2]), last = kb.Div(last_pixel, s.out[2]);
  const Value slice = kb.Div(first, s.out[1]), last_slice = kb.Div(last, s.out[1]);
  RowsSeen seen{TapsInside(kb, s, 0, slice, last_slice), {}};
  const auto [rows, rows_end] = TapsInside(kb, s, 1, kb.Rem(first, s.out[1]), kb.Rem(last, s.out[1]));
  const Value in_slice = kb.Equal(slice, last_slice);
  seen.rows = {kb.Select(in_slice, rows, kb.Int(0)), kb.Select(in_slice, rows_end, kb.Int(s.kernel[1]))};
  return seen;
}

// Of the steps [begin, end) on k those that a panel computes that skips padding: of a block that is (a part of) one
// slice of the kernel, those of its rows that see any of x; of others, from the first such to the last.
GemmKernel::Steps StepsOfPanel(KernelBuilder& kb, const ConvPlan& plan, Value panel, Value begin, Value end) {
  const int64_t row = plan.row_steps(), slice = plan.shape.kernel[1] * row;
  const auto [slices, rows] = SeeRows(kb, plan.shape, kb.Mul(panel, plan.gemm.nr()), plan.gemm.nr());
  const Value first = kb.Max(kb.Div(begin, slice), slices.first);
  const Value last = kb.Min(kb.Div(kb.Sub(end, kb.Int(1)), slice), kb.Sub(slices.second, kb.Int(1)));
  const Value from = kb.Max(begin, kb.Add(kb.Mul(first, slice), kb.Mul(rows.first, row)));
  const Value to = kb.Min(end, kb.Add(kb.Mul(last, slice), kb.Mul(rows.second, row)));
  return {kb.Min(from, end), kb.Max(to, kb.Min(from, end))};
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
    if (plan.skips_padding) {
      g.p.bound_inner = [&s, mr](KernelBuilder& kb, Value tile, std::vector<InnerLoop>* inner) {
        const auto [slices, rows] = SeeRows(kb, s, kb.Mul(tile, mr), mr);
        std::tie((*inner)[0].first, (*inner)[0].last) = slices;
        std::tie((*inner)[1].first, (*inner)[1].last) = rows;
      };
    }
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
    if (!s.reversed && !plan.skips_padding) {  // k as the weights lie
      EmitPackRows(kb, g, StridedMatrix{from, element, 1, g.k}, target);
      return;
    }
    kb.For(channels, [&](Value c) {
      kb.For(rows, [&](Value r) {
        kb.For(taps, [&](Value t) {
          Value filter = s.reversed ? kb.Add(kb.Mul(c, rows), r) : kb.Add(kb.Mul(r, channels), c);
          Value at = kb.Add(kb.Mul(filter, taps), s.reversed ? kb.Sub(kb.Int(taps - 1), t) : t);
          Value k = kb.Add(kb.Mul(c, taps), t);
          if (plan.skips_padding) {
            Value row = kb.Add(kb.Mul(kb.Div(t, s.kernel[2]), channels), c);
            k = kb.Add(kb.Mul(row, s.kernel[2]), kb.Rem(t, s.kernel[2]));
          }
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
    g.q.pack = [&](KernelBuilder& kb, const PackRequest& request) { PackPanel(kb, kernel, request); };
    if (plan.skips_padding) {
      g.steps = [&](KernelBuilder& kb, Value panel, Value begin, Value end) {
        return StepsOfPanel(kb, plan, panel, begin, end);
      };
    }
  }
  g.tile = kernel.tile;
  EmitGemmTasks(kb, g, begin, end, scratch);
}

}  // namespace inlay::native
