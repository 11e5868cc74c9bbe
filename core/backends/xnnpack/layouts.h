// What of a partition's border XNNPACK, whose images have their channels last, would rather see that way. No library in
// it. Any thread.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_LAYOUTS_H_
#define INLAY_CORE_BACKENDS_XNNPACK_LAYOUTS_H_

#include "core/backend/backend.h"
#include "core/ir/ir_module.h"

namespace inlay::xnnpack {

// Of a partition with row-major borders: inputs that it only transposes, results that a transpose made. Empty for what
// Lower refuses.
backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_LAYOUTS_H_
