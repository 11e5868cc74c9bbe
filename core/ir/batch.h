// A partition that treats the rows of its batch (the leading extent of its tensors) each by itself does the same for
// fewer of them: what lets a model go through a few images at a time (core/collage/micro_batches.h).
#ifndef INLAY_CORE_IR_BATCH_H_
#define INLAY_CORE_IR_BATCH_H_

#include <optional>
#include <vector>

#include "core/ir/ir_module.h"

namespace inlay::ir {

// Attribute of a call of a partition in main: its callee is called so many times (an int; a symbol, where the batch is
// open: for one row each time), each time for as many rows of the batch: those of the arguments whose leading extent is
// so many times the parameter's, and of all results. Neighbours with the same number are called in turns, and what only
// they use is never whole. Absent: once.
inline constexpr char kMicroBatches[] = "micro_batches";

Dim MicroBatchesOf(const Binding& call);

struct Rebatched {
  Function function;
  std::vector<bool> batched_params;  // whose leading extent is the batch's
};

// The function for a batch of `to` instead of `from` (2 or more, or open): given rows [i, i + to) of its batched
// parameters it returns those rows of its results. nullopt where that can't be told: an operator mixes rows, or is not
// known not to, or a result has no batch. Parameters in `constant_params` have none. One block without nested ones.
std::optional<Rebatched> WithBatch(const Function& function, const std::vector<int64_t>& constant_params,
                                   const Dim& from, int64_t to);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_BATCH_H_
