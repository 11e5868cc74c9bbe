// A small valid x86-64 ELF object without compiler or LLVM, for tests.
#ifndef INLAY_CORE_BACKEND_TESTING_TINY_OBJECT_H_
#define INLAY_CORE_BACKEND_TESTING_TINY_OBJECT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace inlay::backend::testing {

// int32_t symbol(const InlayCallContext*, void* const* args): copies `bytes` (below 2^32) from args[0] to
// args[num_inputs], returns 0.
struct CopyFunction {
  std::string symbol;
  int num_inputs = 1;
  int64_t bytes = 0;
};

// Relocatable, position independent. `padding` bytes of read-only data make it larger.
std::string MakeCopyObject(const std::vector<CopyFunction>& functions, int64_t padding = 0);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_TINY_OBJECT_H_
