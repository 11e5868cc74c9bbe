#include "core/collage/layouts.h"

#include <algorithm>

#include "core/collage/outline.h"

namespace inlay::collage {

Layouts LayoutsOf(const DataflowGraph& graph, const std::vector<Group>& groups, Borders borders,
                  const target::Target& target) {
  Layouts layouts;
  layouts.preferred.resize(groups.size());
  std::vector<int> group_of(graph.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    for (int position : groups[i].positions) group_of[position] = static_cast<int>(i);
    if (groups[i].backend == nullptr) continue;
    const Outlined outlined = Outline(graph, groups[i].positions);
    const backend::ChannelsLast preferred = groups[i].backend->PrefersChannelsLast(outlined.function, target);
    for (int64_t param : preferred.params) {
      if (outlined.args[param].is_var()) layouts.preferred[i].push_back(outlined.args[param].var.get());
    }
    for (int64_t result : preferred.results) layouts.preferred[i].push_back(outlined.results[result].get());
  }
  if (borders == Borders::kRowMajor) return layouts;
  for (int position = 0; position < graph.size(); ++position) {
    const ir::Var* var = graph.binding(position).var.get();
    auto prefers = [&](int other) {
      const auto& preferred = layouts.preferred[group_of[other]];
      return std::find(preferred.begin(), preferred.end(), var) != preferred.end();
    };
    // Consumers inside of the maker's partition don't see the border.
    const auto& consumers = graph.consumers(position);
    const bool all = std::all_of(consumers.begin(), consumers.end(), [&](int consumer) {
      return group_of[consumer] == group_of[position] || prefers(consumer);
    });
    if (prefers(position) && all && !graph.is_result(position)) layouts.channels_last.insert(var);
  }
  return layouts;
}

}  // namespace inlay::collage
