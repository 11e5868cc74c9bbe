#include "core/backends/onednn/cost.h"

#include <algorithm>
#include <set>
#include <string>

namespace inlay::onednn {
namespace {

// On the same scale as the other CPU backends' estimates: a core of 3 GHz with two fused multiply-adds a cycle.
// Only ratios matter, and this is how much of such a core's peak each kernel reached where native code's products reach
// 0.8 (core/backends/native/cost.cc): both were timed on the same calls of 29 models (timm, 2026-11-22).
constexpr double kCyclesPerMicro = 3e3;
struct Efficiency {
  double pointwise_conv, conv, matmul;
};
// With AVX2 the weights of matrix products are not packed.
constexpr Efficiency kAvx512 = {0.74, 0.84, 0.78}, kAvx2 = {0.74, 0.80, 0.62};
constexpr double kGrouped = 0.56, kDepthwise = 0.34;
// A convolution reaches that part of its kernel's rate with K products an output, and half of it with these: where the
// pixels of few channels stay row-major, and otherwise (Zen 3, 1 to 64 channels, 2026-11-23).
constexpr double kHalfOfRowMajor = 16, kHalf = 48;
constexpr int64_t kMostRowMajorChannels = 4;

// Weights come from memory or L3, what a neighbour made mostly from L2.
constexpr double kConstantBytesPerMicro = 18e3, kBytesPerMicro = 40e3;
// dnnl_primitive_execute, its argument map included.
constexpr double kPrimitiveMicros = 0.5;
// A tap of pooling alone, whose image is row-major: oneDNN's vector code wants channels last there, or AVX-512 (Zen 3,
// 288 channels of 35x35, 3x3: 5.8 ms; native code 0.3), and four channels and more (Granite Rapids, 3x3x3 on 28x57x32
// of 1, 3, 4, 16 channels: 4.7, 14.3, 1.13, 1.25 ms; native code 0.03, 0.08, 0.10, 0.48).
constexpr double kScalarPoolCycles = 5.5, kVectorPoolCycles = 2.5;
constexpr int64_t kFewestPoolChannels = 4;

double Bytes(const Dims& dims) {
  double elements = 1;
  for (int64_t dim : dims) elements *= static_cast<double>(dim);
  return elements * sizeof(float);
}

// Of a convolution's weights, [M,C/g,k...] or [g,M/g,C/g,k...]: where its input channels are.
size_t InputChannels(const Step& step) { return step.args[1].dims.size() - step.out.dims.size() + 1; }

double ProductsAnOutput(const Step& step) {
  if (step.op == "matmul") return static_cast<double>(step.args[0].dims.back());
  const Dims& weights = step.args[1].dims;
  double products = 1;
  for (size_t i = InputChannels(step); i < weights.size(); ++i) products *= static_cast<double>(weights[i]);
  return products;
}

// The part of the peak that a contraction reaches: output channels come as whole vectors.
double PartOfPeak(const Step& step, const Efficiency& efficiency, int64_t lanes) {
  if (step.op == "matmul") return efficiency.matmul;
  const Dims& weights = step.args[1].dims;
  const size_t channels = InputChannels(step);
  const bool grouped = channels > 1;
  const int64_t in = weights[channels], out = weights[channels - 1];
  if (grouped && in == 1 && out == 1) return kDepthwise;
  const double used = static_cast<double>(out) / static_cast<double>((out + lanes - 1) / lanes * lanes);
  const double products = ProductsAnOutput(step);
  if (products == static_cast<double>(in) && !grouped) return efficiency.pointwise_conv * used;
  const double half = in <= kMostRowMajorChannels ? kHalfOfRowMajor : kHalf;
  return (grouped ? kGrouped : efficiency.conv) * used * products / (products + half);
}

double FlopsOf(const Step& step) {
  const Dims& spread = step.op == "deconv" ? step.args[0].dims : step.out.dims;
  return 2 * ProductsAnOutput(step) * Bytes(spread) / sizeof(float);
}

// Cycles an element of what is computed by a series (gelu, swish, ...) behind a contraction, as native code's.
double SeriesCycles(const Step& step, double lanes) {
  static const auto* const kCheap =
      new std::set<std::string>{"relu", "clip", "abs", "linear", "hardsigmoid", "hardswish"};
  constexpr double kVectorsOfSeries = 20;
  double cycles = 0;
  for (const PostOp& post_op : step.post_ops) {
    if (post_op.operand.value < 0 && kCheap->count(post_op.op) == 0) cycles += kVectorsOfSeries / lanes;
  }
  return cycles;
}

// Vectors of arithmetic an element of what is no contraction but computes: as much as native code's, which took 0.9 to
// 1.1 times as long on the same calls.
double VectorsOf(const std::string& op) {
  if (op == "softmax" || op == "log_softmax") return 40;
  return op == "layer_norm" ? 16 : 0;
}

bool IsPool(const Step& step) {
  return step.op == "max_pool" || step.op == "avg_pool_include" || step.op == "avg_pool_exclude";
}

double PoolCycles(const Step& step, bool avx512) {
  const int64_t channels = step.out.dims[1];
  double taps = Bytes(step.out.dims) / sizeof(float);
  for (int64_t extent : step.kernel) taps *= static_cast<double>(extent);
  if (!avx512 || channels < kFewestPoolChannels) return taps * kScalarPoolCycles;
  return taps / static_cast<double>(channels) * static_cast<double>((channels + 15) / 16) * kVectorPoolCycles;
}

}  // namespace

double EstimateMicros(const Lowered& lowered, const target::Target& target) {
  const bool avx512 = target.HasFeature("avx512f");
  const int64_t lanes = avx512 ? 16 : target.HasFeature("avx2") ? 8 : 4;
  const Efficiency& efficiency = avx512 ? kAvx512 : kAvx2;
  double micros = 0;
  bool contracts = false;
  for (const Step& step : lowered.description.steps) {
    double memory = Bytes(step.out.dims) / kBytesPerMicro;
    double arithmetic = VectorsOf(step.op) / lanes * Bytes(step.out.dims) / sizeof(float) / kCyclesPerMicro;
    auto read = [&](const View& view) {
      const bool constant = lowered.description.values[view.value].constant;
      memory += Bytes(view.dims) / (constant ? kConstantBytesPerMicro : kBytesPerMicro);
    };
    for (const View& arg : step.args) read(arg);
    for (const PostOp& post_op : step.post_ops) {
      if (post_op.operand.value >= 0) read(post_op.operand);
    }
    if (step.op == "conv" || step.op == "deconv" || step.op == "matmul") {
      contracts = true;
      arithmetic = FlopsOf(step) / (lanes * 2 * 2 * PartOfPeak(step, efficiency, lanes) * kCyclesPerMicro);
      arithmetic += SeriesCycles(step, lanes) * Bytes(step.out.dims) / sizeof(float) / kCyclesPerMicro;
    }
    if (IsPool(step) && lowered.description.steps.size() == 1) {
      arithmetic = PoolCycles(step, avx512) / kCyclesPerMicro;
    }
    // What moves memory only is no region of its own: somewhere else it would have been fused to its neighbours, which
    // saves a pass over its argument and its result. Pooling excepted: nobody fuses windows.
    const bool fusible = step.op == "softmax" || step.op == "log_softmax" || step.op == "layer_norm" ||
                         step.op == "batch_norm" || step.op == "binary" || step.op == "eltwise";
    if (fusible && !contracts) memory *= 2;
    micros += kPrimitiveMicros + std::max(arithmetic, memory);
  }
  return micros;
}

}  // namespace inlay::onednn
