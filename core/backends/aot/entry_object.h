// The object file of a plan's compiled entry (core/runtime/aot/ENTRY.md). Links LLVM. Deterministic; any thread.
#ifndef INLAY_CORE_BACKENDS_AOT_ENTRY_OBJECT_H_
#define INLAY_CORE_BACKENDS_AOT_ENTRY_OBJECT_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/runtime/plan.h"
#include "core/target/target.h"

namespace inlay::aot {

// Defines `symbol`_run. The plan has passed its Check.
absl::StatusOr<std::string> EmitEntryObject(const std::string& symbol, const runtime::ExecutionPlan& plan,
                                            const target::Target& target);

}  // namespace inlay::aot

#endif  // INLAY_CORE_BACKENDS_AOT_ENTRY_OBJECT_H_
