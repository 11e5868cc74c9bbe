#include "core/compiler/in_process_compiler.h"

#include "absl/strings/str_cat.h"
#include "core/backend/run_action.h"
#include "core/base/status_macros.h"

namespace inlay::compiler {

absl::StatusOr<proto::StaticLibrary> InProcessCompiler::Compile(const proto::CompileAction& action,
                                                                CancelToken* token) {
  INLAY_RETURN_IF_ERROR(token->status());
  ++actions_run_;
  proto::CompileAction real = action;
  INLAY_ASSIGN_OR_RETURN(std::string version, BackendVersion(action.backend()));
  if (real.backend_version() == version) {  // the worker has only the version without the suffix
    real.set_backend_version(version.substr(0, version.size() - version_suffix_.size()));
  }
  return backend::RunAction(real, scratch_dir_);
}

absl::StatusOr<std::string> InProcessCompiler::BackendVersion(const std::string& backend) {
  const backend::BackendCodegen* codegen = backend::CodegenRegistry::Global().Find(backend);
  if (codegen == nullptr) return absl::NotFoundError(absl::StrCat("no code generation of backend '", backend, "'"));
  return absl::StrCat(codegen->version(), version_suffix_);
}

}  // namespace inlay::compiler
