// The worker's half of the native backend: partitions in, one object and its manifest out.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/artifact/static_library.h"
#include "core/backend/backend.h"
#include "core/backends/native/build_id.h"
#include "core/backends/native/channels_last.h"
#include "core/backends/native/composites.h"
#include "core/backends/native/cpu_features.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/llvm_compile.h"
#include "core/backends/native/native_backend.h"
#include "core/backends/native/open_ops.h"
#include "core/base/status_macros.h"
#include "core/ir/proto_conversion.h"
#include "core/runtime/kernel_abi.h"
#include "llvm/Config/llvm-config.h"
#include "mlir/IR/BuiltinOps.h"

namespace inlay::native {
namespace {

class NativeCodegen : public backend::BackendCodegen {
 public:
  std::string name() const override { return kBackendName; }
  bool takes_channels_last() const override { return true; }

  std::string version() const override {
    static const std::string version = absl::StrCat("native ", BuildId(""), " llvm ", LLVM_VERSION_STRING, " ",
                                                    BuildId("libLLVM"), " mlir ", BuildId("libMLIR"));
    return version;
  }

  absl::StatusOr<proto::StaticLibrary> Codegen(const backend::CodegenRequest& request) const override {
    INLAY_RETURN_IF_ERROR(CheckNativeTarget(request.target, request.codegen_target));
    ContextLease context;
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(context.get()));
    proto::StaticLibrary library;
    proto::StaticLibraryManifest* manifest = library.mutable_manifest();
    manifest->set_format_version(artifact::kStaticLibraryFormatVersion);
    manifest->set_kernel_abi_version(INLAY_KERNEL_ABI_VERSION);
    manifest->set_backend(name());
    manifest->set_backend_version(version());
    manifest->set_target_triple(request.target.attr("mtriple"));
    manifest->set_target_cpu(request.target.attr("mcpu"));
    manifest->set_target_features(request.target.attr("mattr"));
    for (const auto& [symbol, function] : request.module.functions) {
      INLAY_RETURN_IF_ERROR(Annotate(Emit(symbol, function, request, module.get(), manifest), symbol));
    }
    INLAY_ASSIGN_OR_RETURN(std::string object, CompileModule(module.get(), request.target));
    proto::ObjectFile* file = library.add_objects();
    file->set_name("native.o");
    file->set_data(std::move(object));
    return library;
  }

 private:
  static absl::Status CheckConstantParams(const ir::Function& function) {
    if (!function.attrs.Has(backend::kConstantParams)) {
      return absl::InvalidArgumentError("a partition function without the attribute 'constant_params'");
    }
    for (int64_t i : function.attrs.IntsOr(backend::kConstantParams, {})) {
      if (i >= 0 && i < static_cast<int64_t>(function.params.size())) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("constant_params names parameter ", i, ", there are ", function.params.size()));
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<WinogradChoice> WinogradOf(const ir::Function& function, const target::Target& codegen_target) {
    int64_t m = function.attrs.IntOr(kFunctionWinograd, WinogradChoice::kByRule);
    if (m != WinogradChoice::kByRule && m != WinogradChoice::kNever && (m < 2 || m > WinogradChoice::kMost)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the attribute '", kFunctionWinograd, "' is ", m, ", not 0 or 2 to ", WinogradChoice::kMost));
    }
    return WinogradChoice{codegen_target.attr(kWinogradAttr, "1") == "0" ? WinogradChoice::kNever : m};
  }

  static absl::StatusOr<DepthwiseBlockChoice> DepthwiseBlockOf(const ir::Function& function) {
    const int64_t bands = function.attrs.IntOr(kFunctionDepthwiseBlock, DepthwiseBlockChoice::kByRule);
    if (bands < DepthwiseBlockChoice::kByRule) {
      return absl::InvalidArgumentError(
          absl::StrCat("the attribute '", kFunctionDepthwiseBlock, "' is ", bands, ", not a number of bands"));
    }
    return DepthwiseBlockChoice{bands};
  }

  static absl::Status Emit(const std::string& symbol, const ir::Function& function,
                           const backend::CodegenRequest& request, mlir::ModuleOp module,
                           proto::StaticLibraryManifest* manifest) {
    INLAY_RETURN_IF_ERROR(CheckConstantParams(function));
    for (const ir::Binding& binding : function.body.bindings) {
      INLAY_RETURN_IF_ERROR(Annotate(CheckOpenDims(binding), ir::Describe(binding)));
    }
    const CpuFeatures cpu = FeaturesOf(request.target);
    INLAY_ASSIGN_OR_RETURN(const ir::Function as_it_lies, WithRowMajorBorders(function, cpu));
    INLAY_ASSIGN_OR_RETURN(Graph graph, Graph::Build(as_it_lies));
    FoldComposites(as_it_lies, cpu, &graph);
    FunctionEmitter emitter(module, cpu, symbol, &graph);
    INLAY_ASSIGN_OR_RETURN(WinogradChoice winograd, WinogradOf(function, request.codegen_target));
    emitter.set_winograd(winograd);
    INLAY_ASSIGN_OR_RETURN(DepthwiseBlockChoice depthwise_block, DepthwiseBlockOf(function));
    emitter.set_depthwise_block(depthwise_block);
    INLAY_ASSIGN_OR_RETURN(EmittedFunction emitted, emitter.Emit());
    proto::PrimitiveFunction* entry = manifest->add_functions();
    entry->set_symbol(symbol);
    for (const ir::VarPtr& param : function.params) *entry->add_inputs() = ir::ToProto(param->type.tensor());
    for (const ir::Operand& result : function.body.results) *entry->add_outputs() = ir::ToProto(result.tensor_type());
    for (const std::string& name : graph.symbols) entry->add_symbols(name);
    for (size_t i = 0; i < graph.params.size(); ++i) {
      if (graph.param_is_constant[i]) entry->add_constant_inputs(static_cast<int>(i));
    }
    for (int i : emitted.init_only_params) entry->add_init_only_inputs(i);
    for (int i : emitted.in_place) entry->add_in_place(i);
    entry->set_has_state(emitted.has_state);
    if (emitted.workspace_bytes.is_static()) {
      entry->set_workspace_bytes(emitted.workspace_bytes.value());
    } else {
      entry->set_workspace_expr(emitted.workspace_bytes.polynomial().symbol());
    }
    entry->set_flops(CountFlops(function));
    return absl::OkStatus();
  }
};

INLAY_REGISTER_CODEGEN(NativeCodegen);

}  // namespace
}  // namespace inlay::native
