#include "core/collage/layouts.h"

#include "core/collage/outline.h"

namespace inlay::collage {
namespace {

// Whether some partition that is not the value's own, or a binding outside of all, needs it row-major.
bool IsReadRowMajor(const DataflowGraph& graph, const std::vector<int>& group_of, const std::vector<ValueSet>& read,
                    int position) {
  const ir::Var* var = graph.binding(position).var.get();
  for (int consumer : graph.consumers(position)) {
    const int group = group_of[consumer];
    if (group != group_of[position] && read[group].count(var) == 0) return true;
  }
  return graph.is_result(position);
}

}  // namespace

ValueSet ChannelsLastValues(const DataflowGraph& graph, const std::vector<Group>& groups) {
  std::vector<ValueSet> made(groups.size()), read(groups.size());  // with the channels last, by group
  std::vector<int> group_of(graph.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    for (int position : groups[i].positions) group_of[position] = static_cast<int>(i);
    if (groups[i].backend == nullptr || !groups[i].backend->merges_regions()) continue;
    const Outlined outlined = Outline(graph, groups[i].positions);
    const backend::ChannelsLast preferred = groups[i].backend->PrefersChannelsLast(outlined.function);
    for (int64_t param : preferred.params) {
      if (outlined.args[param].is_var()) read[i].insert(outlined.args[param].var.get());
    }
    for (int64_t result : preferred.results) made[i].insert(outlined.results[result].get());
  }
  ValueSet agreed;
  for (int position = 0; position < graph.size(); ++position) {
    const ir::Var* var = graph.binding(position).var.get();
    if (made[group_of[position]].count(var) == 0 || IsReadRowMajor(graph, group_of, read, position)) continue;
    agreed.insert(var);
  }
  return agreed;
}

}  // namespace inlay::collage
