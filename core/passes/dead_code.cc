#include "core/passes/dead_code.h"

#include <algorithm>
#include <unordered_set>

namespace inlay::passes {
namespace {

using Live = std::unordered_set<const ir::Var*>;

void MarkOperands(const std::vector<ir::Operand>& operands, Live* live) {
  for (const ir::Operand& operand : operands) {
    if (operand.is_var()) live->insert(operand.var.get());
  }
}

void SweepBlock(ir::Block* block, Live* live) {
  MarkOperands(block->results, live);
  std::vector<ir::Binding> kept;
  for (auto binding = block->bindings.rbegin(); binding != block->bindings.rend(); ++binding) {
    if (binding->kind != ir::Binding::Kind::kCallPacked && live->count(binding->var.get()) == 0) continue;
    for (ir::Block& nested : binding->blocks) SweepBlock(&nested, live);
    MarkOperands(binding->args, live);
    kept.push_back(std::move(*binding));
  }
  std::reverse(kept.begin(), kept.end());
  block->bindings = std::move(kept);
}

class DeadCodePass : public Pass {
 public:
  std::string name() const override { return "dead_code"; }
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig&) const override {
    for (auto& [name, function] : module.functions) {
      Live live;
      SweepBlock(&function.body, &live);
    }
    return module;
  }
};

}  // namespace

PassPtr DeadCode() { return std::make_unique<DeadCodePass>(); }

}  // namespace inlay::passes
