#include "core/passes/pass_manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/ir/verifier.h"

namespace inlay::passes {

absl::StatusOr<ir::IRModule> FunctionPass::Run(ir::IRModule module, const target::CompilationConfig& config) const {
  for (auto& [name, function] : module.functions) {
    absl::StatusOr<ir::Function> result = RunOnFunction(std::move(function), config);
    INLAY_RETURN_IF_ERROR(Annotate(result.status(), absl::StrCat("function '", name, "'")));
    function = *std::move(result);
  }
  return module;
}

bool PassManager::Enabled(const Pass& pass) const {
  if (pass.min_opt_level() == 0) return true;
  const std::vector<std::string>& disabled = config_.disabled_passes;
  return pass.min_opt_level() <= config_.opt_level &&
         std::find(disabled.begin(), disabled.end(), pass.name()) == disabled.end();
}

std::vector<const Pass*> PassManager::DistinctPasses() const {
  std::vector<const Pass*> distinct;
  for (const auto& pass : passes_) {
    if (std::none_of(distinct.begin(), distinct.end(), [&](const Pass* p) { return p->name() == pass->name(); })) {
      distinct.push_back(pass.get());
    }
  }
  return distinct;
}

absl::Status PassManager::CheckConfig() const {
  for (const std::string& name : config_.disabled_passes) {
    auto named = std::find_if(passes_.begin(), passes_.end(), [&](const auto& p) { return p->name() == name; });
    if (named == passes_.end()) {
      std::vector<absl::string_view> names;
      for (const Pass* pass : DistinctPasses()) names.push_back(pass->name());
      return absl::InvalidArgumentError(absl::StrCat("config.passes.disabled_passes: there is no pass '", name,
                                                     "'; there are ", absl::StrJoin(names, ", ")));
    }
    if ((*named)->min_opt_level() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("config.passes.disabled_passes: '", name, "' can't be disabled; later stages rely on it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ir::IRModule> PassManager::Run(ir::IRModule module) {
  INLAY_RETURN_IF_ERROR(CheckConfig());
  timings_.clear();
  for (const auto& pass : passes_) {
    if (!Enabled(*pass)) continue;
    const absl::Time start = absl::Now();
    absl::StatusOr<ir::IRModule> result = pass->Run(std::move(module), config_);
    INLAY_RETURN_IF_ERROR(Annotate(result.status(), pass->name()));
    module = *std::move(result);
    timings_.push_back({std::string(pass->name()), absl::ToDoubleMilliseconds(absl::Now() - start)});
    if (verify_each_) INLAY_RETURN_IF_ERROR(Annotate(ir::Verify(module), absl::StrCat("after ", pass->name())));
    if (dump_) dump_(timings_.back(), module);
  }
  return module;
}

}  // namespace inlay::passes
