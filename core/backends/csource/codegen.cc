// The worker's half: a partition becomes a C source, the source an object.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/artifact/elf_check.h"
#include "core/artifact/static_library.h"
#include "core/backend/backend.h"
#include "core/backend/external_compilers.h"
#include "core/backends/common/build_id.h"
#include "core/backends/common/manifest.h"
#include "core/backends/csource/compile.h"
#include "core/backends/csource/cost.h"
#include "core/backends/csource/function_emitter.h"
#include "core/backends/csource/options.h"
#include "core/base/status_macros.h"

namespace inlay::csource {
namespace {

// What a kernel is compiled with: its prototype, so that a wrong signature is an error at its definition, and its name
// in the object.
std::string UserSource(const UserKernel& kernel, const std::string& linked_name, const std::string& signature) {
  return absl::StrCat("#include <stdint.h>\n#line 1 \"inlay: how ", kernel.op, " calls it\"\nvoid ", kernel.symbol, "(",
                      signature, ") __asm__(\"", linked_name, "\");\n#line 1 \"", kernel.symbol, ".c\"\n",
                      kernel.source, "\n");
}

// Helpers of two partitions' kernels must not meet at link time.
absl::Status CheckDefines(const std::string& object, const std::string& wanted, const std::string& symbol) {
  INLAY_ASSIGN_OR_RETURN(artifact::ObjectSymbols symbols, artifact::ReadObject(object, "x86_64"));
  std::vector<std::string> others;
  bool found = false;
  for (const auto* list : {&symbols.strong, &symbols.weak}) {
    for (const std::string& name : *list) {
      found |= name == wanted;
      if (name != wanted) others.push_back(name);
    }
  }
  if (!found) return absl::InvalidArgumentError(absl::StrCat("its source does not define ", symbol));
  if (others.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its source defines ", absl::StrJoin(others, ", "),
                                                 " as well; all but ", symbol, " must be static"));
}

class CSourceCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return "csource"; }

  std::string version() const override {
    static const std::string version = [] {
      std::vector<std::string> compilers;
      for (const auto& [name, path] : backend::ExternalCompilers::Global().paths()) {
        compilers.push_back(CompilerIdentity(name, path));
      }
      if (compilers.empty()) compilers.push_back("no compiler");
      return absl::StrCat("csource 1, ", absl::StrJoin(compilers, ", "), ", worker ", backends::ExecutableBuildId());
    }();
    return version;
  }

  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override {
    if (request.target.kind == "c") return Sources(request);
    INLAY_ASSIGN_OR_RETURN(Options options, ParseOptions(request.target, request.codegen_target));
    proto::StaticLibrary library;
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    backends::FillManifest(name(), version(), request.target, manifest);
    for (const auto& [symbol, function] : request.module.functions) {
      INLAY_RETURN_IF_ERROR(Annotate(Add(symbol, function, request, options, &library),
                                     absl::StrCat("csource: partition '", symbol, "'")));
    }
    // Calls that lead out of the library: named now, not when it is linked.
    if (manifest->has_client_code()) INLAY_RETURN_IF_ERROR(artifact::CheckStaticLibrary(library));
    return library;
  }

 private:
  // Nothing is compiled here: only who builds the model's Model Library Format knows the compiler.
  absl::StatusOr<proto::StaticLibrary> Sources(const backend::CodegenRequest& request) const {
    proto::StaticLibrary library;
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    backends::FillManifest(name(), version(), request.target, manifest);
    manifest->set_target_triple("c");
    proto::SourceFile* header = library.add_sources();
    header->set_name(kOpsHeader);
    header->set_text(OpsHeader());
    for (const auto& [symbol, function] : request.module.functions) {
      const std::string where = absl::StrCat("csource: partition '", symbol, "'");
      INLAY_ASSIGN_OR_RETURN(EmittedFunction emitted,
                             Annotate(EmitFunction(symbol, function, request.target, {}), where));
      proto::PrimitiveFunction* primitive = manifest->add_functions();
      INLAY_RETURN_IF_ERROR(backends::FillSignature(symbol, function, primitive));
      primitive->set_workspace_bytes(emitted.workspace_bytes);
      primitive->set_constant_bytes(emitted.constant_bytes);
      primitive->set_flops(CountFlops(function));
      proto::SourceFile* source = library.add_sources();
      source->set_name(symbol + ".c");
      source->set_text(std::move(emitted.source));
    }
    return library;
  }

  static absl::Status Add(const std::string& symbol, const ir::Function& function,
                          const backend::CodegenRequest& request, const Options& options,
                          proto::StaticLibrary* library) {
    proto::PrimitiveFunction* primitive = library->mutable_manifest()->add_functions();
    INLAY_ASSIGN_OR_RETURN(EmittedFunction emitted, EmitFunction(symbol, function, request.target, options.kernels));
    INLAY_RETURN_IF_ERROR(backends::FillSignature(symbol, function, primitive));
    primitive->set_workspace_bytes(emitted.workspace_bytes);
    primitive->set_flops(CountFlops(function));
    CompileJob job{options.compiler_path, CompilerArguments(request.target, options), request.scratch_dir, symbol,
                   std::move(emitted.source)};
    INLAY_ASSIGN_OR_RETURN(std::string object, CompileC(job));
    AddObject(symbol, std::move(object), library);
    for (const auto& [kernel, signature] : emitted.user_kernels) {
      const std::string linked = LinkedName(symbol, *kernel);
      job.name = linked;
      job.source = UserSource(*kernel, linked, signature);
      const std::string which = absl::StrCat("kernel '", kernel->symbol, "'");
      INLAY_ASSIGN_OR_RETURN(object, Annotate(CompileC(job), which));
      INLAY_RETURN_IF_ERROR(Annotate(CheckDefines(object, linked, kernel->symbol), which));
      AddObject(linked, std::move(object), library);
      library->mutable_manifest()->set_has_client_code(true);
    }
    return absl::OkStatus();
  }

  static void AddObject(const std::string& name, std::string data, proto::StaticLibrary* library) {
    proto::ObjectFile* file = library->add_objects();
    file->set_name(name + ".o");
    file->set_data(std::move(data));
  }
};

INLAY_REGISTER_CODEGEN(CSourceCodegen);

}  // namespace
}  // namespace inlay::csource
