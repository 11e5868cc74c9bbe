// GraphExecutor: interprets an ExecutionPlan's run steps; see Executor.
#ifndef INLAY_CORE_RUNTIME_GRAPH_GRAPH_EXECUTOR_H_
#define INLAY_CORE_RUNTIME_GRAPH_GRAPH_EXECUTOR_H_

#include <memory>

#include "core/runtime/context_pool.h"
#include "core/runtime/executor.h"
#include "core/runtime/graph/run_context.h"
#include "core/runtime/loaded_plan.h"

namespace inlay::runtime {

class GraphExecutor : public Executor {
 public:
  explicit GraphExecutor(std::unique_ptr<LoadedPlan> loaded) : loaded_(std::move(loaded)) {}

  Status Run(const void* const* inputs, void* const* outputs, const ShapeValues* = nullptr) const override;
  Status Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns,
                 const ShapeValues* = nullptr) const override;
  const ExecutionPlan& plan() const override { return loaded_->plan(); }
  int num_threads() const override { return loaded_->num_threads(); }
  int64_t memory_bytes() const override { return loaded_->memory_bytes() + contexts_.bytes(); }

 private:
  template <typename F>
  Status WithContext(F f) const;

  const std::unique_ptr<LoadedPlan> loaded_;
  mutable ContextPool<RunContext> contexts_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_GRAPH_GRAPH_EXECUTOR_H_
