// The reorders that ../../common/transpose.h does better than oneDNN.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_TRANSPOSE_H_
#define INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_TRANSPOSE_H_

#include <cstdint>

#include "core/backends/common/transpose.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace inlay::onednn {

using backends::Transpose;

// Whether a reorder between the two layouts is one; f32 tensors of rank 3 to 5.
bool AsTranspose(const dnnl::memory::desc& from, const dnnl::memory::desc& to, Transpose* transpose);

// Splits it over the OpenMP threads of the calling thread. No overlap.
void RunTranspose(const Transpose& transpose, const float* from, float* to);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_TRANSPOSE_H_
