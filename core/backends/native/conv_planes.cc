#include "core/backends/native/conv_planes.h"

#include <algorithm>

#include "core/backends/native/rounding.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

// Of a row: more are a loop of scalars.
constexpr int64_t kMaxEdgeVectors = 40;

Value Padding(KernelBuilder& kb, const InputElements& elements, Type type) {
  if (elements.padding == 0) return kb.Zero(type);
  const Value bits = kb.b.create<mlir::arith::ConstantIntOp>(kb.loc, elements.padding, 32);
  return mlir::isa<mlir::VectorType>(type) ? kb.Splat(bits, type) : bits;
}

// A row of every phase plane: element q of phase p is x[q * stride + p - pad] where that exists, else padding.
void PadRow(KernelBuilder& kb, const ConvPlan& plan, Value x, const InputElements& elements, Type accumulator,
            const std::vector<Value>& to) {
  const Type element = elements.stored;
  const ConvShape& s = plan.shape;
  const int64_t stride = s.stride[2], width = plan.padded[2], lanes = plan.lanes;
  // Vectors [left, right) have all their lanes inside of x; the others are code each.
  const int64_t vectors = CeilDiv(width, lanes);
  auto first = [&](int64_t vector) { return vector * lanes * stride - s.pad[2]; };
  const int64_t left = std::clamp<int64_t>(CeilDiv(s.pad[2], lanes * stride), 0, vectors);
  int64_t right = std::max(left, width / lanes);
  while (right > left && first(right) > s.in[2]) --right;
  const bool power_of_two = (stride & (stride - 1)) == 0;
  if (!power_of_two || stride > lanes || vectors - (right - left) > kMaxEdgeVectors) {
    for (size_t phase = 0; phase < to.size(); ++phase) {
      const int64_t offset = static_cast<int64_t>(phase) - s.pad[2];
      const int64_t begin = std::clamp<int64_t>(CeilDiv(-offset, stride), 0, width);
      const int64_t end = std::clamp(CeilDiv(s.in[2] - offset, stride), begin, width);
      auto zero = [&](Value q) { kb.Store(Padding(kb, elements, accumulator), kb.At(to[phase], q, accumulator)); };
      kb.For(kb.Int(0), kb.Int(begin), 1, zero);
      kb.For(kb.Int(begin), kb.Int(end), 1, [&](Value q) {
        Value from = kb.At(x, kb.Add(kb.Mul(q, stride), offset), element);
        kb.Store(elements.Convert(kb, kb.Load(element, from), accumulator), kb.At(to[phase], q, accumulator));
      });
      kb.For(kb.Int(end), kb.Int(width), 1, zero);
    }
    return;
  }
  // As `like` says what lies inside.
  auto pad = [&](Value vector, int64_t like) {
    std::vector<Value> run;
    Value from = kb.At(x, kb.Add(kb.Mul(vector, lanes * stride), -s.pad[2]), element);
    for (int64_t i = 0; i < stride; ++i) {
      const int64_t at = first(like) + i * lanes, begin = -at, end = s.in[2] - at;
      Value loaded = kb.LoadLanes(KernelBuilder::Vector(lanes, element), kb.At(from, i * lanes, element), begin, end);
      if (elements.converted) loaded = elements.converted(kb, loaded);
      if ((elements.converted || elements.padding != 0) && (begin > 0 || end < lanes)) {
        const Value inside = kb.LaneMask(lanes, kb.Int(begin), kb.Int(end));
        loaded = kb.Select(inside, loaded, Padding(kb, elements, loaded.getType()));
      }
      run.push_back(loaded);
    }
    run = Deinterleave(kb, run);
    for (size_t phase = 0; phase < to.size(); ++phase) {
      Value at = kb.At(to[phase], kb.Mul(vector, lanes), accumulator);
      const Value row = elements.converted ? run[phase] : kb.Widen(run[phase], accumulator);
      kb.StoreFirst(row, at, width - like * lanes);
    }
  };
  for (int64_t vector = 0; vector < left; ++vector) pad(kb.Int(vector), vector);
  kb.For(kb.Int(left), kb.Int(right), 1, [&](Value vector) { pad(vector, left); });
  for (int64_t vector = right; vector < vectors; ++vector) pad(kb.Int(vector), vector);
}

void PaddingRow(KernelBuilder& kb, int64_t width, int64_t lanes, const InputElements& elements, Type accumulator,
                Value to) {
  const Value padding = Padding(kb, elements, KernelBuilder::Vector(lanes, accumulator));
  kb.For(kb.Int(0), kb.Int(width / lanes), 1,
         [&](Value i) { kb.Store(padding, kb.At(to, kb.Mul(i, lanes), accumulator)); });
  int64_t rest = width % lanes;
  if (rest > 0) kb.StoreFirst(padding, kb.At(to, width - rest, accumulator), rest);
}

// With zeros between the elements: everything zero, then the elements one by one.
void SpreadPlane(KernelBuilder& kb, const ConvPlan& plan, Value x, const InputElements& elements, Type accumulator,
                 Value to) {
  const ConvShape& s = plan.shape;
  const Type element = elements.stored;
  PaddingRow(kb, plan.plane_elements(), plan.lanes, elements, accumulator, to);
  Spatial first, last;  // of the elements that fall inside
  for (int d = 0; d < 3; ++d) {
    first[d] = std::max<int64_t>(CeilDiv(-s.pad[d], s.input_dilation[d]), 0);
    last[d] = std::min(CeilDiv(plan.padded[d] - s.pad[d], s.input_dilation[d]), s.in[d]);
  }
  auto place = [&](int d, Value i) { return kb.Add(kb.Mul(i, s.input_dilation[d]), s.pad[d]); };
  kb.For(kb.Int(first[0]), kb.Int(last[0]), 1, [&](Value d) {
    kb.For(kb.Int(first[1]), kb.Int(last[1]), 1, [&](Value h) {
      kb.For(kb.Int(first[2]), kb.Int(last[2]), 1, [&](Value w) {
        Value from = kb.Add(kb.Mul(kb.Add(kb.Mul(d, s.in[1]), h), s.in[2]), w);
        Value at =
            kb.Add(kb.Mul(kb.Add(kb.Mul(place(0, d), plan.padded[1]), place(1, h)), plan.padded[2]), place(2, w));
        const Value loaded = kb.Load(element, kb.At(x, from, element));
        kb.Store(elements.Convert(kb, loaded, accumulator), kb.At(to, at, accumulator));
      });
    });
  });
}

// Of no halves: each phase's elements, from one vector after the other.
std::vector<Value> DeinterleaveOdd(KernelBuilder& kb, const std::vector<Value>& run, int64_t lanes) {
  const int64_t stride = run.size();
  std::vector<Value> phases(stride, run[0]);
  for (int64_t phase = 0; phase < stride; ++phase) {
    for (int64_t i = 1; i < stride; ++i) {
      llvm::SmallVector<int64_t> mask(lanes);
      for (int64_t l = 0; l < lanes; ++l) {
        const int64_t at = l * stride + phase;
        const bool of_first = i == 1 && at < lanes;
        mask[l] = of_first ? at : at / lanes == i ? lanes + at % lanes : l;
      }
      phases[phase] = kb.b.create<mlir::vector::ShuffleOp>(kb.loc, phases[phase], run[i], mask);
    }
  }
  return phases;
}

}  // namespace

std::vector<Value> Deinterleave(KernelBuilder& kb, const std::vector<Value>& run) {
  if (run.size() == 1) return run;
  const int64_t lanes = mlir::cast<mlir::VectorType>(run[0].getType()).getNumElements();
  if (run.size() % 2 == 1) return DeinterleaveOdd(kb, run, lanes);
  std::vector<Value> half[2];
  for (int64_t parity : {0, 1}) {
    llvm::SmallVector<int64_t> mask(lanes);
    for (int64_t l = 0; l < lanes; ++l) mask[l] = 2 * l + parity;
    for (size_t i = 0; i < run.size(); i += 2) {
      half[parity].push_back(kb.b.create<mlir::vector::ShuffleOp>(kb.loc, run[i], run[i + 1], mask));
    }
    half[parity] = Deinterleave(kb, half[parity]);
  }
  std::vector<Value> phases;
  for (size_t i = 0; i < run.size(); ++i) phases.push_back(half[i % 2][i / 2]);
  return phases;
}

void EmitPadPlane(KernelBuilder& kb, const ConvPlan& plan, Value x, const InputElements& elements, Type accumulator,
                  Value out_row, Value to) {
  const ConvShape& s = plan.shape;
  const Type element = elements.stored;
  if (s.input_dilation != Spatial{1, 1, 1}) {
    SpreadPlane(kb, plan, x, elements, accumulator, to);
    return;
  }
  int64_t rows = plan.padded[1], slices = plan.padded[0];
  kb.For(plan.phases[0], [&](Value pd) {
    kb.For(plan.phases[1], [&](Value ph) {
      kb.For(slices, [&](Value d) {
        kb.For(rows, [&](Value h) {
          Value in_d = kb.Add(kb.Add(kb.Mul(d, s.stride[0]), pd), -s.pad[0]);
          Value in_h = kb.Add(kb.Add(kb.Mul(kb.Add(out_row, h), s.stride[1]), ph), -s.pad[1]);
          Value inside = kb.And(kb.IsWithin(in_d, s.in[0]), kb.IsWithin(in_h, s.in[1]));
          Value phase = kb.Mul(kb.Add(kb.Mul(pd, plan.phases[1]), ph), plan.phases[2]);
          Value row = kb.Add(kb.Mul(phase, plan.phase_elements()), kb.Mul(kb.Add(kb.Mul(d, rows), h), plan.padded[2]));
          std::vector<Value> at;
          for (int64_t pw = 0; pw < plan.phases[2]; ++pw) {
            at.push_back(kb.At(to, kb.Add(row, pw * plan.phase_elements()), accumulator));
          }
          kb.If(
              inside,
              [&] {
                Value from = kb.At(x, kb.Mul(kb.Add(kb.Mul(in_d, s.in[1]), in_h), s.in[2]), element);
                PadRow(kb, plan, from, elements, accumulator, at);
              },
              [&] {
                for (Value phase : at) PaddingRow(kb, plan.padded[2], plan.lanes, elements, accumulator, phase);
              });
        });
      });
    });
  });
}

// Element q of phase p is x[(first + q) * stride + p - pad].
void EmitPadPart(KernelBuilder& kb, const ConvPlan& plan, Value x, const InputElements& elements, Type accumulator,
                 Value first, Value to) {
  const Type element = elements.stored;
  const ConvShape& s = plan.shape;
  const int64_t stride = s.stride[2], width = plan.padded[2], lanes = plan.lanes;
  const Value start = kb.Add(kb.Mul(first, stride), -s.pad[2]);
  std::vector<Value> phases;
  for (int64_t phase = 0; phase < plan.phases[2]; ++phase) {
    phases.push_back(kb.At(to, phase * plan.phase_elements(), accumulator));
  }
  if ((stride & (stride - 1)) != 0 || stride > lanes) {
    for (size_t phase = 0; phase < phases.size(); ++phase) {
      kb.For(width, [&](Value q) {
        const Value from = kb.Add(kb.Add(start, kb.Mul(q, stride)), static_cast<int64_t>(phase));
        const Value at = kb.At(phases[phase], q, accumulator);
        kb.If(
            kb.IsWithin(from, s.in[2]),
            [&] { kb.Store(elements.Convert(kb, kb.Load(element, kb.At(x, from, element)), accumulator), at); },
            [&] { kb.Store(Padding(kb, elements, accumulator), at); });
      });
    }
    return;
  }
  const auto pad = [&](Value vector, int64_t stored, bool is_inside) {
    std::vector<Value> run;
    const Value from = kb.Add(start, kb.Mul(vector, lanes * stride));
    for (int64_t i = 0; i < stride; ++i) {
      const Value at = kb.Add(from, i * lanes), pointer = kb.At(x, at, element);
      const Type type = KernelBuilder::Vector(lanes, element);
      if (is_inside) {
        const Value loaded = kb.Load(type, pointer);
        run.push_back(elements.converted ? elements.converted(kb, loaded) : loaded);
        continue;
      }
      const Value begin = kb.Max(kb.Sub(kb.Int(0), at), kb.Int(0));
      const Value inside = kb.LaneMask(lanes, begin, kb.Min(kb.Sub(kb.Int(s.in[2]), at), kb.Int(lanes)));
      Value loaded = kb.MaskedLoad(pointer, inside, kb.Zero(type));
      if (elements.converted) loaded = elements.converted(kb, loaded);
      if (elements.converted || elements.padding != 0) {
        loaded = kb.Select(inside, loaded, Padding(kb, elements, loaded.getType()));
      }
      run.push_back(loaded);
    }
    run = Deinterleave(kb, run);
    for (size_t phase = 0; phase < phases.size(); ++phase) {
      const Value row = elements.converted ? run[phase] : kb.Widen(run[phase], accumulator);
      kb.StoreFirst(row, kb.At(phases[phase], kb.Mul(vector, lanes), accumulator), stored);
    }
  };
  const int64_t whole = width / lanes, rest = width % lanes;
  const auto part = [&](bool is_inside) {
    kb.For(whole, [&](Value vector) { pad(vector, lanes, is_inside); });
    if (rest > 0) pad(kb.Int(whole), rest, is_inside);
  };
  const Value end = kb.Add(start, CeilDiv(width, lanes) * lanes * stride);
  const Value is_inside = kb.And(kb.IsWithin(start, s.in[2]), kb.Less(end, kb.Int(s.in[2] + 1)));
  kb.If(is_inside, [&] { part(true); }, [&] { part(false); });
}

void EmitTilePixels(KernelBuilder& kb, const ConvPlan& plan, Value x, const InputElements& elements, Type accumulator,
                    Value task, Value to) {
  const ConvShape& s = plan.shape;
  const GemmPlan& g = plan.gemm;
  const Type element = elements.stored;
  const int64_t channels = plan.group_channels(), runs = plan.channel_runs();
  const Value batch = kb.Div(task, runs), begin = kb.Mul(kb.Rem(task, runs), kTiledChannels);
  const Value end = kb.Min(kb.Int(channels), kb.Add(begin, kTiledChannels));
  const Value planes = kb.At(x, kb.Mul(batch, channels * s.in_elements()), element);
  const Value tiles = kb.At(to, kb.Mul(batch, g.packed_row_elements()), accumulator);
  // Where a pixel of the result lies in a plane of x.
  auto place = [&](Value pixel) {
    if (s.is_pointwise()) return pixel;
    const Value row = kb.Div(pixel, s.out[2]), slice = kb.Div(row, s.out[1]);
    const Value h = kb.Mul(kb.Rem(row, s.out[1]), s.stride[1]), w = kb.Mul(kb.Rem(pixel, s.out[2]), s.stride[2]);
    const Value plane = kb.Mul(kb.Mul(slice, s.stride[0]), s.in[1]);
    return kb.Add(kb.Mul(kb.Add(plane, h), s.in[2]), w);
  };
  auto copy = [&](Value tile, Value first, int64_t rows) {
    struct Part {
      int64_t row, pixels;
      Value from;
    };
    std::vector<Part> parts;  // as loads take them
    for (int64_t row = 0; row < rows; row += parts.back().pixels) {
      int64_t pixels = 1;
      while (s.is_pointwise() && 2 * pixels <= std::min(rows - row, plan.lanes)) pixels *= 2;
      parts.push_back({row, pixels, place(kb.Add(first, row))});
    }
    kb.For(begin, end, 1, [&](Value c) {
      const Value plane = kb.At(planes, kb.Mul(c, s.in_elements()), element);
      const Value at = kb.At(tiles, kb.Mul(kb.Add(kb.Mul(tile, g.k), c), g.mr), accumulator);
      for (const Part& part : parts) {
        const Type type = part.pixels == 1 ? element : Type(KernelBuilder::Vector(part.pixels, element));
        const Value pixels = kb.Load(type, kb.At(plane, part.from, element));
        kb.Store(elements.Convert(kb, pixels, accumulator), kb.At(at, part.row, accumulator));
      }
    });
  };
  const int64_t whole = g.whole_tiles(), lower = g.mr - 1;
  kb.For(whole, [&](Value tile) { copy(tile, kb.Mul(tile, g.mr), g.mr); });
  if (g.lower_tiles() > 0) {
    kb.For(g.lower_tiles(), [&](Value i) { copy(kb.Add(i, whole), kb.Add(kb.Mul(i, lower), whole * g.mr), lower); });
  }
  if (g.m_tail() > 0) copy(kb.Int(whole), kb.Int(whole * g.mr), g.m_tail());
}

Value TapOffset(KernelBuilder& kb, const ConvPlan& plan, Value d, Value h, Value w) {
  const ConvShape& s = plan.shape;
  Value tap[3] = {d, h, w}, phase = kb.Int(0), at = kb.Int(0);
  for (int i = 0; i < 3; ++i) {
    Value coordinate = kb.Mul(tap[i], s.dilation[i]);
    phase = kb.Add(kb.Mul(phase, plan.phases[i]), plan.phases[i] == 1 ? kb.Int(0) : kb.Rem(coordinate, s.stride[i]));
    at = kb.Add(kb.Mul(at, plan.padded[i]), kb.Div(coordinate, s.stride[i]));
  }
  return kb.Add(kb.Mul(phase, plan.phase_elements()), at);
}

bool PixelsAdjoin(const ConvPlan& plan, int64_t rows_per_slice) {
  const Spatial& out = plan.shape.out;
  if (plan.cuts_row()) return true;
  return out[2] == plan.padded[2] && (out[0] == 1 || rows_per_slice == out[1]);
}

PixelVector LocatePixels(KernelBuilder& kb, const ConvPlan& plan, Value plane, Type element, Value first,
                         int64_t rows_per_slice, bool in_row) {
  const ConvShape& s = plan.shape;
  int64_t width = s.out[2], stride = plan.padded[2];
  PixelVector result;
  if (PixelsAdjoin(plan, rows_per_slice)) {
    result.pointers.push_back(kb.At(plane, first, element));
    return result;
  }
  int64_t pieces = in_row || width % plan.lanes == 0 ? 1 : (plan.lanes - 2) / width + 2;
  Value row = kb.Div(first, width), column = kb.Rem(first, width);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    Value r = kb.Add(row, piece);
    if (s.out[0] > 1) r = kb.Add(kb.Mul(kb.Div(r, s.out[1]), rows_per_slice), kb.Rem(r, s.out[1]));
    Value back = kb.Add(column, -piece * width);
    result.pointers.push_back(kb.At(plane, kb.Add(kb.Mul(r, stride), back), element));
    if (pieces == 1) break;
    Value begin = kb.Sub(kb.Int(0), back);
    result.masks.push_back(kb.LaneMask(plan.lanes, begin, kb.Add(begin, width)));
  }
  return result;
}

Value LoadPixels(KernelBuilder& kb, const ConvPlan& plan, const PixelVector& pixels, Value offset, Type element) {
  Type vector = KernelBuilder::Vector(plan.lanes, element);
  if (pixels.masks.empty()) return kb.Load(vector, kb.At(pixels.pointers[0], offset, element));
  Value value = kb.Zero(vector);
  for (size_t i = 0; i < pixels.pointers.size(); ++i) {
    value = kb.MaskedLoad(kb.At(pixels.pointers[i], offset, element), pixels.masks[i], value);
  }
  return value;
}

}  // namespace inlay::native
