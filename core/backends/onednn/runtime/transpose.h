// Between nchw and nhwc: what stands at the borders of a region of convolutions.
//
// oneDNN's own reorder loses a factor of 2 to 8 where the channels' stride is a power of two (1024 x 14 x 14: 0.41 ms;
// here 0.05), and a ResNet has such borders only.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_TRANSPOSE_H_
#define INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_TRANSPOSE_H_

#include <cstdint>

#include "oneapi/dnnl/dnnl.hpp"

namespace inlay::onednn {

// batch times: to[column][row] = from[row][column].
struct Transpose {
  int64_t batch = 0, rows = 0, columns = 0;
};

// Whether a reorder between the two layouts is one; f32 tensors of rank 3 to 5.
bool AsTranspose(const dnnl::memory::desc& from, const dnnl::memory::desc& to, Transpose* transpose);

// Splits the batch and the columns over the OpenMP threads of the calling thread. No overlap.
void RunTranspose(const Transpose& transpose, const float* from, float* to);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_TRANSPOSE_H_
