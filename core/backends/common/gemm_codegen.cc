#include "core/backends/common/gemm_codegen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/gemm_lowering.h"
#include "core/backends/common/manifest.h"
#include "core/backends/common/shim_object.h"
#include "core/base/status_macros.h"

namespace inlay::backends {
namespace {

bool StepsRead(const GemmDescription& gemm, int input) {
  return std::any_of(gemm.steps.begin(), gemm.steps.end(),
                     [input](const GemmStep& step) { return step.operand.input == input; });
}

}  // namespace

std::string GemmCodegen::version() const {
  return absl::StrCat(library_id_, ", worker ", ExecutableBuildId(), ", gemm description ", kGemmDescriptionVersion);
}

absl::StatusOr<proto::StaticLibrary> GemmCodegen::Codegen(const backend::CodegenRequest& request) const {
  INLAY_ASSIGN_OR_RETURN(const auto options, GemmOptions(library_, request.codegen_target));
  std::vector<ShimFunction> functions;
  proto::StaticLibrary library;
  proto::StaticLibraryManifest* manifest = library.mutable_manifest();
  for (const auto& [symbol, function] : request.module.functions) {
    auto gemm = LowerGemm(function, library_.dtypes);
    if (!gemm.ok()) {
      return absl::Status(gemm.status().code(),
                          absl::StrCat(library_.name, ": partition '", symbol, "': ", gemm.status().message()));
    }
    gemm->options = options;
    gemm->workspace_bytes = library_.workspace_bytes(*gemm);
    functions.push_back({symbol, nlohmann::json(*gemm).dump()});
    proto::PrimitiveFunction* primitive = manifest->add_functions();
    INLAY_RETURN_IF_ERROR(FillSignature(symbol, function, primitive));
    primitive->set_has_state(true);
    primitive->set_workspace_bytes(gemm->workspace_bytes);
    primitive->set_flops(gemm->flops());
    if (library_.packs_weights && gemm->b_constant && gemm->a.input != gemm->b.input &&
        !StepsRead(*gemm, gemm->b.input)) {
      primitive->add_init_only_inputs(gemm->b.input);
    }
  }
  FillManifest(name(), version(), request.target, manifest);
  // Calls only; the library picks its kernels by the CPU it finds.
  manifest->set_target_cpu("x86-64");
  manifest->set_target_features(library_.required_feature.empty() ? "" : "+" + library_.required_feature);
  manifest->add_runtime_components(library_.name);
  manifest->add_runtime_components("gemm");
  INLAY_ASSIGN_OR_RETURN(std::string object, EmitShimObject(library_.name, functions, request.target));
  auto* file = library.add_objects();
  file->set_name(library_.name + ".o");
  file->set_data(std::move(object));
  return library;
}

}  // namespace inlay::backends
