// RunContext: what one run of a plan needs for itself, made once and used again: an arena, and every call's arguments
// as pointers, of which a run fills in only those to the caller's tensors.
//
// One thread at a time.
#ifndef INLAY_CORE_RUNTIME_GRAPH_RUN_CONTEXT_H_
#define INLAY_CORE_RUNTIME_GRAPH_RUN_CONTEXT_H_

#include <memory>
#include <vector>

#include "core/runtime/call_owner.h"
#include "core/runtime/loaded_plan.h"

namespace inlay::runtime {

class RunContext {
 public:
  // RESOURCE_EXHAUSTED: no memory for the arena.
  static StatusOr<std::unique_ptr<RunContext>> Make(LoadedPlan* loaded);
  Status Run(const void* const* inputs, void* const* outputs);
  // Run, with the time of each of the plan's run steps.
  Status Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns);
  int64_t bytes() const { return arena_.bytes(); }

 private:
  struct Call {
    InlayRunFunction run;  // null: a copy of `bytes` from args[0] to args[1]
    void* state;
    void* workspace;
    void** args;
    int64_t bytes;
  };
  struct Patch {  // args_[slot] = the caller's tensor, or a part of it
    int32_t slot;
    int32_t index;
    bool output;
    int64_t offset;
  };
  explicit RunContext(const ExecutionPlan& plan) : plan_(plan) {}

  void Bind(const void* const* inputs, void* const* outputs);
  bool Execute(const Call& call, int32_t* rc);  // false: it failed
  Status ErrorOf(const Call& call, int32_t rc);

  const ExecutionPlan& plan_;
  AlignedMemory arena_;
  std::vector<void*> args_;
  std::vector<Call> calls_;
  std::vector<Patch> patches_;
  CallOwner owner_;
  InlayCallContext context_ = {};
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_GRAPH_RUN_CONTEXT_H_
