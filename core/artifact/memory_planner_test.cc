#include "core/artifact/memory_planner.h"

#include <gtest/gtest.h>

#include <random>

namespace inlay::artifact {
namespace {

void ExpectValid(const std::vector<MemoryRequest>& requests, const MemoryAssignment& a) {
  ASSERT_EQ(a.offsets.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(a.offsets[i] % 64, 0);
    EXPECT_LE(a.offsets[i] + requests[i].bytes, a.total_bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool together = requests[i].first <= requests[j].last && requests[j].first <= requests[i].last;
      const bool overlap = a.offsets[i] < a.offsets[j] + requests[j].bytes &&
                           a.offsets[j] < a.offsets[i] + requests[i].bytes && requests[i].bytes > 0 &&
                           requests[j].bytes > 0;
      EXPECT_FALSE(together && overlap) << i << " and " << j;
    }
  }
}

TEST(AssignMemory, AChainNeedsTwoBuffers) {
  std::vector<MemoryRequest> requests;
  for (int i = 0; i < 50; ++i) requests.push_back({1000, i, i + 1});
  auto a = AssignMemory(requests);
  ASSERT_TRUE(a.ok());
  ExpectValid(requests, *a);
  EXPECT_EQ(a->total_bytes, 2 * 1024);
}

TEST(AssignMemory, EmptyAndZeroBytes) {
  EXPECT_EQ(AssignMemory({})->total_bytes, 0);
  EXPECT_EQ(AssignMemory({{0, 0, 5}, {0, 0, 5}})->total_bytes, 0);
}

TEST(AssignMemory, RandomLifetimesNeverOverlapAndStayNearTheBound) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<MemoryRequest> requests;
    std::vector<int64_t> live(120, 0);
    for (int i = 0; i < 100; ++i) {
      const int first = static_cast<int>(random() % 100);
      const int last = first + static_cast<int>(random() % 8);
      const int64_t bytes = static_cast<int64_t>(random() % 5000) * 4;
      requests.push_back({bytes, first, last});
      for (int s = first; s <= last; ++s) live[s] += (bytes + 63) / 64 * 64;
    }
    auto a = AssignMemory(requests);
    ASSERT_TRUE(a.ok());
    ExpectValid(requests, *a);
    EXPECT_LE(a->total_bytes, *std::max_element(live.begin(), live.end()) * 13 / 10);
  }
}

TEST(AssignMemory, Overflow) {
  std::vector<MemoryRequest> requests(4, {INT64_MAX / 2, 0, 1});
  EXPECT_EQ(AssignMemory(requests).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace inlay::artifact
