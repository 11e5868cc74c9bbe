#include "core/artifact/memory_planner.h"

#include <algorithm>
#include <numeric>

namespace inlay::artifact {
namespace {

constexpr int64_t kAlign = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

absl::StatusOr<MemoryAssignment> AssignMemory(const std::vector<MemoryRequest>& requests) {
  MemoryAssignment result;
  result.offsets.assign(requests.size(), 0);
  std::vector<int> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return requests[a].bytes != requests[b].bytes ? requests[a].bytes > requests[b].bytes
                                                  : requests[a].first < requests[b].first;
  });
  int64_t sum = 0;
  for (const MemoryRequest& r : requests) {
    if (r.bytes < 0 || r.bytes > INT64_MAX / 2 || __builtin_add_overflow(sum, Aligned(r.bytes), &sum)) {
      return absl::ResourceExhaustedError("the model's intermediate values do not fit into 64 bits of memory");
    }
  }
  std::vector<int> placed;  // by offset
  for (int id : order) {
    const MemoryRequest& request = requests[id];
    const int64_t bytes = Aligned(request.bytes);
    if (bytes == 0) continue;
    int64_t best_offset = -1, best_gap = INT64_MAX, cursor = 0;
    for (int other : placed) {
      if (requests[other].last < request.first || request.last < requests[other].first) continue;
      const int64_t gap = result.offsets[other] - cursor;
      if (gap >= bytes && gap < best_gap) {
        best_gap = gap;
        best_offset = cursor;
      }
      cursor = std::max(cursor, result.offsets[other] + Aligned(requests[other].bytes));
    }
    if (best_offset < 0) best_offset = cursor;
    result.offsets[id] = best_offset;
    result.total_bytes = std::max(result.total_bytes, best_offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), best_offset,
                                   [&](int64_t offset, int p) { return offset < result.offsets[p]; }),
                  id);
  }
  return result;
}

}  // namespace inlay::artifact
