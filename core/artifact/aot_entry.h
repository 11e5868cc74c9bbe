// What the compiled entry of a plan (core/runtime/aot/ENTRY.md) is made from and called.
#ifndef INLAY_CORE_ARTIFACT_AOT_ENTRY_H_
#define INLAY_CORE_ARTIFACT_AOT_ENTRY_H_

#include <string>

#include "core/runtime/plan.h"

namespace inlay::artifact {

// The plan as JSON with all that the entry's code depends on, and nothing else: no names of tensors and steps, no
// values of literals, no infos. The key of its compile action.
std::string CanonicalEntryPlan(const runtime::ExecutionPlan& plan);

// "inlay_aot_<32 hex digits>": by it the entry of this CanonicalEntryPlan is called.
std::string EntrySymbol(const std::string& canonical_plan);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_AOT_ENTRY_H_
