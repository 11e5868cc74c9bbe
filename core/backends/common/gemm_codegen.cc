#include "core/backends/common/gemm_codegen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/gemm_lowering.h"
#include "core/backends/common/shim_codegen.h"
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
  auto describe = [&](const ir::Function& partition) -> absl::StatusOr<ShimPartition> {
    INLAY_ASSIGN_OR_RETURN(GemmDescription gemm, LowerGemm(partition, library_.dtypes));
    gemm.options = options;
    gemm.workspace_bytes = library_.workspace_bytes(gemm);
    ShimPartition described{nlohmann::json(gemm).dump(), gemm.workspace_bytes, gemm.flops(), std::vector<int>()};
    if (library_.packs_weights && gemm.b_constant && gemm.a.input != gemm.b.input && !StepsRead(gemm, gemm.b.input)) {
      described.init_only_inputs->push_back(gemm.b.input);
    }
    return described;
  };
  INLAY_ASSIGN_OR_RETURN(proto::StaticLibrary library, GenerateShimCalls(*this, request, describe));
  proto::StaticLibraryManifest* manifest = library.mutable_manifest();
  if (!library_.required_feature.empty()) manifest->set_target_features("+" + library_.required_feature);
  manifest->add_runtime_components("gemm");
  if (!library_.linked_package.empty()) manifest->add_linked_packages(library_.linked_package);
  return library;
}

}  // namespace inlay::backends
