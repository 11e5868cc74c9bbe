#include "core/backend/run_action.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/proto_conversion.h"
#include "core/runtime/kernel_abi.h"

namespace inlay::backend {
namespace {

absl::StatusOr<target::Target> TargetOf(const proto::Target& proto) {
  target::Target target;
  target.kind = proto.kind();
  target.attrs.insert(proto.attrs().begin(), proto.attrs().end());
  return target;
}

// A partition has no config and no "main"; FromProto wants a whole module.
absl::StatusOr<ir::IRModule> PartitionsOf(const proto::CompileAction& action) {
  if (!action.entry_plan().empty()) return ir::IRModule();
  if (action.module().functions().empty()) return absl::InvalidArgumentError("the action has no partition");
  return ir::PartitionsFromProto(action.module());
}

// A backend that does not look at the attributes would compute nonsense.
absl::Status CheckLayouts(const ir::IRModule& module, const BackendCodegen& codegen) {
  if (codegen.takes_channels_last()) return absl::OkStatus();
  for (const auto& [name, function] : module.functions) {
    if (!function.attrs.Has(kChannelsLastParams) && !function.attrs.Has(kChannelsLastResults)) continue;
    return absl::InvalidArgumentError(absl::StrCat("function ", name, " has tensors with their channels last at its ",
                                                   "border; backend ", codegen.name(), " takes row-major ones only"));
  }
  return absl::OkStatus();
}

absl::Status CheckManifest(const ir::IRModule& module, const proto::StaticLibraryManifest& manifest) {
  std::map<std::string, int> implemented;
  for (const proto::PrimitiveFunction& function : manifest.functions()) ++implemented[function.symbol()];
  for (const auto& [name, function] : module.functions) {
    if (implemented[name] != 1) {
      return absl::InternalError(absl::StrCat("backend ", manifest.backend(), " implemented function ", name, " ",
                                              implemented[name], " times"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<proto::StaticLibrary> RunAction(const proto::CompileAction& action, const std::string& scratch_dir) {
  const BackendCodegen* codegen = CodegenRegistry::Global().Find(action.backend());
  if (codegen == nullptr)
    return absl::NotFoundError(absl::StrCat("this worker has no backend '", action.backend(), "'"));
  if (action.backend_version() != codegen->version()) {
    return absl::FailedPreconditionError(absl::StrCat("backend ", action.backend(), " is version '", codegen->version(),
                                                      "' here, the action wants '", action.backend_version(), "'"));
  }
  if (action.kernel_abi_version() != INLAY_KERNEL_ABI_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat("kernel ABI ", INLAY_KERNEL_ABI_VERSION, " here, the action wants ", action.kernel_abi_version()));
  }
  INLAY_ASSIGN_OR_RETURN(ir::IRModule module, PartitionsOf(action));
  INLAY_RETURN_IF_ERROR(CheckLayouts(module, *codegen));
  INLAY_ASSIGN_OR_RETURN(target::Target target, TargetOf(action.target()));
  INLAY_ASSIGN_OR_RETURN(target, Annotate(target.Completed(), "the action's target"));
  INLAY_ASSIGN_OR_RETURN(target::Target codegen_target, TargetOf(action.codegen_target()));
  CodegenRequest request{module, std::move(target), std::move(codegen_target), scratch_dir, action.entry_plan()};
  INLAY_ASSIGN_OR_RETURN(proto::StaticLibrary library, codegen->Codegen(request));
  INLAY_RETURN_IF_ERROR(CheckManifest(module, library.manifest()));
  return library;
}

}  // namespace inlay::backend
