// AotExecutor: runs a plan by its compiled entry (ENTRY.md); see Executor. Profile interprets the plan, for the entry
// knows no clock: the same partitions on the same addresses.
#ifndef INLAY_CORE_RUNTIME_AOT_AOT_EXECUTOR_H_
#define INLAY_CORE_RUNTIME_AOT_AOT_EXECUTOR_H_

#include <memory>
#include <vector>

#include "core/runtime/context_pool.h"
#include "core/runtime/executor.h"
#include "core/runtime/graph/graph_executor.h"
#include "core/runtime/loaded_plan.h"

namespace inlay::runtime {

class AotExecutor : public Executor {
 public:
  // The plan has an entry.
  explicit AotExecutor(std::unique_ptr<LoadedPlan> loaded);

  Status Run(const void* const* inputs, void* const* outputs, const ShapeValues* = nullptr) const override;
  Status Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns,
                 const ShapeValues* = nullptr) const override;
  const ExecutionPlan& plan() const override { return loaded_->plan(); }
  int num_threads() const override { return loaded_->num_threads(); }
  int64_t memory_bytes() const override { return loaded_->memory_bytes() + contexts_.bytes() + profiled_.bytes(); }

 private:
  struct Context {
    AlignedMemory arena;
    std::vector<void*> args;
    CallOwner owner;
    InlayCallContext call = {};
    int64_t bytes() const { return arena.bytes(); }
  };
  StatusOr<std::unique_ptr<Context>> MakeContext() const;
  Status RunIn(Context* context, const void* const* inputs, void* const* outputs) const;

  const std::unique_ptr<LoadedPlan> loaded_;
  std::vector<void*> fixed_;  // what the entry's state points to
  mutable ContextPool<Context> contexts_;
  mutable ContextPool<RunContext> profiled_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_AOT_AOT_EXECUTOR_H_
