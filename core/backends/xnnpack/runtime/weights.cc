#include "core/backends/xnnpack/runtime/weights.h"

#include "core/backends/common/transpose.h"

namespace inlay::xnnpack {

const float* OutputMajorWeights(const Step& step, const float* weights, std::vector<float>* memory) {
  backends::Transpose t{1, 1, 1};
  if (step.op == "fully_connected") {
    if (step.transposed_weights) t = {1, step.channels, step.out_channels};
  } else {
    const int64_t taps = step.kernel[0] * step.kernel[1], in = step.channels / step.groups;
    if (step.op == "conv") {
      t = {step.out_channels, in, taps};  // OIHW
    } else {
      t = {step.groups, in, step.out_channels / step.groups * taps};  // IOHW, a group of inputs after the other
    }
  }
  if (t.rows == 1 || t.columns == 1) return weights;
  memory->resize(t.batch * t.rows * t.columns);
  backends::TransposePieces(t, weights, memory->data(), 0, t.NumPieces());
  return memory->data();
}

}  // namespace inlay::xnnpack
