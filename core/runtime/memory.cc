#include "core/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace inlay::runtime {
namespace {
constexpr int64_t kMapFrom = int64_t{256} << 10;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kPage = 4096;
constexpr int64_t kFirstChunk = int64_t{64} << 10;  // a small model needs no more

int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

AlignedMemory AlignedMemory::Allocate(int64_t bytes) {
  AlignedMemory memory;
  if (bytes < 0 || bytes > INT64_MAX - 2 * kHugePage) return memory;
  if (bytes < kMapFrom) {
    memory.bytes_ = std::max<int64_t>(RoundUp(bytes, 64), 64);
    memory.data_ = static_cast<char*>(std::aligned_alloc(64, memory.bytes_));
    if (memory.data_ != nullptr) std::memset(memory.data_, 0, memory.bytes_);
    return memory;
  }
  // Huge pages begin at a multiple of their size: the mapping is made larger and its ends are given back.
  const int64_t slack = bytes >= kHugePage / 2 ? kHugePage : 0;
  memory.bytes_ = RoundUp(bytes, slack != 0 ? kHugePage : kPage);
  void* raw = mmap(nullptr, memory.bytes_ + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return AlignedMemory();
  char* begin = static_cast<char*>(raw);
  if (slack != 0) {
    const int64_t head = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    if (head > 0) munmap(begin, head);
    if (slack > head) munmap(begin + head + memory.bytes_, slack - head);
    begin += head;
    madvise(begin, memory.bytes_, MADV_HUGEPAGE);  // where the kernel does not know it: nothing lost
  }
  memory.data_ = begin;
  memory.mapped_ = true;
  return memory;
}

AlignedMemory::~AlignedMemory() {
  if (data_ == nullptr) return;
  if (mapped_) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
}

char* BumpAllocator::Allocate(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX - 2 * kHugePage) return nullptr;
  const int64_t wanted = std::max<int64_t>(RoundUp(bytes, 64), 64);
  if (wanted > left_) {
    AlignedMemory chunk = AlignedMemory::Allocate(std::max(wanted, chunks_.empty() ? kFirstChunk : kHugePage));
    if (chunk.data() == nullptr) return nullptr;
    next_ = chunk.data();
    left_ = chunk.bytes();
    chunks_.push_back(std::move(chunk));
  }
  left_ -= wanted;
  return std::exchange(next_, next_ + wanted);
}

int64_t BumpAllocator::bytes() const {
  int64_t bytes = 0;
  for (const AlignedMemory& chunk : chunks_) bytes += chunk.bytes();
  return bytes;
}

void* AllocateToFree(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX - kHugePage) return nullptr;
  const int64_t huge = (bytes + kHugePage / 2) / kHugePage * kHugePage;
  bytes = std::max<int64_t>(RoundUp(std::max(bytes, huge), 64), 64);
  if (huge == 0) return std::aligned_alloc(64, bytes);
  void* const block = std::aligned_alloc(kHugePage, bytes);
  if (block != nullptr) madvise(block, huge, MADV_HUGEPAGE);  // where the kernel does not know it: nothing lost
  return block;
}

}  // namespace inlay::runtime
