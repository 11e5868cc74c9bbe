// GraphExecutor: executes an ExecutionPlan. The same in an exported library and in the daemon's JIT.
//
// Load makes what lives as long as the executor: the constants that transform_params computes and the states that the
// partitions' init functions make. Run may be called by any number of threads at once: each takes a context (an arena
// and argument tables) from a pool, or makes one the first time; a later call allocates nothing.
//
// Ownership: the code behind `functions` and the memory behind `params` stay the caller's and must outlive the
// executor (params that the plan calls load-only: Load).
#ifndef INLAY_CORE_RUNTIME_GRAPH_GRAPH_EXECUTOR_H_
#define INLAY_CORE_RUNTIME_GRAPH_GRAPH_EXECUTOR_H_

#include <memory>
#include <vector>

#include "core/runtime/kernel_abi.h"
#include "core/runtime/plan.h"
#include "core/runtime/status.h"

namespace inlay::runtime {

// Of one PlanFunction; init and destroy are null where it has no state. The layout is that of the table in an exported
// library (core/artifact/FORMAT.md).
struct FunctionPointers {
  InlayRunFunction run = nullptr;
  InlayInitFunction init = nullptr;
  InlayDestroyFunction destroy = nullptr;
};

class GraphExecutor {
 public:
  struct Options {
    int num_threads = 0;  // 0: the plan's; where that is 0 too: AvailableCpus()
  };

  // `functions` and `params` in the plan's order. A param that is not 64-byte aligned is copied.
  static StatusOr<std::unique_ptr<GraphExecutor>> Load(ExecutionPlan plan, std::vector<FunctionPointers> functions,
                                                       std::vector<const void*> params, Options options);
  ~GraphExecutor();
  GraphExecutor(const GraphExecutor&) = delete;
  GraphExecutor& operator=(const GraphExecutor&) = delete;

  // Dense data of each input and output, aligned to its element at least. Outputs overlap neither inputs nor each
  // other. INTERNAL, naming the partition, where compiled code reports an error.
  Status Run(const void* const* inputs, void* const* outputs) const;

  // Run, and the nanoseconds of each of the plan's run steps. A clock is read before and after each step (about 40 ns).
  Status Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns) const;

  const ExecutionPlan& plan() const;
  int num_threads() const;
  int64_t memory_bytes() const;  // constants, states, copies, arenas

 private:
  struct Impl;
  explicit GraphExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_GRAPH_GRAPH_EXECUTOR_H_
