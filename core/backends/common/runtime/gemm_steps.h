// The elementwise operators behind a product, on a tile of it that is still in the cache.
//
// Compiled once for each of SSE, AVX2 and AVX-512; chosen by the CPU that runs. NaN propagates through all of them. In
// f32: exp within 2 ulp, tanh and sigmoid 3, erf 1e-6 absolute; f64 calls libm.
#ifndef INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_STEPS_H_
#define INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_STEPS_H_

#include <cstdint>

namespace inlay::backends {

enum class StepOp { kRelu, kLeakyRelu, kClip, kGelu, kGeluTanh, kSilu, kSigmoid, kTanh, kAdd, kSub, kRsub, kMul, kDiv };

// rows x columns elements; `c` has `stride` elements a row.
template <typename T>
struct StepTile {
  T* c;
  int64_t rows, columns, stride;
  const T* operand;  // of the tile's first element; of two arguments only
  int64_t operand_row_stride;
  bool operand_is_column;  // one value a row (or one altogether)
};

// alpha and beta: the slope of leaky_relu, the bounds of clip.
void RunStep(StepOp op, float alpha, float beta, const StepTile<float>& tile);
void RunStep(StepOp op, double alpha, double beta, const StepTile<double>& tile);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_RUNTIME_GEMM_STEPS_H_
