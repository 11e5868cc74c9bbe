// In which layouts values cross from one partition to the next: row-major, or with their channels last where their
// maker makes them so and each partition that reads them works on them so. Nobody transposes those. Any thread.
#ifndef INLAY_CORE_COLLAGE_LAYOUTS_H_
#define INLAY_CORE_COLLAGE_LAYOUTS_H_

#include <unordered_set>
#include <vector>

#include "core/collage/cover.h"
#include "core/collage/dataflow_graph.h"

namespace inlay::collage {

// What both sides prefer, or row-major whatever they prefer.
enum class Borders { kAgreed, kRowMajor };

using ValueSet = std::unordered_set<const ir::Var*>;

struct Layouts {
  std::vector<std::vector<const ir::Var*>> preferred;  // by group: what of its border it would have with them last
  ValueSet channels_last;                              // what is
};

// `groups` cover the graph. Arguments and results of the function itself are row-major, and so is what a binding
// outside of all partitions (a function call, an If) touches.
Layouts LayoutsOf(const DataflowGraph& graph, const std::vector<Group>& groups, Borders borders,
                  const target::Target& target);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_LAYOUTS_H_
