#include "core/passes/pass_manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"

namespace inlay::passes {

absl::StatusOr<ir::IRModule> PassManager::Run(ir::IRModule module) {
  timings_.clear();
  for (const PassPtr& pass : passes_) {
    const target::CompilationConfig& config = module.config();
    const std::vector<std::string>& disabled = config.disabled_passes;
    const bool off = config.opt_level < pass->min_opt_level() ||
                     std::find(disabled.begin(), disabled.end(), pass->name()) != disabled.end();
    if (off && pass->min_opt_level() > 0) continue;
    const absl::Time start = absl::Now();
    absl::StatusOr<ir::IRModule> result = pass->Run(std::move(module), config);
    if (!result.ok()) return Annotate(result.status(), absl::StrCat("pass ", pass->name()));
    module = *std::move(result);
    timings_.push_back({pass->name(), absl::Now() - start});
    if (instrument_) instrument_(*pass, module);
  }
  return module;
}

std::vector<std::string> PassManager::names() const {
  std::vector<std::string> names;
  for (const PassPtr& pass : passes_) names.push_back(pass->name());
  return names;
}

}  // namespace inlay::passes
