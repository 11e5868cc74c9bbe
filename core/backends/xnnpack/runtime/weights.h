// From the IR's weights to the orders that XNNPACK packs from. When a module is loaded, never at run time.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_WEIGHTS_H_
#define INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_WEIGHTS_H_

#include <vector>

#include "core/backends/xnnpack/description.h"

namespace inlay::xnnpack {

// The weights of a conv, deconv or fully_connected step with the output channels first and the input channels last
// ([groups, out, height, width, in], [out, in]): `weights` itself where it lies so, else in *memory.
const float* OutputMajorWeights(const Step& step, const float* weights, std::vector<float>* memory);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_RUNTIME_WEIGHTS_H_
