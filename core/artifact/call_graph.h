// CallGraph: a partitioned module as values and calls, without tuples and functions: what the planner works on.
#ifndef INLAY_CORE_ARTIFACT_CALL_GRAPH_H_
#define INLAY_CORE_ARTIFACT_CALL_GRAPH_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/artifact/function_table.h"
#include "core/ir/ir_module.h"

namespace inlay::artifact {

struct Value {
  enum class Kind { kInput, kParam, kLiteral, kLoad, kRun };  // the last two: made by a call at load, in a run
  Kind kind;
  int64_t bytes = 0;
  int index = 0;  // of the input, param, literal; of the call (in its list) that makes it
  // Of a part of another value, which is not a part itself: it, and where the part begins.
  int whole = -1;
  int64_t offset = 0;
};

struct GraphCall {
  const proto::PrimitiveFunction* function = nullptr;
  const ir::Function* body = nullptr;  // in the partitioned module
  std::vector<int> inputs;             // values
  std::vector<int> outputs;            // values
  std::string name;                    // where it came from
  // Of a call that is one of several for as many micro-batches (ir::kMicroBatches), which of how many; the first has
  // the state that all use.
  int part = 0, num_parts = 1;
  int first_part = -1;  // in the list of calls; -1: itself
  ir::Dim turns = 1;    // of executor vm, which calls it for one micro-batch after the other
  // Of an open partition: shape registers, the extent that is its workspace's size (core/runtime/plan.h, PlanFunction).
  std::vector<int32_t> symbols;
  int workspace_extent = -1;
};

struct CallGraph {
  std::vector<Value> values;
  std::vector<ir::VarPtr> inputs;
  std::vector<ir::ConstantPtr> params;
  std::vector<ir::ConstantPtr> literals;
  std::vector<GraphCall> load_calls;  // transform_params
  std::vector<GraphCall> run_calls;   // main
  std::vector<int> results;           // values, one an output
  std::vector<ir::TensorType> result_types;
};

// Appends the tensor types of a type, a tuple's fields in order.
void AppendLeaves(const ir::Type& type, std::vector<ir::TensorType>* leaves);

// Errors as BuildPlan's. Calls all of whose results have no elements are left out. `open_inputs`: main's inputs may
// have symbolic dimensions; such a value has -1 bytes.
absl::StatusOr<CallGraph> BuildCallGraph(const ir::IRModule& partitioned, const FunctionTable& functions,
                                         bool open_inputs = false);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_CALL_GRAPH_H_
