// A run of calls that go through the batch in turns (ir::kMicroBatches), as a function of one turn.
#ifndef INLAY_CORE_ARTIFACT_MICRO_BATCH_RUN_H_
#define INLAY_CORE_ARTIFACT_MICRO_BATCH_RUN_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::artifact {

// The first binding behind those from `begin` on that have as many micro-batches, items of their tuples among them.
size_t EndOfMicroBatches(const ir::Block& block, size_t begin);

struct MicroBatchRun {
  ir::Dim turns = 1;
  ir::Function function;            // of a turn's rows
  std::vector<ir::Operand> args;    // what its parameters are, or are rows of
  std::vector<ir::VarPtr> results;  // of all rows, which its results are rows of
  size_t end = 0;                   // the first binding behind it
};

// The bindings up to EndOfMicroBatches. INVALID_ARGUMENT for what is no call of a partition.
absl::StatusOr<MicroBatchRun> MicroBatchRunAt(const ir::IRModule& module, const ir::Block& block, size_t begin);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_MICRO_BATCH_RUN_H_
