#include "core/backends/xnnpack/workspace.h"

#include <vector>

#include "core/artifact/memory_planner.h"
#include "core/base/status_macros.h"

namespace inlay::xnnpack {

absl::Status PlanWorkspace(Description* description) {
  std::vector<int> first(description->values.size(), -1), last(description->values.size(), -1);
  for (int i = 0; i < static_cast<int>(description->steps.size()); ++i) {
    const Step& step = description->steps[i];
    for (int arg : step.args) last[arg] = i;
    first[step.out] = last[step.out] = i;
  }
  std::vector<artifact::MemoryRequest> requests;
  std::vector<Value*> values;
  for (size_t i = 0; i < description->values.size(); ++i) {
    Value& value = description->values[i];
    if (value.constant || value.output >= 0 || first[i] < 0) continue;
    requests.push_back({BytesWithExtra(value), first[i], last[i]});
    values.push_back(&value);
  }
  INLAY_ASSIGN_OR_RETURN(artifact::MemoryAssignment assignment, artifact::AssignMemory(requests));
  for (size_t i = 0; i < values.size(); ++i) values[i]->offset = assignment.offsets[i];
  description->workspace_bytes = assignment.total_bytes;
  return absl::OkStatus();
}

}  // namespace inlay::xnnpack
