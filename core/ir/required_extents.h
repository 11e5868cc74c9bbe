// What a call, or a run of main, asks of open extents beyond what its types say.
#ifndef INLAY_CORE_IR_REQUIRED_EXTENTS_H_
#define INLAY_CORE_IR_REQUIRED_EXTENTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

// Extents that must be 0 or more in a run for the call to mean what its type says: "n-seq" of a slice that takes seq
// elements of n, "n-3" of one that drops three or of a pad that reflects two, "n-1" of a resize from n, "n-5" of the
// largest five of n. None of other calls, and none that is known.
absl::StatusOr<std::vector<Dim>> RequiredExtents(const Binding& binding);

// Main's attribute (strings): expressions over the symbols of its parameters that must be 0 or more in a run, such as
// the ranges that torch.export traced a program under, outside of which it may have taken another branch: "seq-8",
// "512-seq", "h-w".
inline constexpr char kRequiredExtents[] = "required_extents";

// Those of them that are not known. Empty where main has no such attribute.
// INVALID_ARGUMENT  not strings, more than 1024 or one that is longer; no expression, a symbol that no parameter has, a
// number below 0
absl::StatusOr<std::vector<Dim>> RequiredExtents(const Function& main);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_REQUIRED_EXTENTS_H_
