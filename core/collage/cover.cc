#include "core/collage/cover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/collage/convexity.h"

namespace inlay::collage {
namespace {

using Cut = std::pair<const backend::Backend*, std::vector<int>>;

std::vector<Cut> Cuts(const std::vector<Group>& groups) {
  std::vector<Cut> cuts;
  for (const Group& group : groups) cuts.emplace_back(group.backend, group.positions);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

absl::Status Misfit(const std::string& function, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the cover does not fit function '", function, "': ", what));
}

// Positions in range, each once; operator calls have a backend, nothing else has; a tuple's items go with it.
absl::Status CheckGroups(const std::string& name, const DataflowGraph& graph, const std::vector<Group>& groups) {
  std::vector<int> group_of(graph.size(), -1);
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
    if (groups[i].positions.empty()) return Misfit(name, absl::StrCat("group ", i, " is empty"));
    if (!std::is_sorted(groups[i].positions.begin(), groups[i].positions.end())) {
      return Misfit(name, absl::StrCat("the positions of group ", i, " do not ascend"));
    }
    for (int position : groups[i].positions) {
      if (position < 0 || position >= graph.size()) {
        return Misfit(name, absl::StrCat("position ", position, "; it has 0 to ", graph.size() - 1));
      }
      if (group_of[position] >= 0) return Misfit(name, absl::StrCat("position ", position, " is in two groups"));
      group_of[position] = i;
    }
  }
  for (int position = 0; position < graph.size(); ++position) {
    if (group_of[position] < 0) return Misfit(name, absl::StrCat("position ", position, " is in no group"));
    const Group& group = groups[group_of[position]];
    const std::string what = absl::StrCat("position ", position, ", ", ir::Describe(graph.binding(position)));
    if (graph.needs_cover(position)) {
      if (group.backend == nullptr) return Misfit(name, absl::StrCat(what, ", has no backend"));
      if (!graph.binding(position).var->type.is_tuple()) continue;
      for (int consumer : graph.consumers(position)) {
        const bool is_item = graph.binding(consumer).kind == ir::Binding::Kind::kTupleGetItem;
        if (!is_item || group_of[consumer] != group_of[position]) {
          return Misfit(name, absl::StrCat(what, " is apart from what reads its tuple"));
        }
      }
    } else if (group.backend != nullptr && graph.binding(position).kind != ir::Binding::Kind::kTupleGetItem) {
      return Misfit(name, absl::StrCat(what, " can't be in a partition"));
    }
  }
  Quotient quotient(graph, group_of, static_cast<int>(groups.size()));
  if (quotient.TopologicalOrder().size() != groups.size()) return Misfit(name, "its groups need each other");
  // The given order must be one: each group after those that it reads.
  for (int position = 0; position < graph.size(); ++position) {
    for (int producer : graph.producers(position)) {
      if (group_of[producer] > group_of[position]) return Misfit(name, "a group comes before one that it needs");
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool Cover::SameCuts(const Cover& other) const {
  auto ours = functions.find("main"), theirs = other.functions.find("main");
  if (ours == functions.end() || theirs == other.functions.end()) return false;
  return Cuts(ours->second) == Cuts(theirs->second);
}

proto::Cover ToProto(const Cover& cover, const Digest& module_hash) {
  proto::Cover proto;
  proto.set_module_hash(module_hash.hex());
  proto.set_name(cover.name);
  proto.set_estimated_us(cover.estimated_us);
  proto.set_whole_batch(cover.whole_batch);
  for (const auto& [name, groups] : cover.functions) {
    proto::Cover::FunctionCover* function = proto.add_functions();
    function->set_function(name);
    for (const Group& group : groups) {
      proto::Cover::Group* out = function->add_groups();
      if (group.backend != nullptr) out->set_backend(group.backend->name());
      out->mutable_positions()->Add(group.positions.begin(), group.positions.end());
      for (const std::string& rule : group.rules) out->add_rules(rule);
      out->set_cost_us(group.cost_us);
    }
  }
  return proto;
}

std::vector<std::string> FunctionsToCut(const ir::IRModule& module) {
  std::vector<std::string> names;
  for (const char* first : {"transform_params", "main"}) {
    if (module.functions.count(first) > 0) names.push_back(first);
  }
  for (const auto& [name, function] : module.functions) {
    if (name != "transform_params" && name != "main") names.push_back(name);
  }
  return names;
}

absl::StatusOr<Cover> FromProto(const proto::Cover& proto, const ir::IRModule& module, const Digest& module_hash,
                                const std::vector<const backend::Backend*>& backends) {
  if (proto.module_hash() != module_hash.hex()) {
    return absl::InvalidArgumentError(absl::StrCat("the cover was made for another module (",
                                                   proto.module_hash().substr(0, 16), "...); this one, normalised, is ",
                                                   module_hash.short_hex()));
  }
  Cover cover;
  cover.name = proto.name();
  cover.estimated_us = proto.estimated_us();
  cover.whole_batch = proto.whole_batch();
  for (const proto::Cover::FunctionCover& function : proto.functions()) {
    auto found = module.functions.find(function.function());
    if (found == module.functions.end()) return Misfit(function.function(), "the module has none of that name");
    std::vector<Group>& groups = cover.functions[function.function()];
    if (!groups.empty()) return Misfit(function.function(), "it is covered twice");
    for (const proto::Cover::Group& in : function.groups()) {
      Group& group = groups.emplace_back();
      group.positions.assign(in.positions().begin(), in.positions().end());
      group.rules.assign(in.rules().begin(), in.rules().end());
      group.cost_us = in.cost_us();
      if (in.backend().empty()) continue;
      for (const backend::Backend* backend : backends) {
        if (backend->name() == in.backend()) group.backend = backend;
      }
      if (group.backend == nullptr) {
        return Misfit(function.function(), absl::StrCat("backend '", in.backend(), "' can't be used here"));
      }
    }
    INLAY_RETURN_IF_ERROR(CheckGroups(function.function(), DataflowGraph(found->second), groups));
  }
  for (const std::string& name : FunctionsToCut(module)) {
    if (cover.functions.count(name) == 0) return Misfit(name, "it is not covered");
  }
  return cover;
}

}  // namespace inlay::collage
