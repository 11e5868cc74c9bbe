// The worker's half: a partition becomes its description in an object that calls the runtime shim.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/manifest.h"
#include "core/backends/common/shim_codegen.h"
#include "core/backends/onednn/lowering.h"
#include "core/base/status_macros.h"
#include "oneapi/dnnl/dnnl.h"

namespace inlay::onednn {
namespace {

// The PyPI release of the oneDNN that deploy/requirements.txt pins.
constexpr char kSoname[] = "libdnnl.so.3";
constexpr char kPackage[] = "onednn-cpu-gomp==2023.2.0 (PyPI)";

absl::StatusOr<backends::ShimPartition> Describe(const ir::Function& partition, const std::string& fpmath) {
  INLAY_ASSIGN_OR_RETURN(Lowered lowered, Lower(partition));
  lowered.description.fpmath = fpmath;
  return backends::ShimPartition{Serialize(lowered), lowered.description.workspace_bytes, lowered.flops, {}};
}

class OnednnCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return "onednn"; }
  bool takes_channels_last() const override { return true; }

  std::string version() const override {
    const dnnl_version_t* v = dnnl_version();
    auto library = backends::LibraryBuildId("libdnnl.so");
    return absl::StrCat("oneDNN ", v->major, ".", v->minor, ".", v->patch, " (", library.value_or("static"),
                        "), worker ", backends::ExecutableBuildId(), ", description ", kDescriptionVersion);
  }

  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override {
    const std::string fpmath = request.codegen_target.attr(kFpmathAttr, "strict");
    INLAY_ASSIGN_OR_RETURN(
        proto::StaticLibrary library,
        backends::GenerateShimCalls(*this, request, [&](const ir::Function& f) { return Describe(f, fpmath); }));
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    auto* required = manifest->add_required_libraries();
    required->set_soname(kSoname);
    required->set_package(kPackage);
    const dnnl_version_t* v = dnnl_version();
    required->set_version(absl::StrCat(v->major, ".", v->minor, ".", v->patch));
    backends::RequireOpenMp(manifest);
    return library;
  }
};

INLAY_REGISTER_CODEGEN(OnednnCodegen);

}  // namespace
}  // namespace inlay::onednn
