// A batch goes through a model a few rows (images) at a time where that keeps what partitions hand to each other in a
// nearer cache: a run of partitions is called for the first rows, then for the next. Where weights are what is read
// most, all rows go at once.
#ifndef INLAY_CORE_COLLAGE_MICRO_BATCHES_H_
#define INLAY_CORE_COLLAGE_MICRO_BATCHES_H_

#include <cstdint>
#include <vector>

#include "core/collage/partitioner.h"

namespace inlay::collage {

// A partition's call as the choice sees it.
struct BatchedCall {
  struct Access {
    int value = -1;
    int64_t row_bytes = 0;
  };
  std::vector<Access> reads, writes;  // of what has the batch
  int64_t weight_bytes = 0;
  bool separable = false;  // treats each row by itself
  double open_us = 0;      // what all rows at once take longer because their number is open
};

struct BatchMachine {
  int64_t near_bytes = 0;  // the cache that is a core's own, of all cores that work on it
  int threads = 1;
};

// For each call, how many rows at a time: a divisor of `batch`; where that is a guess (`is_open`), one or all.
// `last_use` of each value: the last call that reads it, calls.size() for a result. Values that no call writes are
// there from the start, whole.
std::vector<int64_t> ChooseRows(const std::vector<BatchedCall>& calls, const std::vector<int>& last_use, int64_t batch,
                                const BatchMachine& machine, bool is_open = false);

// Has partitions of main called so (ir::kMicroBatches) where it pays on the module's target: on CPUs, but for runtime
// crt.
void UseMicroBatches(Partitioned* partitioned);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_MICRO_BATCHES_H_
