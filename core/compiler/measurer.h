// Measurer: times compiled executables against each other, as they would ship. Implemented by the measuring workers
// (server/worker); a fake one serves tests of the search.
#ifndef INLAY_CORE_COMPILER_MEASURER_H_
#define INLAY_CORE_COMPILER_MEASURER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "proto/worker.pb.h"

namespace inlay::compiler {

class Measurer {
 public:
  virtual ~Measurer() = default;
  // One timing a subject, in their order. A subject that crashes, hangs, cannot be loaded or whose outputs differ from
  // the reference's has a code and a message instead of a time; it does not fail the call or the other subjects.
  // Errors of the call itself: INVALID_ARGUMENT (no subjects, a reference that is none of them), FAILED_PRECONDITION
  // where the reference subject fails (naming it and why), the token's, UNAVAILABLE where no measuring process starts.
  // Blocks; any thread. Calls take turns, and no compile action runs meanwhile: compile first, then measure much at
  // once.
  virtual absl::StatusOr<proto::MeasureResult> Measure(const proto::MeasureAction& action, CancelToken* token) = 0;
  // What the times depend on besides the action: CPU model, cache sizes, frequency governor, for the cost table's keys.
  virtual std::string device() const = 0;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_MEASURER_H_
