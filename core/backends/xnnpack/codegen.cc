// The worker's half: a partition becomes its description in an object that calls the runtime shim.
#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/manifest.h"
#include "core/backends/common/shim_object.h"
#include "core/backends/xnnpack/lowering.h"
#include "core/backends/xnnpack/runtime/loaded_library.h"
#include "core/base/status_macros.h"

namespace inlay::xnnpack {
namespace {

struct Library {
  const char* soname;
  const char* package;
};
// The last needs the others. They are named too, and before it, so that all three are found where they are bundled.
constexpr Library kLibraries[] = {
    {"libcpuinfo.so.0", "libcpuinfo0 (Debian, apt)"},
    {"libpthreadpool.so.0", "libpthreadpool0 (Debian, apt)"},
    {kSoname, kPackage},
};

class XnnpackCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return "xnnpack"; }

  // The library has no version of its own: its bytes are.
  std::string version() const override {
    if (const std::string& missing = LoadLibrary(); !missing.empty()) return missing;
    std::string text = "XNNPACK";
    for (const Library& library : kLibraries) {
      absl::StrAppend(&text, " ", library.soname, " ", backends::LibraryBuildId(library.soname).value_or("missing"));
    }
    return absl::StrCat(text, ", worker ", backends::ExecutableBuildId(), ", description ", kDescriptionVersion);
  }

  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override {
    std::vector<backends::ShimFunction> functions;
    proto::StaticLibrary library;
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    for (const auto& [symbol, function] : request.module.functions) {
      auto lowered = Lower(function);
      if (!lowered.ok()) {
        return absl::Status(lowered.status().code(),
                            absl::StrCat("xnnpack: partition '", symbol, "': ", lowered.status().message()));
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
    for (const Library& needed : kLibraries) {
      auto* required = manifest->add_required_libraries();
      required->set_soname(needed.soname);
      required->set_package(needed.package);
    }
    manifest->add_runtime_components("xnnpack");
    INLAY_ASSIGN_OR_RETURN(std::string object, backends::EmitShimObject("xnnpack", functions, request.target));
    auto* file = library.add_objects();
    file->set_name("xnnpack.o");
    file->set_data(std::move(object));
    return library;
  }
};

INLAY_REGISTER_CODEGEN(XnnpackCodegen);

}  // namespace
}  // namespace inlay::xnnpack
