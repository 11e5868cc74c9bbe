// Where the intermediate values of a Description lie.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_WORKSPACE_H_
#define INLAY_CORE_BACKENDS_XNNPACK_WORKSPACE_H_

#include "absl/status/status.h"
#include "core/backends/xnnpack/description.h"

namespace inlay::xnnpack {

// Gives every value that is neither constant nor an input or output an offset, and sets workspace_bytes.
absl::Status PlanWorkspace(Description* description);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_WORKSPACE_H_
