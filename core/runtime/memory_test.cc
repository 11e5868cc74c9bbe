#include "core/runtime/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

namespace inlay::runtime {
namespace {

bool IsZero(const char* data, int64_t bytes) {
  return std::all_of(data, data + bytes, [](char c) { return c == 0; });
}

TEST(AlignedMemoryTest, IsAlignedAndZeroAtEverySize) {
  for (int64_t bytes : {0, 1, 63, 65, 4096, 300 << 10, (1 << 20) - 1, 1 << 20, (2 << 20) + 1, 5 << 20}) {
    const AlignedMemory memory = AlignedMemory::Allocate(bytes);
    ASSERT_NE(memory.data(), nullptr) << bytes;
    EXPECT_TRUE(IsAligned(memory.data())) << bytes;
    ASSERT_GE(memory.bytes(), bytes);
    EXPECT_TRUE(IsZero(memory.data(), memory.bytes())) << bytes;
    std::memset(memory.data(), 1, memory.bytes());
  }
  for (int64_t bytes : {int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 60}) {
    EXPECT_EQ(AlignedMemory::Allocate(bytes).data(), nullptr) << bytes;
  }
}

TEST(BumpAllocatorTest, BlocksAreAlignedZeroAndApart) {
  BumpAllocator allocator;
  std::vector<std::pair<char*, int64_t>> blocks;
  for (int round = 0; round < 3; ++round) {
    for (int64_t bytes : {0, 1, 64, 100, 5000, 60 << 10, 70 << 10, 700 << 10, 3 << 20}) {
      char* data = allocator.Allocate(bytes);
      ASSERT_NE(data, nullptr) << bytes;
      EXPECT_TRUE(IsAligned(data)) << bytes;
      EXPECT_TRUE(IsZero(data, bytes)) << bytes;
      std::memset(data, 1, bytes);  // the next ones are zero all the same
      blocks.emplace_back(data, std::max<int64_t>(bytes, 1));
    }
  }
  std::sort(blocks.begin(), blocks.end());
  for (size_t i = 1; i < blocks.size(); ++i) EXPECT_GE(blocks[i].first, blocks[i - 1].first + blocks[i - 1].second);
}

TEST(BumpAllocatorTest, HoldsLittleMoreThanWhatWasAskedFor) {
  BumpAllocator allocator;
  EXPECT_EQ(allocator.bytes(), 0);
  allocator.Allocate(1000);
  EXPECT_LE(allocator.bytes(), 64 << 10);
  int64_t asked = 1000;
  for (int i = 0; i < 100; ++i) {
    allocator.Allocate(100 << 10);
    asked += 100 << 10;
  }
  EXPECT_GE(allocator.bytes(), asked);
  EXPECT_LE(allocator.bytes(), asked + (4 << 20));
}

// What fills half of a huge page begins at one, without which the kernel has none for it.
TEST(AllocateToFreeTest, IsAlignedAndAsLargeAsAskedFor) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{65}, kHugePage / 2 - 1, kHugePage / 2, kHugePage, kHugePage + 1,
                        int64_t{3} << 20, (int64_t{3} << 20) + 1}) {
    char* data = static_cast<char*>(AllocateToFree(bytes));
    ASSERT_NE(data, nullptr) << bytes;
    EXPECT_TRUE(IsAligned(data)) << bytes;
    EXPECT_TRUE(bytes < kHugePage / 2 || reinterpret_cast<uintptr_t>(data) % kHugePage == 0) << bytes;
    std::memset(data, 1, bytes);
    std::free(data);
  }
  for (int64_t bytes : {int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 60}) {
    EXPECT_EQ(AllocateToFree(bytes), nullptr) << bytes;
  }
}

TEST(BumpAllocatorTest, WhereThereIsNoMemory) {
  BumpAllocator allocator;
  for (int64_t bytes : {int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 60}) {
    EXPECT_EQ(allocator.Allocate(bytes), nullptr) << bytes;
  }
  EXPECT_NE(allocator.Allocate(8), nullptr);
}

}  // namespace
}  // namespace inlay::runtime
