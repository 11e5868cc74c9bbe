// What a call asks of open extents beyond what its types say.
#ifndef INLAY_CORE_IR_REQUIRED_EXTENTS_H_
#define INLAY_CORE_IR_REQUIRED_EXTENTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

// Extents that must be 0 or more in a run for the call to mean what its type says: "n-seq" of a slice that takes seq
// elements of n, "n-3" of one that drops three or of a pad that reflects two, "n-1" of a resize from n. None of other
// calls, and none that is known.
absl::StatusOr<std::vector<Dim>> RequiredExtents(const Binding& binding);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_REQUIRED_EXTENTS_H_
