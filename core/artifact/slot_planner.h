// Slots for values whose sizes only a run knows: those that never live at the same time share one. Deterministic.
#ifndef INLAY_CORE_ARTIFACT_SLOT_PLANNER_H_
#define INLAY_CORE_ARTIFACT_SLOT_PLANNER_H_

#include <vector>

#include "core/artifact/memory_planner.h"

namespace inlay::artifact {

struct SlotAssignment {
  std::vector<int> slots;  // in the order of the requests
  int num_slots = 0;
};

// `requests`: with sizes as they are guessed to be, which decide who shares with whom: biggest first, each into the
// slot nearest in size that is free all its life.
SlotAssignment AssignSlots(const std::vector<MemoryRequest>& requests);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_SLOT_PLANNER_H_
