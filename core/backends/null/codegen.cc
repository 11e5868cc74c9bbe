// The worker's half: partitions become objects. It may link LLVM and the library that it generates calls to.
#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/manifest.h"
#include "core/backends/common/shim_object.h"
#include "core/backends/null/partition.h"
#include "core/base/status_macros.h"

namespace inlay::null {
namespace {

class NullCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return "null"; }

  // Also the versions and LibraryBuildIds of the libraries that it calls or generates for.
  std::string version() const override { return absl::StrCat("null 1, worker ", backends::ExecutableBuildId()); }

  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override {
    std::vector<backends::ShimFunction> functions;
    proto::StaticLibrary library;
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    for (const auto& [symbol, function] : request.module.functions) {
      auto bytes = BytesToCopy(function);
      if (!bytes.ok()) {
        return absl::Status(bytes.status().code(),
                            absl::StrCat("null: partition '", symbol, "': ", bytes.status().message()));
      }
      functions.push_back({symbol, absl::StrCat(*bytes, " ",
                                                request.codegen_target.attr(
                                                    "block", "0"))});  // the description, for the shim's `_init`
      proto::PrimitiveFunction* primitive = manifest->add_functions();
      INLAY_RETURN_IF_ERROR(backends::FillSignature(symbol, function, primitive));
      primitive->set_has_state(true);
    }
    backends::FillManifest(name(), version(), request.target, manifest);
    manifest->add_runtime_components("null");
    INLAY_ASSIGN_OR_RETURN(std::string object, backends::EmitShimObject("null", functions, request.target));
    proto::ObjectFile* file = library.add_objects();
    file->set_name("null.o");
    file->set_data(std::move(object));
    return library;
  }
};

INLAY_REGISTER_CODEGEN(NullCodegen);

}  // namespace
}  // namespace inlay::null
