#include "core/backends/onednn/cost.h"

#include <algorithm>

namespace inlay::onednn {
namespace {

// On the same scale as the other CPU backends' estimates: a core of 3 GHz with two fused multiply-adds a cycle.
// Only ratios matter, and this is how much of such a core's peak each kernel reached (README, "Measured").
constexpr double kCyclesPerMicro = 3e3;
struct Efficiency {
  double conv, matmul;
};
// Convolutions: ResNet-50's at 237 of 256 GFLOP/s; with AVX2 at 100-107 of 128. Depthwise ones reach less, but one of
// them elsewhere would cost its neighbours here two reorders.
// Matrix products: 247 where native code reaches 252; with AVX2 their weights are not packed.
constexpr Efficiency kAvx512 = {0.93, 0.78}, kAvx2 = {0.85, 0.62};

constexpr double kBytesPerMicro = 30e3;
// dnnl_primitive_execute, its argument map included.
constexpr double kPrimitiveMicros = 0.5;

double Bytes(const Dims& dims) {
  double elements = 1;
  for (int64_t dim : dims) elements *= static_cast<double>(dim);
  return elements * sizeof(float);
}

double FlopsOf(const Step& step) {
  const Dims& weights = step.args[1].dims;
  double taps = 1;
  if (step.op == "matmul") {
    taps = static_cast<double>(step.args[0].dims.back());
  } else {  // [M,C/g,k...] or [g,M/g,C/g,k...]: all but the output channels
    const size_t first = weights.size() - step.out.dims.size() + 1;
    for (size_t i = first; i < weights.size(); ++i) taps *= static_cast<double>(weights[i]);
  }
  const Dims& spread = step.op == "deconv" ? step.args[0].dims : step.out.dims;
  return 2 * taps * Bytes(spread) / sizeof(float);
}

}  // namespace

double EstimateMicros(const Lowered& lowered, const target::Target& target) {
  const bool avx512 = target.HasFeature("avx512f");
  const double lanes = avx512 ? 16 : target.HasFeature("avx2") ? 8 : 4;
  const Efficiency& efficiency = avx512 ? kAvx512 : kAvx2;
  double micros = 0;
  bool contracts = false;
  for (const Step& step : lowered.description.steps) {
    double bytes = Bytes(step.out.dims), arithmetic = 0;
    for (const View& arg : step.args) bytes += Bytes(arg.dims);
    for (const PostOp& post_op : step.post_ops) {
      if (post_op.operand.value >= 0) bytes += Bytes(post_op.operand.dims);
    }
    if (step.op == "conv" || step.op == "deconv" || step.op == "matmul") {
      contracts = true;
      const double part = step.op == "matmul" ? efficiency.matmul : efficiency.conv;
      arithmetic = FlopsOf(step) / (lanes * 2 * 2 * part * kCyclesPerMicro);
    }
    // What moves memory only is no region of its own: somewhere else it would have been fused to its neighbours, which
    // saves a pass over its argument and its result. Pooling excepted: nobody fuses windows.
    const bool fusible = step.op == "softmax" || step.op == "log_softmax" || step.op == "layer_norm" ||
                         step.op == "batch_norm" || step.op == "binary" || step.op == "eltwise";
    if (fusible && !contracts) bytes *= 2;
    micros += kPrimitiveMicros + std::max(arithmetic, bytes / kBytesPerMicro);
  }
  return micros;
}

}  // namespace inlay::onednn
