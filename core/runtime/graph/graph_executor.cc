#include "core/runtime/graph/graph_executor.h"

namespace inlay::runtime {

template <typename F>
Status GraphExecutor::WithContext(F f) const {
  StatusOr<std::unique_ptr<RunContext>> context = contexts_.Acquire([&] { return RunContext::Make(loaded_.get()); });
  if (!context.ok()) return context.status();
  Status status = f(context->get());
  contexts_.Release(std::move(*context));
  return status;
}

Status GraphExecutor::Run(const void* const* inputs, void* const* outputs, const ShapeValues*) const {
  return WithContext([&](RunContext* context) { return context->Run(inputs, outputs); });
}

Status GraphExecutor::Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns,
                              const ShapeValues*) const {
  return WithContext([&](RunContext* context) { return context->Profile(inputs, outputs, step_ns); });
}

}  // namespace inlay::runtime
