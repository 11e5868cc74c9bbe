// VmExecutor: runs a plan's bytecode (BYTECODE.md); see Executor.
//
// Each activation of a function has a frame: memory for what the function keeps, and its registers. Frames are pooled
// by function, so that a later run allocates nothing. Where shapes are open, a frame grows to the largest run it has
// seen.
#ifndef INLAY_CORE_RUNTIME_VM_VM_EXECUTOR_H_
#define INLAY_CORE_RUNTIME_VM_VM_EXECUTOR_H_

#include <memory>
#include <vector>

#include "core/runtime/context_pool.h"
#include "core/runtime/executor.h"
#include "core/runtime/loaded_plan.h"

namespace inlay::runtime {

class VmExecutor : public Executor {
 public:
  // Calls deeper than this are an error.
  static constexpr int kMaxDepth = 1000;

  VmExecutor(std::unique_ptr<LoadedPlan> loaded, CallPackedFn call_packed);
  ~VmExecutor() override;

  Status Run(const void* const* inputs, void* const* outputs, const ShapeValues* shapes = nullptr) const override;
  Status RunUnlessStopped(const void* const* inputs, void* const* outputs, const StopFn& stop,
                          const ShapeValues* shapes = nullptr) const override;
  // Times are those of the plan's run steps, which are the bytecode's kernel calls: a loop's turns add up.
  Status Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns,
                 const ShapeValues* shapes = nullptr) const override;
  const ExecutionPlan& plan() const override { return loaded_->plan(); }
  int num_threads() const override { return loaded_->num_threads(); }
  int64_t memory_bytes() const override { return loaded_->memory_bytes() + contexts_.bytes(); }

 private:
  class Context;
  // stop, step_ns, shapes: may be null.
  Status RunIn(const void* const* inputs, void* const* outputs, const StopFn* stop, int64_t* step_ns,
               const ShapeValues* shapes) const;

  const std::unique_ptr<LoadedPlan> loaded_;
  const CallPackedFn call_packed_;
  mutable ContextPool<Context> contexts_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_VM_VM_EXECUTOR_H_
