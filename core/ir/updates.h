// Updates: results of main that are new values of its inputs, such as a decoder's caches. Main's attribute "updates"
// (ints) has for each result the parameter whose memory it takes, or -1; the callers' tensors are then written in place
// (core/runtime/executor.h). Values in the IR stay what they are: it is the caller's memory that is used again.
#ifndef INLAY_CORE_IR_UPDATES_H_
#define INLAY_CORE_IR_UPDATES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

inline constexpr char kUpdates[] = "updates";

// For each result the input that it updates; -1: none. Empty where main has no such attribute.
// INVALID_ARGUMENT  no one number a result, no such input, one that is updated twice or has another type than the
// result
absl::StatusOr<std::vector<int64_t>> UpdatedInputs(const Function& main);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_UPDATES_H_
