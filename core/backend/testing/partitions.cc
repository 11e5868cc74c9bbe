#include "core/backend/testing/partitions.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"

namespace inlay::backend::testing {
namespace {

// A function of the bindings alone: what they use from outside becomes parameters, what is used outside results.
ir::Function Outline(const ir::Function& function, const std::vector<const ir::Binding*>& bindings) {
  const ir::DefUse def_use(function.body);
  std::set<const ir::Binding*> inside(bindings.begin(), bindings.end());
  const auto constants = function.attrs.IntsOr(kConstantParams, {});
  auto is_constant = [&](const ir::VarPtr& var) {
    auto found = std::find(function.params.begin(), function.params.end(), var);
    return std::count(constants.begin(), constants.end(), found - function.params.begin()) > 0;
  };
  ir::Function outlined;
  std::set<const ir::Var*> known;
  std::vector<int64_t> constant_params;
  for (const ir::Binding* binding : bindings) {
    for (const ir::Operand& arg : binding->args) {
      if (!arg.is_var() || !known.insert(arg.var.get()).second) continue;
      if (is_constant(arg.var)) constant_params.push_back(static_cast<int64_t>(outlined.params.size()));
      outlined.params.push_back(arg.var);
    }
    known.insert(binding->var.get());
    outlined.body.bindings.push_back(*binding);
    bool leaves = def_use.IsResult(binding->var);
    for (const ir::Binding* user : def_use.Users(binding->var)) leaves |= inside.count(user) == 0;
    if (leaves) outlined.body.results.push_back(binding->var);
  }
  outlined.attrs.Set(kConstantParams, constant_params);
  return outlined;
}

}  // namespace

std::vector<TestPartition> PartitionsOf(const Backend& backend, const ir::Function& function,
                                        const target::Target& target, std::vector<std::string>* refusals) {
  std::unordered_set<const ir::Var*> constants;
  for (int64_t i : function.attrs.IntsOr(kConstantParams, {})) constants.insert(function.params[i].get());
  const ir::DefUse def_use(function.body, std::move(constants));
  std::vector<TestPartition> partitions;
  std::set<std::vector<const ir::Binding*>> seen;
  std::set<const ir::Binding*> covered;
  for (const PatternRule& rule : backend.rules()) {
    for (const ir::Binding& root : function.body.bindings) {
      ir::PatternMatch match;
      if (!ir::Match(rule.pattern, root, def_use, &match)) continue;
      absl::Status status = rule.check ? rule.check(match, target) : absl::OkStatus();
      if (!status.ok()) {
        refusals->push_back(absl::StrCat(rule.name, ": ", status.message()));
        continue;
      }
      covered.insert(match.bindings.begin(), match.bindings.end());
      if (!seen.insert(match.bindings).second) continue;
      partitions.push_back({rule.name, Outline(function, match.bindings)});
    }
  }
  const bool merges = backend.merges_regions() || backend.fuses_by_kind();
  if (merges && function.body.bindings.size() > 1 && covered.size() == function.body.bindings.size()) {
    std::vector<const ir::Binding*> all;
    for (const ir::Binding& binding : function.body.bindings) all.push_back(&binding);
    if (seen.insert(all).second) partitions.push_back({"merged", Outline(function, all)});
  }
  return partitions;
}

}  // namespace inlay::backend::testing
