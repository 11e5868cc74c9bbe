#include "core/passes/lift_transform_params.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace inlay::passes {
namespace {

using VarSet = std::unordered_set<const ir::Var*>;

// Only operator calls are lifted. A call without arguments (full, iota) gives a value that is as cheap to make where it
// is used, and lifting it would put a tensor where fused code needs none; so at least one argument must be a weight, or
// something lifted.
bool DependsOnWeightsAlone(const ir::Binding& binding, const VarSet& lifted) {
  if (binding.kind == ir::Binding::Kind::kTupleGetItem) return lifted.count(binding.args[0].var.get()) > 0;
  if (binding.kind != ir::Binding::Kind::kCall) return false;
  bool any = false;
  for (const ir::Operand& arg : binding.args) {
    const bool constant = arg.is_weight() || (arg.is_var() && lifted.count(arg.var.get()) > 0);
    if (!constant && !arg.is_literal()) return false;
    any |= constant;
  }
  return any;
}

void CollectUses(const ir::Block& block, const VarSet& of, std::vector<ir::VarPtr>* uses, VarSet* seen) {
  auto add = [&](const ir::Operand& operand) {
    if (operand.is_var() && of.count(operand.var.get()) > 0 && seen->insert(operand.var.get()).second) {
      uses->push_back(operand.var);
    }
  };
  for (const ir::Binding& binding : block.bindings) {
    for (const ir::Operand& arg : binding.args) add(arg);
    for (const ir::Block& nested : binding.blocks) CollectUses(nested, of, uses, seen);
  }
  for (const ir::Operand& result : block.results) add(result);
}

class LiftTransformParamsPass : public Pass {
 public:
  std::string name() const override { return "lift_transform_params"; }
  int min_opt_level() const override { return 0; }

  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig&) const override {
    ir::Function& main = module.functions.at("main");
    ir::Function transform;
    VarSet lifted;
    std::vector<ir::Binding> kept;
    for (ir::Binding& binding : main.body.bindings) {
      if (DependsOnWeightsAlone(binding, lifted)) {
        lifted.insert(binding.var.get());
        transform.body.bindings.push_back(std::move(binding));
      } else {
        kept.push_back(std::move(binding));
      }
    }
    main.body.bindings = std::move(kept);
    if (lifted.empty()) return module;
    std::vector<ir::VarPtr> crossing;
    VarSet seen;
    CollectUses(main.body, lifted, &crossing, &seen);
    for (const ir::VarPtr& var : crossing) {
      transform.body.results.push_back(var);
      main.params.push_back(var);
    }
    main.attrs.Set("num_lifted_params", static_cast<int64_t>(crossing.size()));
    module.functions["transform_params"] = std::move(transform);
    return module;
  }
};

}  // namespace

PassPtr LiftTransformParams() { return std::make_unique<LiftTransformParamsPass>(); }

}  // namespace inlay::passes
