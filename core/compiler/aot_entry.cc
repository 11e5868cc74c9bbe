#include "core/compiler/aot_entry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/artifact/aot_entry.h"
#include "core/base/status_macros.h"
#include "core/compiler/action.h"
#include "core/runtime/plan.h"

namespace inlay::compiler {

absl::StatusOr<CompiledPartition> AddAotEntry(const target::CompilationConfig& config, CachingCompiler* compiler,
                                              CancelToken* token, proto::Executable* executable) {
  runtime::StatusOr<runtime::ExecutionPlan> plan = runtime::ExecutionPlan::FromJson(executable->plan_json());
  if (!plan.ok()) return absl::InternalError(plan.status().message());
  INLAY_ASSIGN_OR_RETURN(std::string version, compiler->compiler()->BackendVersion("aot"));
  const Action action = MakeEntryAction(artifact::CanonicalEntryPlan(*plan), config.target(), version);
  absl::StatusOr<CompiledPartition> compiled = compiler->Lookup(action);
  if (!compiled.ok()) {
    INLAY_ASSIGN_OR_RETURN(compiled, compiler->Compile(action, token));
  }
  const proto::StaticLibraryManifest& manifest = compiled->library->manifest();
  if (manifest.functions_size() != 1 || manifest.functions(0).symbol() != action.name) {
    return absl::InternalError(absl::StrCat("the library of the compiled entry ", action.name, " is another's"));
  }
  const proto::PrimitiveFunction& f = manifest.functions(0);
  plan->entry = static_cast<int32_t>(plan->functions.size());
  plan->functions.push_back({f.symbol(), f.inputs_size(), f.outputs_size(), f.has_state(), f.workspace_bytes()});
  if (runtime::Status s = plan->Check(); !s.ok()) return absl::InternalError(s.message());
  executable->set_plan_json(plan->ToJson());
  executable->add_static_libraries(std::string(compiled->library_digest.bytes()));
  *executable->add_manifests() = manifest;
  return compiled;
}

}  // namespace inlay::compiler
