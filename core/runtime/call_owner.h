// CallOwner: InlayCallContext::owner, what alloc and set_error of the kernel ABI act on.
#ifndef INLAY_CORE_RUNTIME_CALL_OWNER_H_
#define INLAY_CORE_RUNTIME_CALL_OWNER_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/runtime/memory.h"
#include "core/runtime/plan.h"
#include "core/runtime/status.h"
#include "core/runtime/threads.h"

namespace inlay::runtime {

struct CallOwner {
  std::atomic<bool> failed{false};  // first: a compiled entry reads it there (aot/ENTRY.md)
  std::mutex mutex;                 // set_error may come from several tasks of a parallel_for
  std::string message;              // of the first error
  BumpAllocator* memory = nullptr;  // null: not in an init, alloc gives null

  static void* Alloc(void* self, int64_t bytes);
  static void SetError(void* self, int32_t code, const char* message);

  // A context whose functions act on this owner and `pool`.
  InlayCallContext MakeContext(ThreadPool* pool);
  // The error of a call that returned `rc` or set one; forgets it.
  Status TakeError(int32_t rc, const PlanFunction& function, const Step& step, const char* what);
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_CALL_OWNER_H_
