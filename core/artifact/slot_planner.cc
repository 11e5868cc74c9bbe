#include "core/artifact/slot_planner.h"

#include <algorithm>
#include <cstddef>

namespace inlay::artifact {

SlotAssignment AssignSlots(const std::vector<MemoryRequest>& requests) {
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].bytes > requests[b].bytes; });
  SlotAssignment result;
  result.slots.resize(requests.size());
  std::vector<std::vector<size_t>> members;  // by slot; the first is the biggest
  for (size_t i : order) {
    const MemoryRequest& request = requests[i];
    int best = -1;
    for (size_t slot = 0; slot < members.size(); ++slot) {
      const bool is_free = std::none_of(members[slot].begin(), members[slot].end(), [&](size_t other) {
        return requests[other].first <= request.last && request.first <= requests[other].last;
      });
      // Slots are made in the order of their sizes, so that a later one is nearer.
      if (is_free) best = static_cast<int>(slot);
    }
    if (best < 0) {
      best = static_cast<int>(members.size());
      members.emplace_back();
    }
    members[best].push_back(i);
    result.slots[i] = best;
  }
  result.num_slots = static_cast<int>(members.size());
  return result;
}

}  // namespace inlay::artifact
