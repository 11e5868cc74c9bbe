#include "core/runtime/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace inlay::runtime {
namespace {
constexpr int64_t kMapFrom = int64_t{256} << 10;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kPage = 4096;
}  // namespace

AlignedMemory AlignedMemory::Allocate(int64_t bytes) {
  AlignedMemory memory;
  if (bytes < 0 || bytes > INT64_MAX - kHugePage) return memory;
  if (bytes < kMapFrom) {
    memory.bytes_ = (bytes + 63) / 64 * 64;
    if (memory.bytes_ == 0) memory.bytes_ = 64;
    memory.data_ = static_cast<char*>(std::aligned_alloc(64, memory.bytes_));
    if (memory.data_ != nullptr) std::memset(memory.data_, 0, memory.bytes_);
    return memory;
  }
  // From two huge pages on, begin at one: the mapping is made larger and its ends are given back.
  const int64_t slack = bytes >= 2 * kHugePage ? kHugePage : 0;
  memory.bytes_ = (bytes + kPage - 1) / kPage * kPage;
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

}  // namespace inlay::runtime
