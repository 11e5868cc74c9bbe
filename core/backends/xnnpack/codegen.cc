// The worker's half: a partition becomes its description in an object that calls the runtime shim.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/shim_codegen.h"
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

absl::StatusOr<backends::ShimPartition> Describe(const ir::Function& partition, const target::Target& codegen_target) {
  INLAY_ASSIGN_OR_RETURN(Lowered lowered, Lower(partition));
  if (const std::string macs = codegen_target.attr(kSplitMacsAttr);
      !macs.empty() && (!absl::SimpleAtoi(macs, &lowered.description.split_macs))) {
    return absl::InvalidArgumentError(absl::StrCat(kSplitMacsAttr, "=", macs, " is no number"));
  }
  return backends::ShimPartition{Serialize(lowered), lowered.description.workspace_bytes, lowered.flops, {}};
}

class XnnpackCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return "xnnpack"; }
  bool takes_channels_last() const override { return true; }

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
    auto describe = [&](const ir::Function& f) { return Describe(f, request.codegen_target); };
    INLAY_ASSIGN_OR_RETURN(proto::StaticLibrary library, backends::GenerateShimCalls(*this, request, describe));
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    for (const Library& needed : kLibraries) {
      auto* required = manifest->add_required_libraries();
      required->set_soname(needed.soname);
      required->set_package(needed.package);
    }
    return library;
  }
};

INLAY_REGISTER_CODEGEN(XnnpackCodegen);

}  // namespace
}  // namespace inlay::xnnpack
