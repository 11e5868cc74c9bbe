#include "core/artifact/aot_entry.h"

#include "absl/strings/str_cat.h"
#include "core/base/digest.h"

namespace inlay::artifact {

std::string CanonicalEntryPlan(const runtime::ExecutionPlan& plan) {
  runtime::ExecutionPlan canonical = plan;
  for (auto* tensors : {&canonical.inputs, &canonical.outputs, &canonical.params}) {
    for (size_t i = 0; i < tensors->size(); ++i) (*tensors)[i].name = absl::StrCat(i);
  }
  for (std::string& literal : canonical.literals) literal.assign(literal.size(), '\0');
  for (runtime::PlanFunction& function : canonical.functions) function.info = {};
  for (auto* steps : {&canonical.load_steps, &canonical.run_steps}) {
    for (runtime::Step& step : *steps) step.name.clear();
  }
  canonical.num_threads = 0;
  canonical.openmp = false;
  return canonical.ToJson();
}

std::string EntrySymbol(const std::string& canonical_plan) {
  return absl::StrCat("inlay_aot_", Digest::Of(canonical_plan).hex().substr(0, 32));
}

}  // namespace inlay::artifact
