#include "core/backends/onednn/cost.h"

#include <algorithm>

namespace inlay::onednn {
namespace {

// One core of the machines that this was measured on (README): flops a microsecond, and bytes a microsecond where the
// tensors come out of L2 or L3.
constexpr double kFlopsAvx512 = 105e3, kFlopsAvx2 = 60e3, kFlopsSse = 20e3;
constexpr double kBytes = 30e3;
// dnnl_primitive_execute, its argument map included.
constexpr double kPrimitiveMicros = 0.8;

double Bytes(const Dims& dims) {
  double elements = 1;
  for (int64_t dim : dims) elements *= static_cast<double>(dim);
  return elements * sizeof(float);
}

double FlopsPerMicro(const target::Target& target) {
  if (target.HasFeature("avx512f")) return kFlopsAvx512;
  return target.HasFeature("avx2") ? kFlopsAvx2 : kFlopsSse;
}

}  // namespace

double EstimateMicros(const Lowered& lowered, const target::Target& target) {
  double micros = lowered.flops / FlopsPerMicro(target);
  for (const Step& step : lowered.description.steps) {
    micros += kPrimitiveMicros;
    const bool contraction = step.op == "conv" || step.op == "deconv" || step.op == "matmul";
    // Arithmetic hides a contraction's traffic, its weights' excepted where a row of them is used once.
    double bytes = contraction ? 0 : Bytes(step.out.dims);
    for (size_t i = 0; i < step.args.size(); ++i) {
      if (!contraction || i == 1) bytes += Bytes(step.args[i].dims);
    }
    micros += bytes / kBytes;
    for (const PostOp& post_op : step.post_ops) {
      if (post_op.operand.value >= 0) micros += Bytes(post_op.operand.dims) / kBytes;
    }
  }
  return micros;
}

}  // namespace inlay::onednn
