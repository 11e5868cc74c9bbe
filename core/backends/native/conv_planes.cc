#include "core/backends/native/conv_planes.h"

#include <algorithm>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

int64_t CeilDiv(int64_t x, int64_t y) { return x >= 0 ? (x + y - 1) / y : -(-x / y); }

// A row of a phase plane, a vector at a time: element q is x[q * stride + phase - pad] where that exists, else zero.
void PadRow(KernelBuilder& kb, const ConvPlan& plan, Value x, Type element, Type accumulator, int64_t phase, Value to) {
  const ConvShape& s = plan.shape;
  int64_t stride = s.stride[2], width = plan.padded[2], lanes = plan.lanes;
  int64_t begin = std::max<int64_t>(CeilDiv(s.pad[2] - phase, stride), 0);
  int64_t end = std::min(CeilDiv(s.in[2] + s.pad[2] - phase, stride), width);
  Type vector = KernelBuilder::Vector(lanes, element);
  int64_t chunks = (width + lanes - 1) / lanes;
  if (stride > 2 || chunks > 40) {
    auto zero = [&](Value q) { kb.Store(kb.Zero(accumulator), kb.At(to, q, accumulator)); };
    kb.For(kb.Int(0), kb.Int(std::min(begin, width)), 1, zero);
    kb.For(kb.Int(begin), kb.Int(end), 1, [&](Value q) {
      Value from = kb.At(x, kb.Add(kb.Mul(q, stride), phase - s.pad[2]), element);
      kb.Store(kb.Widen(kb.Load(element, from), accumulator), kb.At(to, q, accumulator));
    });
    kb.For(kb.Int(std::max(end, begin)), kb.Int(width), 1, zero);
    return;
  }
  for (int64_t q = 0; q < width; q += lanes) {
    int64_t first = q * stride + phase - s.pad[2];  // of x, in lane 0
    Value value;
    if (stride == 1) {
      value = kb.LoadLanes(vector, kb.At(x, first, element), -first, s.in[2] - first);
    } else {
      Value low = kb.LoadLanes(vector, kb.At(x, first, element), -first, s.in[2] - first);
      Value high = kb.LoadLanes(vector, kb.At(x, first + lanes, element), -first - lanes, s.in[2] - first - lanes);
      llvm::SmallVector<int64_t> even(lanes);
      for (int64_t l = 0; l < lanes; ++l) even[l] = 2 * l;
      value = kb.b.create<mlir::vector::ShuffleOp>(kb.loc, low, high, even);
    }
    kb.StoreFirst(kb.Widen(value, accumulator), kb.At(to, q, accumulator), width - q);
  }
}

void ZeroRow(KernelBuilder& kb, int64_t width, int64_t lanes, Type accumulator, Value to) {
  Type vector = KernelBuilder::Vector(lanes, accumulator);
  kb.For(kb.Int(0), kb.Int(width / lanes), 1,
         [&](Value i) { kb.Store(kb.Zero(vector), kb.At(to, kb.Mul(i, lanes), accumulator)); });
  int64_t rest = width % lanes;
  if (rest > 0) kb.StoreFirst(kb.Zero(vector), kb.At(to, width - rest, accumulator), rest);
}

// With zeros between the elements: everything zero, then the elements one by one.
void SpreadPlane(KernelBuilder& kb, const ConvPlan& plan, Value x, Type element, Type accumulator, Value to) {
  const ConvShape& s = plan.shape;
  ZeroRow(kb, plan.plane_elements(), plan.lanes, accumulator, to);
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
        kb.Store(kb.Widen(kb.Load(element, kb.At(x, from, element)), accumulator), kb.At(to, at, accumulator));
      });
    });
  });
}

}  // namespace

void EmitPadPlane(KernelBuilder& kb, const ConvPlan& plan, Value x, Type element, Type accumulator, Value out_row,
                  Value to) {
  const ConvShape& s = plan.shape;
  if (s.input_dilation != Spatial{1, 1, 1}) {
    SpreadPlane(kb, plan, x, element, accumulator, to);
    return;
  }
  int64_t rows = plan.padded[1], slices = plan.padded[0];
  kb.For(plan.phases[0], [&](Value pd) {
    kb.For(plan.phases[1], [&](Value ph) {
      kb.For(slices, [&](Value d) {
        kb.For(rows, [&](Value h) {
          Value in_d = kb.Add(kb.Add(kb.Mul(d, s.stride[0]), pd), -s.pad[0]);
          Value in_h = kb.Add(kb.Add(kb.Mul(kb.Add(out_row, h), s.stride[1]), ph), -s.pad[1]);
          Value inside = kb.And(kb.And(kb.Less(kb.Int(-1), in_d), kb.Less(in_d, kb.Int(s.in[0]))),
                                kb.And(kb.Less(kb.Int(-1), in_h), kb.Less(in_h, kb.Int(s.in[1]))));
          Value phase = kb.Mul(kb.Add(kb.Mul(pd, plan.phases[1]), ph), plan.phases[2]);
          Value row = kb.Add(kb.Mul(phase, plan.phase_elements()), kb.Mul(kb.Add(kb.Mul(d, rows), h), plan.padded[2]));
          auto for_phases = [&](const std::function<void(int64_t, Value)>& body) {
            for (int64_t pw = 0; pw < plan.phases[2]; ++pw) {
              body(pw, kb.At(to, kb.Add(row, pw * plan.phase_elements()), accumulator));
            }
          };
          kb.If(
              inside,
              [&] {
                Value from = kb.At(x, kb.Mul(kb.Add(kb.Mul(in_d, s.in[1]), in_h), s.in[2]), element);
                for_phases([&](int64_t pw, Value at) { PadRow(kb, plan, from, element, accumulator, pw, at); });
              },
              [&] {
                for_phases([&](int64_t, Value at) { ZeroRow(kb, plan.padded[2], plan.lanes, accumulator, at); });
              });
        });
      });
    });
  });
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

PixelVector LocatePixels(KernelBuilder& kb, const ConvPlan& plan, Value plane, Type element, Value first,
                         int64_t rows_per_slice) {
  const ConvShape& s = plan.shape;
  int64_t width = s.out[2], stride = plan.padded[2];
  PixelVector result;
  bool dense_rows = width == stride;
  if (dense_rows && (s.out[0] == 1 || rows_per_slice == s.out[1])) {
    result.pointers.push_back(kb.At(plane, first, element));
    return result;
  }
  int64_t pieces = width % plan.lanes == 0 ? 1 : (plan.lanes - 2) / width + 2;
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
