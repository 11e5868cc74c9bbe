// Memory descriptors: plain ones, and whether two of them put every element at the same place.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_LAYOUT_H_
#define INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_LAYOUT_H_

#include "core/backends/onednn/description.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace inlay::onednn {

// f32, with these strides; row-major where they are empty. Rank 0 becomes {1}.
dnnl::memory::desc PlainLayout(const Dims& dims, const Dims& strides = {});
// f32, the channels (axis 1) last; of rank 3 to 5.
dnnl::memory::desc ChannelsLastLayout(const Dims& dims);
// f32, layout left to the primitive.
dnnl::memory::desc AnyLayout(const Dims& dims);

// Whether the same bytes serve both. Finer than ==: extents of 1 and full blocks don't matter (nChw16c with one pixel
// is nchw), which saves the reorder after a global pooling.
bool SamePlacement(const dnnl::memory::desc& a, const dnnl::memory::desc& b);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_RUNTIME_LAYOUT_H_
