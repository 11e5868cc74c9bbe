// From a partitioned module to bytecode (core/runtime/vm/BYTECODE.md): every function that is no partition becomes a
// function of the VM.
#ifndef INLAY_CORE_ARTIFACT_VM_LOWERING_H_
#define INLAY_CORE_ARTIFACT_VM_LOWERING_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/artifact/call_graph.h"
#include "core/artifact/updates.h"
#include "core/runtime/open_shapes.h"
#include "core/runtime/vm/bytecode.h"

namespace inlay::artifact {

struct LoweredModule {
  // Its values are what is there after load; run_calls are the kernel calls of all functions, in the order in which the
  // bytecode counts them, whose outputs and inputs that are not constant are -1; it has no
  // results.
  CallGraph graph;
  // Registers that are buffers count graph.values.
  runtime::Bytecode bytecode;
  runtime::OpenShapes shapes;
  std::vector<runtime::TensorType> inputs, outputs;  // of main
  std::vector<int> constants_read;                   // values that a run reads
};

// `updates`: PlanUpdates'. Errors as BuildPlan's.
absl::StatusOr<LoweredModule> LowerToBytecode(const ir::IRModule& partitioned, const FunctionTable& functions,
                                              const std::vector<Update>& updates);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_VM_LOWERING_H_
