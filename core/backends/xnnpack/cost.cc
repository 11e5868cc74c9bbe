#include "core/backends/xnnpack/cost.h"

#include <algorithm>

namespace inlay::xnnpack {
namespace {

// On the same scale as the other CPU backends' estimates: a core of 3 GHz with two fused multiply-adds a cycle. How
// much of such a core's peak each kind of kernel reached where native code's products reach 0.8: both were timed on the
// same calls of 29 models (timm, 2026-11-22).
constexpr double kCyclesPerMicro = 3e3;
constexpr double kConv = 0.60, kMatmul = 0.62, kDepthwise = 0.30;
constexpr double kChannelsOfKernel = 16;  // a kernel's width: channels of a group are rounded up to it
// Weights come from memory or L3, what a neighbour made mostly from L2.
constexpr double kConstantBytesPerMicro = 12e3, kBytesPerMicro = 25e3;
constexpr double kVectorsOfSoftmax = 60;  // of arithmetic an element: 1.5 times native code's 40, as on the same calls
constexpr double kOperatorMicros = 0.6;   // setup, run
constexpr double kTapsOfPool = 4;         // a cycle; its kernels are SSE's

double RoundUp(double channels) {
  return std::max(1.0,
                  static_cast<double>(static_cast<int64_t>((channels + kChannelsOfKernel - 1) / kChannelsOfKernel))) *
         kChannelsOfKernel;
}

bool IsPool(const Step& step) { return step.op == "max_pool" || step.op == "avg_pool"; }

// Cycles of a core with `lanes`.
double Cycles(const Step& step, double lanes) {
  const double peak = lanes * 2 * 2;
  if (step.op == "fully_connected") {
    return 2.0 * step.rows * step.channels * RoundUp(step.out_channels) / (peak * kMatmul);
  }
  if (!IsPool(step) && step.op != "conv" && step.op != "deconv") return 0;
  const double taps = static_cast<double>(step.kernel[0] * step.kernel[1]);
  if (IsPool(step)) {
    return taps * step.batch * step.channels * step.out_height * step.out_width / kTapsOfPool;
  }
  const double pixels = static_cast<double>(step.batch) *
                        (step.op == "conv" ? step.out_height * step.out_width : step.height * step.width);
  if (step.op == "conv" && step.groups == step.channels && step.groups == step.out_channels && step.groups > 1) {
    return 2 * taps * pixels * RoundUp(step.out_channels) / (peak * kDepthwise);
  }
  const double of_group = RoundUp(static_cast<double>(step.out_channels) / step.groups);
  return 2 * taps * pixels * step.channels * of_group / (peak * kConv);
}

}  // namespace

double EstimateMicros(const Lowered& lowered, const target::Target& target) {
  const double lanes = target.HasFeature("avx512f") ? 16 : target.HasFeature("avx2") ? 8 : 4;
  double micros = 0;
  bool contracts = false;
  for (const Step& step : lowered.description.steps) {
    const Value& out = lowered.description.values[step.out];
    // Layouts are the borders' costs. What copies a result that weights alone make is none of theirs.
    const bool is_layout = step.op == "transpose" && !lowered.description.values[step.args[0]].constant;
    if (out.constant || is_layout) continue;
    double memory = out.elements * sizeof(float) / kBytesPerMicro;
    for (int arg : step.args) {
      const Value& value = lowered.description.values[arg];
      memory += value.elements * sizeof(float) / (value.constant ? kConstantBytesPerMicro : kBytesPerMicro);
    }
    const double cycles = Cycles(step, lanes);
    contracts |= cycles > 0 && !IsPool(step);
    const double series = step.op == "softmax" ? kVectorsOfSoftmax / lanes * out.elements : 0;
    // What moves memory only is no region of its own: somewhere else it would have been fused to its neighbours, which
    // saves a pass over its argument and its result. Pools excepted: nobody fuses windows.
    const bool fusible = step.op == "softmax" || step.op == "binary" || step.op == "unary" || step.op == "concat";
    if (fusible && !contracts) memory *= 2;
    micros += kOperatorMicros + std::max((cycles + series) / kCyclesPerMicro, memory);
  }
  return micros;
}

}  // namespace inlay::xnnpack
