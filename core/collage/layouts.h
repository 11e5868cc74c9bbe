// Which values cross from one partition to the next with their channels last, instead of row-major: those that their
// maker makes so, and that each partition that reads them works on so. Nobody transposes them then. Any thread.
#ifndef INLAY_CORE_COLLAGE_LAYOUTS_H_
#define INLAY_CORE_COLLAGE_LAYOUTS_H_

#include <unordered_set>
#include <vector>

#include "core/collage/cover.h"
#include "core/collage/dataflow_graph.h"

namespace inlay::collage {

using ValueSet = std::unordered_set<const ir::Var*>;

// `groups` cover the graph. Arguments and results of the function itself are row-major, and so is what a binding
// outside of all partitions (a function call, an If) touches.
ValueSet ChannelsLastValues(const DataflowGraph& graph, const std::vector<Group>& groups);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_LAYOUTS_H_
