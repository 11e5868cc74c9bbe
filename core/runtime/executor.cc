#include "core/runtime/executor.h"

#include "core/runtime/aot/aot_executor.h"
#include "core/runtime/graph/graph_executor.h"
#include "core/runtime/loaded_plan.h"
#include "core/runtime/vm/vm_executor.h"

namespace inlay::runtime {

StatusOr<std::unique_ptr<Executor>> LoadExecutor(ExecutionPlan plan, std::vector<FunctionPointers> functions,
                                                 std::vector<const void*> params, ExecutorOptions options) {
  if (!plan.bytecode.packed.empty() && !options.call_packed) {
    return FailedPrecondition(
        "the model calls '" + plan.bytecode.packed[0] +
        "' by call_packed, a function of the client's process: run it there (an exported library, "
        "or jit() without remote=True)");
  }
  const CallPackedFn call_packed = options.call_packed;
  StatusOr<std::unique_ptr<LoadedPlan>> loaded =
      LoadedPlan::Load(std::move(plan), std::move(functions), std::move(params), options);
  if (!loaded.ok()) return loaded.status();
  if ((*loaded)->plan().entry >= 0) return std::unique_ptr<Executor>(new AotExecutor(std::move(*loaded)));
  if (!(*loaded)->plan().bytecode.empty()) {
    return std::unique_ptr<Executor>(new VmExecutor(std::move(*loaded), call_packed));
  }
  return std::unique_ptr<Executor>(new GraphExecutor(std::move(*loaded)));
}

}  // namespace inlay::runtime
