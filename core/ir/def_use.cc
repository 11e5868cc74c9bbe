#include "core/ir/pattern.h"

namespace inlay::ir {

DefUse::DefUse(const Block& block, std::unordered_set<const Var*> constants)
    : block_(&block), constants_(std::move(constants)) {
  uses_.reserve(block.bindings.size() * 2);
  for (const Binding& binding : block.bindings) {
    for (const Operand& arg : binding.args) {
      if (!arg.is_var()) continue;
      Uses& uses = uses_[arg.var.get()];
      ++uses.count;
      if (uses.users.empty() || uses.users.back() != &binding) uses.users.push_back(&binding);
    }
    for (const Block& nested : binding.blocks) AddBlockUses(nested, &binding);
    uses_[binding.var.get()].def = &binding;
  }
  for (const Operand& result : block.results) {
    if (!result.is_var()) continue;
    Uses& uses = uses_[result.var.get()];
    ++uses.count;
    uses.is_result = true;
  }
}

// Vars that a nested block defines are recorded too; nobody outside can ask for them.
void DefUse::AddBlockUses(const Block& block, const Binding* user) {
  auto add = [&](const Operand& operand) {
    if (!operand.is_var()) return;
    Uses& uses = uses_[operand.var.get()];
    ++uses.count;
    if (uses.users.empty() || uses.users.back() != user) uses.users.push_back(user);
  };
  for (const Binding& binding : block.bindings) {
    for (const Operand& arg : binding.args) add(arg);
    for (const Block& nested : binding.blocks) AddBlockUses(nested, user);
  }
  for (const Operand& result : block.results) add(result);
}

const DefUse::Uses* DefUse::Find(const VarPtr& var) const {
  auto it = uses_.find(var.get());
  return it == uses_.end() ? nullptr : &it->second;
}

const Binding* DefUse::Def(const VarPtr& var) const {
  const Uses* uses = Find(var);
  return uses == nullptr ? nullptr : uses->def;
}

int DefUse::NumUses(const VarPtr& var) const {
  const Uses* uses = Find(var);
  return uses == nullptr ? 0 : uses->count;
}

const std::vector<const Binding*>& DefUse::Users(const VarPtr& var) const {
  static const auto* none = new std::vector<const Binding*>;
  const Uses* uses = Find(var);
  return uses == nullptr ? *none : uses->users;
}

bool DefUse::IsResult(const VarPtr& var) const {
  const Uses* uses = Find(var);
  return uses != nullptr && uses->is_result;
}

bool DefUse::IsConstant(const Operand& operand) const {
  return operand.constant != nullptr || constants_.count(operand.var.get()) > 0;
}

int DefUse::Position(const Binding* binding) const { return static_cast<int>(binding - block_->bindings.data()); }

}  // namespace inlay::ir
