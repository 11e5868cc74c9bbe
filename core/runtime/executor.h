// Executor: a loaded model that can be run. The same in an exported library and in the daemon's JIT.
//
// LoadExecutor makes what lives as long as the executor (LoadedPlan) and picks, by what the plan holds, who executes a
// run: graph/ (interprets the plan's steps), aot/ (calls its compiled entry) or vm/ (runs its bytecode).
//
// Run may be called by any number of threads at once: each takes a context (an arena, argument tables) from a pool, or
// makes one the first time; a later call allocates nothing (where shapes are open: of sizes that were there before, or
// smaller).
#ifndef INLAY_CORE_RUNTIME_EXECUTOR_H_
#define INLAY_CORE_RUNTIME_EXECUTOR_H_

#include <functional>
#include <memory>
#include <string>
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

class Executor {
 public:
  virtual ~Executor() = default;

  // Dense data of each input and output, aligned to its element at least. Outputs overlap neither inputs nor each
  // other, but one that updates an input (ExecutionPlan::updates) may be that input's memory, which is written then:
  // where the run fails, with anything. INTERNAL, naming the partition, where compiled code reports an error.
  // `shapes`: of this run, where the plan's are open (CallTypes::shapes); else null, as in the other two.
  virtual Status Run(const void* const* inputs, void* const* outputs, const ShapeValues* shapes = nullptr) const = 0;

  // Run, that asks `stop` at every turn of a loop and before every call whether to give up, and is CANCELLED then. Only
  // bytecode has loops: any other run ends by itself.
  using StopFn = std::function<bool()>;
  virtual Status RunUnlessStopped(const void* const* inputs, void* const* outputs, const StopFn& stop,
                                  const ShapeValues* shapes = nullptr) const {
    return Run(inputs, outputs, shapes);
  }

  // Run, and the nanoseconds of each of the plan's run steps. A clock is read before and after each step (about 40 ns).
  virtual Status Profile(const void* const* inputs, void* const* outputs, int64_t* step_ns,
                         const ShapeValues* shapes = nullptr) const = 0;

  virtual const ExecutionPlan& plan() const = 0;
  virtual int num_threads() const = 0;
  virtual int64_t memory_bytes() const = 0;  // constants, states, copies, arenas
};

struct PackedTensor {
  const TensorType* type;
  void* data;
};
// Calls a function of the process by its name (call_packed): it reads the inputs and fills the outputs. Any thread.
using CallPackedFn = std::function<Status(const std::string& name, const PackedTensor* inputs, int num_inputs,
                                          const PackedTensor* outputs, int num_outputs)>;

struct ExecutorOptions {
  int num_threads = 0;       // 0: the plan's; where that is 0 too: AvailableCpus()
  CallPackedFn call_packed;  // empty: plans that need it are refused
};

// `functions` and `params` in the plan's order. A param that is not 64-byte aligned is copied. The code behind
// `functions` and the memory behind `params` stay the caller's and must outlive the executor (params that the plan
// calls load-only: this call).
StatusOr<std::unique_ptr<Executor>> LoadExecutor(ExecutionPlan plan, std::vector<FunctionPointers> functions,
                                                 std::vector<const void*> params, ExecutorOptions options);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_EXECUTOR_H_
