// LoadedPlan: what loading makes and every executor shares: parameters' addresses, literals, the constants that
// transform_params computes, the states that the partitions' init functions make, the thread pool.
//
// Read-only once Load has returned.
#ifndef INLAY_CORE_RUNTIME_LOADED_PLAN_H_
#define INLAY_CORE_RUNTIME_LOADED_PLAN_H_

#include <map>
#include <memory>
#include <vector>

#include "core/runtime/call_owner.h"
#include "core/runtime/executor.h"
#include "core/runtime/memory.h"
#include "core/runtime/plan.h"
#include "core/runtime/threads.h"

namespace inlay::runtime {

class LoadedPlan {
 public:
  // Checks the plan and runs its load steps. Arguments as LoadExecutor's.
  static StatusOr<std::unique_ptr<LoadedPlan>> Load(ExecutionPlan plan, std::vector<FunctionPointers> functions,
                                                    std::vector<const void*> params, ExecutorOptions options);
  ~LoadedPlan();
  LoadedPlan(const LoadedPlan&) = delete;
  LoadedPlan& operator=(const LoadedPlan&) = delete;

  const ExecutionPlan& plan() const { return plan_; }
  const FunctionPointers& function(int32_t index) const { return functions_[index]; }
  void* state(int32_t index) const { return states_[index]; }
  void* param(int64_t index) const { return const_cast<void*>(params_[index]); }
  void* literal(int64_t index) const { return literals_[index].data(); }
  char* constants() const { return constants_.data(); }
  ThreadPool* pool() { return &pool_; }
  int num_threads() const { return pool_.num_threads; }

  // Where `buffer` lies; null: a caller's tensor.
  void* Resolve(const Buffer& buffer, char* arena) const;

  int64_t memory_bytes() const;  // constants, states, copies

 private:
  LoadedPlan() = default;
  Status Prepare();
  Status RunLoadSteps();
  Status RunLoadStep(const Step& step, CallOwner* owner, InlayCallContext* context);
  void DestroyState(size_t i);

  ExecutionPlan plan_;
  std::vector<FunctionPointers> functions_;
  std::vector<const void*> params_;
  std::vector<AlignedMemory> literals_;
  std::vector<AlignedMemory> param_copies_;
  AlignedMemory constants_;
  AlignedMemory load_;  // gone once loading is over
  // A state, and who destroys it (null: destroyed already, or never made).
  std::vector<void*> states_;
  std::vector<InlayDestroyFunction> state_destroy_;
  BumpAllocator state_memory_;                       // of all that stay
  std::map<int32_t, BumpAllocator> passing_memory_;  // of each that is destroyed while loading
  ThreadPool pool_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_LOADED_PLAN_H_
