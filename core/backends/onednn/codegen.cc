// The worker's half: a partition becomes its description in an object that calls the runtime shim.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/manifest.h"
#include "core/backends/common/shim_object.h"
#include "core/backends/onednn/lowering.h"
#include "core/base/status_macros.h"
#include "oneapi/dnnl/dnnl.h"

namespace inlay::onednn {
namespace {

// The PyPI release of the oneDNN that deploy/requirements.txt pins.
constexpr char kSoname[] = "libdnnl.so.3";
constexpr char kPackage[] = "onednn-cpu-gomp==2023.2.0 (PyPI)";

class OnednnCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return "onednn"; }

  std::string version() const override {
    const dnnl_version_t* v = dnnl_version();
    auto library = backends::LibraryBuildId("libdnnl.so");
    return absl::StrCat("oneDNN ", v->major, ".", v->minor, ".", v->patch, " (", library.value_or("static"),
                        "), worker ", backends::ExecutableBuildId(), ", description ", kDescriptionVersion);
  }

  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override {
    std::vector<backends::ShimFunction> functions;
    proto::StaticLibrary library;
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    for (const auto& [symbol, function] : request.module.functions) {
      auto lowered = Lower(function);
      if (!lowered.ok()) {
        return absl::Status(lowered.status().code(),
                            absl::StrCat("onednn: partition '", symbol, "': ", lowered.status().message()));
      }
      functions.push_back({symbol, Serialize(*lowered)});
      proto::PrimitiveFunction* primitive = manifest->add_functions();
      INLAY_RETURN_IF_ERROR(backends::FillSignature(symbol, function, primitive));
      primitive->set_has_state(true);
      primitive->set_workspace_bytes(lowered->description.workspace_bytes);
      primitive->set_flops(lowered->flops);
      // Whatever is constant is copied or packed by _init.
      *primitive->mutable_init_only_inputs() = primitive->constant_inputs();
    }
    backends::FillManifest(name(), version(), request.target, manifest);
    // Calls only; the library picks its kernels by the CPU it finds.
    manifest->set_target_cpu("x86-64");
    manifest->set_target_features("");
    auto* required = manifest->add_required_libraries();
    required->set_soname(kSoname);
    required->set_package(kPackage);
    backends::RequireOpenMp(manifest);
    manifest->add_runtime_components("onednn");
    INLAY_ASSIGN_OR_RETURN(std::string object, backends::EmitShimObject("onednn", functions, request.target));
    auto* file = library.add_objects();
    file->set_name("onednn.o");
    file->set_data(std::move(object));
    return library;
  }
};

INLAY_REGISTER_CODEGEN(OnednnCodegen);

}  // namespace
}  // namespace inlay::onednn
