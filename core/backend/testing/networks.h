// Parts of real networks with their real shapes, for benchmarks of backends.
#ifndef INLAY_CORE_BACKEND_TESTING_NETWORKS_H_
#define INLAY_CORE_BACKEND_TESTING_NETWORKS_H_

#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {

Case ResNet50();
// A block of ResNet-50's stage 0 to 3 as a partition of its own: its input and output are row-major.
Case Bottleneck(int stage);
// MobileNetV2's block.
Case InvertedResidual(int64_t channels, int64_t size);
// [1,m,k] times [k,n] + bias, and an activation unless it is nullptr.
Case Linear(int64_t m, int64_t k, int64_t n, const char* activation);
// Attention's scores.
Case Scores(int64_t heads, int64_t tokens, int64_t width);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_NETWORKS_H_
