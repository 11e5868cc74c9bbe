// Removes bindings whose value nobody uses. Calls of external functions stay: they may have effects.
//
//   %0 = exp(%x)
//   %1 = neg(%x)          becomes      %0 = neg(%x)
//   return %1                          return %0
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Block;

class Sweeper {
 public:
  void Sweep(Block* block) {
    Use(block->results);
    size_t kept = block->bindings.size();
    // Backwards: uses come after definitions.
    for (size_t i = block->bindings.size(); i-- > 0;) {
      Binding& binding = block->bindings[i];
      if (used_.contains(binding.var.get()) || HasEffect(binding)) {
        for (Block& nested : binding.blocks) Sweep(&nested);
        Use(binding.args);
        if (--kept != i) block->bindings[kept] = std::move(binding);
      }
    }
    block->bindings.erase(block->bindings.begin(), block->bindings.begin() + kept);
  }

 private:
  static bool HasEffect(const Binding& binding) {
    if (binding.kind == Binding::Kind::kCallPacked || binding.kind == Binding::Kind::kCallFunction) return true;
    for (const Block& nested : binding.blocks) {
      if (std::any_of(nested.bindings.begin(), nested.bindings.end(), HasEffect)) return true;
    }
    return false;
  }

  void Use(const std::vector<ir::Operand>& operands) {
    for (const ir::Operand& operand : operands) {
      if (operand.is_var()) used_.insert(operand.var.get());
    }
  }

  absl::flat_hash_set<const ir::Var*> used_;
};

class DeadCodePass : public FunctionPass {
 public:
  absl::string_view name() const override { return "dead_code"; }
  int min_opt_level() const override { return 0; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    Sweeper().Sweep(&function.body);
    return function;
  }
};

}  // namespace

std::unique_ptr<Pass> DeadCode() { return std::make_unique<DeadCodePass>(); }

}  // namespace inlay::passes
