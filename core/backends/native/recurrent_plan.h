// RecurrentPlan: how the product of a step of LSTM, GRU or RNN is cut, states [batch, hidden] by the columns of some
// gates of r. Plain values, no MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_RECURRENT_PLAN_H_
#define INLAY_CORE_BACKENDS_NATIVE_RECURRENT_PLAN_H_

#include <cstdint>

#include "core/backends/native/gemm_plan.h"

namespace inlay::native {

struct RecurrentProblem {
  int64_t directions = 1, batch = 0, hidden = 0;
  int64_t depth = 0;         // rows of r as the product reads them: hidden, or half of it where they are words
  int64_t gates = 0;         // of the product
  int64_t exponentials = 0;  // of a unit, of all the cell's gates
  int64_t lanes = 0, element_bytes = 4;
};

// Blocks of `units` hidden units, of which every gate's columns are neighbours, [gate][unit], and packed as `gemm`
// reads them: some rows of the batch by a block. The last block, and the last rows, begin earlier where they do not
// divide.
struct RecurrentPlan {
  int64_t vectors = 0;  // of each gate
  int64_t units = 0, blocks = 0, row_blocks = 0;
  GemmPlan gemm;
  int64_t gate_lanes = 0;  // units whose gates are computed together
  double cycles = 0;       // of a block, by all rows
};

// `batch` and `hidden` >= 1.
RecurrentPlan PlanRecurrent(const Core& core, const RecurrentProblem& problem);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_RECURRENT_PLAN_H_
