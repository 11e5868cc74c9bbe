// How results of main that are new values of its inputs (core/ir/updates.h) come into the inputs' memory.
#ifndef INLAY_CORE_ARTIFACT_UPDATES_H_
#define INLAY_CORE_ARTIFACT_UPDATES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/artifact/function_table.h"
#include "core/ir/ir_module.h"

namespace inlay::artifact {

// A run's results may be its inputs' memory or their own, as its caller likes: plans are right for both.
struct Update {
  int input = -1;  // that the result is the new value of; -1: of none
  // The call that makes it may write there: it is the last that reads the input, and says that it may be given one
  // memory for both, or does not read it. Else it is made elsewhere and copied, when all that reads the inputs is done.
  bool direct = true;
  // The result is the old value of another input that is updated too: copied twice, before and after all others are.
  bool staged = false;
};

// One a result of main.
absl::StatusOr<std::vector<Update>> PlanUpdates(const ir::IRModule& partitioned, const FunctionTable& functions);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_UPDATES_H_
