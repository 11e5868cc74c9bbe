// Refuses a module with a symbolic extent, naming it, for executors graph and aot: their memory plan needs numbers. A
// client fixes symbols before it sends the module (`inlay compile --shape batch=8`), or takes executor vm.
//
//   fn @main(%x: f32[batch, 3]) ...     INVALID_ARGUMENT: the input %x: f32[batch, 3] has the symbolic extent 'batch'
//   ...
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/dim_expr.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

absl::Status CheckStatic(const ir::Type& type, absl::string_view what) {
  if (type.is_tuple()) {
    for (const ir::Type& field : type.tuple().fields) INLAY_RETURN_IF_ERROR(CheckStatic(field, what));
    return absl::OkStatus();
  }
  for (const ir::Dim& dim : type.tensor().dims) {
    if (dim.is_static()) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", type.tensor().ToString(), " has the symbolic extent '",
                                                   dim.symbol(), "'; fix it, as in --shape ", ir::PlainNames(dim)[0],
                                                   "=1, or use executor vm, which compiles it as it is"));
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(const ir::Block& block) {
  for (const ir::Binding& binding : block.bindings) {
    INLAY_RETURN_IF_ERROR(CheckStatic(binding.var->type, Describe(binding)));
    for (const ir::Block& nested : binding.blocks) INLAY_RETURN_IF_ERROR(CheckBlock(nested));
  }
  return absl::OkStatus();
}

class RequireStaticShapesPass : public Pass {
 public:
  absl::string_view name() const override { return "require_static_shapes"; }
  int min_opt_level() const override { return 0; }
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig& config) const override {
    if (config.executor.kind == target::ExecutorKind::kVm) return module;
    for (const auto& [name, function] : module.functions) {
      for (const ir::VarPtr& param : function.params) {
        INLAY_RETURN_IF_ERROR(CheckStatic(param->type, absl::StrCat("the input %", param->name)));
      }
      // With static inputs, only what a call_packed declares can be symbolic.
      INLAY_RETURN_IF_ERROR(CheckBlock(function.body));
    }
    return module;
  }
};

}  // namespace

std::unique_ptr<Pass> RequireStaticShapes() { return std::make_unique<RequireStaticShapesPass>(); }

}  // namespace inlay::passes
