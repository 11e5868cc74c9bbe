#include "core/runtime/executor.h"

#include "core/runtime/aot/aot_executor.h"
#include "core/runtime/graph/graph_executor.h"
#include "core/runtime/loaded_plan.h"

namespace inlay::runtime {

StatusOr<std::unique_ptr<Executor>> LoadExecutor(ExecutionPlan plan, std::vector<FunctionPointers> functions,
                                                 std::vector<const void*> params, ExecutorOptions options) {
  StatusOr<std::unique_ptr<LoadedPlan>> loaded =
      LoadedPlan::Load(std::move(plan), std::move(functions), std::move(params), options);
  if (!loaded.ok()) return loaded.status();
  if ((*loaded)->plan().entry >= 0) return std::unique_ptr<Executor>(new AotExecutor(std::move(*loaded)));
  return std::unique_ptr<Executor>(new GraphExecutor(std::move(*loaded)));
}

}  // namespace inlay::runtime
