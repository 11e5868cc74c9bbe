#include "core/backends/common/shim_codegen.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backends/common/manifest.h"
#include "core/backends/common/shim_object.h"
#include "core/base/status_macros.h"

namespace inlay::backends {

absl::StatusOr<proto::StaticLibrary> GenerateShimCalls(const backend::BackendCodegen& codegen,
                                                       const backend::CodegenRequest& request,
                                                       const DescribeFn& describe) {
  const std::string name = codegen.name();
  std::vector<ShimFunction> functions;
  proto::StaticLibrary library;
  proto::StaticLibraryManifest* manifest = library.mutable_manifest();
  for (const auto& [symbol, function] : request.module.functions) {
    absl::StatusOr<ShimPartition> partition = describe(function);
    if (!partition.ok()) {
      return absl::Status(partition.status().code(),
                          absl::StrCat(name, ": partition '", symbol, "': ", partition.status().message()));
    }
    functions.push_back({symbol, std::move(partition->description)});
    proto::PrimitiveFunction* primitive = manifest->add_functions();
    INLAY_RETURN_IF_ERROR(FillSignature(symbol, function, primitive));
    primitive->set_has_state(true);
    primitive->set_workspace_bytes(partition->workspace_bytes);
    primitive->set_flops(partition->flops);
    if (partition->init_only_inputs.has_value()) {
      primitive->mutable_init_only_inputs()->Add(partition->init_only_inputs->begin(),
                                                 partition->init_only_inputs->end());
    } else {
      *primitive->mutable_init_only_inputs() = primitive->constant_inputs();
    }
  }
  FillManifest(name, codegen.version(), request.target, manifest);
  // Calls only; the library picks its kernels by the CPU it finds.
  manifest->set_target_cpu("x86-64");
  manifest->set_target_features("");
  manifest->add_runtime_components(name);
  INLAY_ASSIGN_OR_RETURN(std::string object, EmitShimObject(name, functions, request.target));
  auto* file = library.add_objects();
  file->set_name(name + ".o");
  file->set_data(std::move(object));
  return library;
}

}  // namespace inlay::backends
