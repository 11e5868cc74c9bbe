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
  // Blocks; any thread. Calls that use the same core take turns, and no compile action runs meanwhile.
  virtual absl::StatusOr<proto::MeasureResult> Measure(const proto::MeasureAction& action, CancelToken* token) = 0;
  // What the times depend on besides the action: CPU model, cache sizes, frequency governor, for the cost table's keys.
  virtual std::string device() const = 0;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_MEASURER_H_
