// Makes a partition function of a group of bindings.
#ifndef INLAY_CORE_COLLAGE_OUTLINE_H_
#define INLAY_CORE_COLLAGE_OUTLINE_H_

#include <string>
#include <vector>

#include "core/collage/dataflow_graph.h"
#include "core/ir/ir_module.h"

namespace inlay::collage {

struct Outlined {
  ir::Function function;            // params in order of first use; attribute constant_params set
  std::vector<ir::Operand> args;    // what the call passes for them
  std::vector<ir::VarPtr> results;  // the original Vars that the call defines, in the function's order
};

// Literals stay inside, weights and Vars from outside become parameters. Tuples don't cross the border: their items do.
Outlined Outline(const DataflowGraph& graph, const std::vector<int>& positions);

// The name of a finished partition function (its attribute "backend" set), the same for structurally equal ones.
std::string PartitionName(const ir::Function& partition, const target::CompilationConfig& config);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_OUTLINE_H_
