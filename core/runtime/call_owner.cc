#include "core/runtime/call_owner.h"

namespace inlay::runtime {

void* CallOwner::Alloc(void* self, int64_t bytes) {
  auto* owner = static_cast<CallOwner*>(self);
  std::lock_guard<std::mutex> lock(owner->mutex);
  return owner->memory == nullptr ? nullptr : owner->memory->Allocate(bytes);
}

void CallOwner::SetError(void* self, int32_t code, const char* message) {
  auto* owner = static_cast<CallOwner*>(self);
  std::lock_guard<std::mutex> lock(owner->mutex);
  if (owner->failed.load(std::memory_order_relaxed)) return;
  owner->message =
      (message != nullptr ? message : "(no message)") + std::string(" (code ") + std::to_string(code) + ")";
  owner->failed.store(true, std::memory_order_relaxed);
}

InlayCallContext CallOwner::MakeContext(ThreadPool* pool) {
  InlayCallContext context = {};
  context.num_threads = pool->num_threads;
  context.pool = pool;
  context.parallel_for = &ParallelFor;
  context.owner = this;
  context.alloc = &Alloc;
  context.set_error = &SetError;
  return context;
}

Status CallOwner::TakeError(int32_t rc, const PlanFunction& function, const Step& step, const char* what) {
  std::lock_guard<std::mutex> lock(mutex);
  std::string text = message.empty() ? "returned error code " + std::to_string(rc) : std::move(message);
  message.clear();
  failed.store(false, std::memory_order_relaxed);
  std::string where = function.symbol + what;
  if (!step.name.empty()) where = "partition '" + step.name + "' (" + where + ")";
  return {rc == INLAY_E_NO_MEMORY ? Code::kResourceExhausted : Code::kInternal, where + ": " + text};
}

}  // namespace inlay::runtime
