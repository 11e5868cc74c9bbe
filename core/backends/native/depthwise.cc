#include "core/backends/native/depthwise.h"

#include "core/backends/native/conv_planes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;

constexpr int64_t kMaxUnrolledTaps = 25;

// Sum over the taps for the `lanes` padded-row positions from `position`.
Value SlideTaps(KernelBuilder& kb, const ConvKernel& kernel, Value plane, Value position,
                const std::vector<Value>& weights, Value weight_pointer) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  Type vector = KernelBuilder::Vector(plan.lanes, kernel.accumulator);
  auto load = [&](Value d, Value h, Value w) {
    return kb.Load(vector,
                   kb.At(kb.At(plane, position, kernel.accumulator), TapOffset(kb, plan, d, h, w), kernel.accumulator));
  };
  if (!weights.empty()) {
    Value sum = kb.Zero(vector);
    for (int64_t t = 0; t < s.taps(); ++t) {
      int64_t w = t % s.kernel[2], h = t / s.kernel[2] % s.kernel[1], d = t / s.kernel[2] / s.kernel[1];
      sum = kb.MultiplyAdd(weights[t], load(kb.Int(d), kb.Int(h), kb.Int(w)), sum);
    }
    return sum;
  }
  std::vector<Value> sum = {kb.Zero(vector)};
  auto loop = [&](int64_t extent, const std::vector<Value>& in, const auto& body) {
    return kb.For(kb.Int(0), kb.Int(extent), 1, in, body);
  };
  return loop(s.kernel[0], sum, [&](Value d, const std::vector<Value>& sum) {
    return loop(s.kernel[1], sum, [&](Value h, const std::vector<Value>& sum) {
      return loop(s.kernel[2], sum, [&](Value w, const std::vector<Value>& sum) {
        Value t = kb.Add(kb.Mul(kb.Add(kb.Mul(d, s.kernel[1]), h), s.kernel[2]), w);
        if (kernel.plan.shape.reversed) t = kb.Sub(kb.Int(s.taps() - 1), t);
        Value weight = kb.Load(kernel.weight_element, kb.At(weight_pointer, t, kernel.weight_element));
        Value splat = kb.Splat(kb.Widen(weight, kernel.accumulator), vector);
        return std::vector<Value>{kb.MultiplyAdd(splat, load(d, h, w), sum[0])};
      });
    });
  })[0];
}

// The weights of an output channel in registers, if there are few.
std::vector<Value> LoadWeights(KernelBuilder& kb, const ConvKernel& kernel, Value pointer) {
  const ConvShape& s = kernel.plan.shape;
  Type vector = KernelBuilder::Vector(kernel.plan.lanes, kernel.accumulator);
  std::vector<Value> weights;
  if (s.taps() > kMaxUnrolledTaps) return weights;
  for (int64_t t = 0; t < s.taps(); ++t) {
    int64_t at = kernel.plan.shape.reversed ? s.taps() - 1 - t : t;
    Value weight = kb.Load(kernel.weight_element, kb.At(pointer, at, kernel.weight_element));
    weights.push_back(kb.Splat(kb.Widen(weight, kernel.accumulator), vector));
  }
  return weights;
}

// Rows [row, row_end) of one output channel from their padded band.
void OutputBand(KernelBuilder& kb, const ConvKernel& kernel, Value task, Value multiple, Value row, Value row_end,
                Value plane, Value results) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  Type type = kernel.accumulator;
  Value channel = kb.Add(kb.Mul(kb.Rem(task, s.c), s.m / s.groups), multiple);
  Value weight_pointer = kb.At(kernel.weights, kb.Mul(channel, s.taps()), kernel.weight_element);
  std::vector<Value> weights = LoadWeights(kb, kernel, weight_pointer);
  // Rows as wide as the padded ones, so that vectors run on from one row to the next: what lies between is garbage.
  int64_t slice_elements = plan.band * plan.padded[2];
  Value used = kb.Mul(kb.Sub(row_end, row), plan.padded[2]);
  kb.For(s.out[0], [&](Value slice) {
    Value from = kb.Mul(slice, plan.padded[1] * plan.padded[2]), to = kb.Mul(slice, slice_elements);
    kb.For(kb.Int(0), used, plan.lanes, [&](Value position) {
      Value sum = SlideTaps(kb, kernel, plane, kb.Add(from, position), weights, weight_pointer);
      kb.Store(sum, kb.At(results, kb.Add(to, position), type));
    });
  });
  // Several slices only come with a band of all rows, so pixels of a band are always consecutive.
  Value first = kb.Mul(row, s.out[2]);
  Value pixels = kb.Mul(kb.Sub(row_end, row), s.out[0] * s.out[2]);
  Value whole = kb.Mul(kb.Div(pixels, plan.lanes), plan.lanes);
  kb.For(kb.Int(0), whole, plan.lanes, [&](Value pixel) {
    PixelVector at = LocatePixels(kb, plan, results, type, pixel, plan.band);
    kernel.epilogue(kb, task, multiple, kb.Add(first, pixel), LoadPixels(kb, plan, at, kb.Int(0), type));
  });
  if (plan.bands() == 1 && s.pixels() % plan.lanes == 0) return;
  kb.For(whole, pixels, 1, [&](Value pixel) {
    Value at = kb.Add(kb.Mul(kb.Div(pixel, s.out[2]), plan.padded[2]), kb.Rem(pixel, s.out[2]));
    kernel.epilogue(kb, task, multiple, kb.Add(first, pixel), kb.Load(type, kb.At(results, at, type)));
  });
}

}  // namespace

void EmitDepthwiseTasks(KernelBuilder& kb, const ConvKernel& kernel, Value begin, Value end, Value scratch) {
  const ConvPlan& plan = kernel.plan;
  const ConvShape& s = plan.shape;
  Type type = kernel.accumulator;
  Value results = kb.At(scratch, (plan.padded_elements() + 15) / 16 * 16, type);
  kb.For(begin, end, 1, [&](Value task) {
    Value x = kb.At(kernel.input, kb.Mul(task, s.in_elements()), kernel.input_element);
    kb.For(plan.bands(), [&](Value band) {
      Value row = kb.Mul(band, plan.band);
      Value row_end = kb.Min(kb.Int(s.out[1]), kb.Add(row, plan.band));
      EmitPadPlane(kb, plan, x, kernel.input_element, type, row, scratch);
      kb.For(s.m / s.groups,
             [&](Value multiple) { OutputBand(kb, kernel, task, multiple, row, row_end, scratch, results); });
    });
  });
}

}  // namespace inlay::native
