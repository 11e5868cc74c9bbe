// What of a partition's border oneDNN would rather see with its channels last: since 3.x its convolutions choose that
// layout by themselves, with AVX2 and AVX-512. No library in it. Any thread.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_LAYOUTS_H_
#define INLAY_CORE_BACKENDS_ONEDNN_LAYOUTS_H_

#include "core/backend/backend.h"
#include "core/ir/ir_module.h"

namespace inlay::onednn {

// Inputs and results that lie in the layout of a convolution or pooling of the partition: its own, or what elementwise
// steps hand on. Empty for what Lower refuses.
backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_LAYOUTS_H_
