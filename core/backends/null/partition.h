// What both halves know of a partition. No LLVM, no library. Any thread.
#ifndef INLAY_CORE_BACKENDS_NULL_PARTITION_H_
#define INLAY_CORE_BACKENDS_NULL_PARTITION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::null {

// OK: this call may be in a partition. UNIMPLEMENTED: the reason.
absl::Status CheckCall(const ir::Binding& call);

// The size of the one tensor that a partition copies. The errors of CheckCall, and INVALID_ARGUMENT for what is no
// partition of one reshape.
absl::StatusOr<int64_t> BytesToCopy(const ir::Function& partition);

}  // namespace inlay::null

#endif  // INLAY_CORE_BACKENDS_NULL_PARTITION_H_
