// Offsets for values with known sizes and lifetimes in one region of memory: greedy by size, best fit. Deterministic.
//
// Within a few per cent of the lower bound on the networks that we looked at, and fast: biggest value first, each into
// the smallest gap between those that live at the same time.
#ifndef INLAY_CORE_ARTIFACT_MEMORY_PLANNER_H_
#define INLAY_CORE_ARTIFACT_MEMORY_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace inlay::artifact {

struct MemoryRequest {
  int64_t bytes = 0;
  // Lives from step `first` to step `last`, both included.
  int first = 0;
  int last = 0;
};

struct MemoryAssignment {
  std::vector<int64_t> offsets;  // in the order of the requests, multiples of 64
  int64_t total_bytes = 0;       // likewise a multiple of 64
};

// RESOURCE_EXHAUSTED where the sizes overflow.
absl::StatusOr<MemoryAssignment> AssignMemory(const std::vector<MemoryRequest>& requests);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_MEMORY_PLANNER_H_
