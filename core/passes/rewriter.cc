#include "core/passes/rewriter.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/op_registry.h"

namespace inlay::passes {

using ir::Binding;
using ir::Block;
using ir::Operand;

absl::StatusOr<ir::Function> Rewriter::Run(ir::Function function) {
  CountUses(function.body);
  INLAY_RETURN_IF_ERROR(Walk(&function.body));
  return function;
}

absl::Status Rewriter::Walk(Block* block) {
  std::deque<Binding> out;
  std::deque<Binding>* const outer = out_;
  out_ = &out;
  for (Binding& binding : block->bindings) {
    for (Operand& arg : binding.args) arg = Replaced(arg);
    for (Block& nested : binding.blocks) INLAY_RETURN_IF_ERROR(Walk(&nested));
    location_ = binding.location;
    Replacement replacement = Visit(&binding);
    if (!replacement.ok()) return Annotate(replacement.status(), Describe(binding));
    if (!replacement->has_value()) {
      out.push_back(std::move(binding));
      defs_[out.back().var.get()] = &out.back();
      continue;
    }
    const Operand& operand = **replacement;
    if (operand.type() != binding.var->type) {
      return absl::InternalError(absl::StrCat(Describe(binding), ": rewritten from ", binding.var->type.ToString(),
                                              " to ", operand.type().ToString()));
    }
    // The new value inherits the uses of the old one, so that HasOneUse goes on telling the truth.
    if (operand.is_var()) {
      int& uses = uses_[operand.var.get()];
      uses += NumUses(Operand(binding.var)) - (uses > 0 ? 1 : 0);
    }
    replaced_.emplace(binding.var.get(), operand);
  }
  for (Operand& result : block->results) result = Replaced(result);
  block->bindings.clear();
  block->bindings.reserve(out.size());
  for (Binding& binding : out) {
    // Later blocks may look at the definition; it has moved. Inner blocks are out of scope for them anyway.
    if (outer != nullptr) defs_.erase(binding.var.get());
    block->bindings.push_back(std::move(binding));
  }
  out_ = outer;
  return absl::OkStatus();
}

Operand Rewriter::Replaced(const Operand& operand) const {
  if (!operand.is_var()) return operand;
  auto it = replaced_.find(operand.var.get());
  return it == replaced_.end() ? operand : it->second;
}

void Rewriter::CountUses(const Block& block) {
  for (const Binding& binding : block.bindings) {
    for (const Operand& arg : binding.args) {
      if (arg.is_var()) ++uses_[arg.var.get()];
    }
    for (const Block& nested : binding.blocks) CountUses(nested);
  }
  for (const Operand& result : block.results) {
    if (result.is_var()) ++uses_[result.var.get()];
  }
}

absl::StatusOr<Operand> Rewriter::Call(absl::string_view op, std::vector<Operand> args, ir::Attrs attrs) {
  absl::StatusOr<ir::Type> type = ir::OpRegistry::Global().Infer(op, args, &attrs);
  if (!type.ok()) return Annotate(type.status(), op);
  Binding binding;
  binding.var = ir::MakeVar(std::string(op), *std::move(type));
  binding.callee = std::string(op);
  binding.args = std::move(args);
  binding.attrs = std::move(attrs);
  binding.location = location_;
  out_->push_back(std::move(binding));
  defs_[out_->back().var.get()] = &out_->back();
  return Operand(out_->back().var);
}

const Binding* Rewriter::Def(const Operand& operand) const {
  if (!operand.is_var()) return nullptr;
  auto it = defs_.find(operand.var.get());
  return it == defs_.end() ? nullptr : it->second;
}

const Binding* Rewriter::DefCall(const Operand& operand, absl::string_view op) const {
  const Binding* def = Def(operand);
  return def != nullptr && def->IsCall(op) ? def : nullptr;
}

int Rewriter::NumUses(const Operand& operand) const {
  auto it = uses_.find(operand.var.get());
  return it == uses_.end() ? 0 : it->second;
}

}  // namespace inlay::passes
