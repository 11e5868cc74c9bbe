// Verifies the module: structure, operators, and that every Var has the type that inference gives it.
//
// It is the first pass, since whoever builds a module without going through FromProto gets the same checks, and the
// last, since everything behind it relies on what the passes made. FromProto has inferred what a client left out.
#include "core/base/status_macros.h"
#include "core/ir/verifier.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

class InferTypesPass : public Pass {
 public:
  absl::string_view name() const override { return "infer_types"; }
  int min_opt_level() const override { return 0; }
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig&) const override {
    INLAY_RETURN_IF_ERROR(ir::Verify(module));
    return module;
  }
};

}  // namespace

std::unique_ptr<Pass> InferTypes() { return std::make_unique<InferTypesPass>(); }

}  // namespace inlay::passes
