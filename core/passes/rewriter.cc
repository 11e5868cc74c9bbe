#include "core/passes/rewriter.h"

#include <utility>

namespace inlay::passes {

ir::Operand Rewriter::Map(const ir::Operand& old) const {
  if (!old.is_var()) return old;
  auto found = replaced_.find(old.var.get());
  return found == replaced_.end() ? old : found->second;
}

ir::Block Rewriter::MapBlock(const ir::Block& block) const {
  ir::Block mapped = block;
  for (ir::Binding& binding : mapped.bindings) {
    for (ir::Operand& arg : binding.args) arg = Map(arg);
    for (ir::Block& nested : binding.blocks) nested = MapBlock(nested);
  }
  for (ir::Operand& result : mapped.results) result = Map(result);
  return mapped;
}

void Rewriter::Copy(const ir::Binding& binding) {
  ir::Binding copy = binding;
  for (ir::Operand& arg : copy.args) arg = Map(arg);
  for (ir::Block& nested : copy.blocks) nested = MapBlock(nested);
  built_.body.bindings.push_back(std::move(copy));
}

absl::StatusOr<ir::VarPtr> Rewriter::Emit(const std::string& op, std::vector<ir::Operand> args, ir::Attrs attrs,
                                          const std::string& location) {
  return ir::Builder(&built_).Call(op, std::move(args), std::move(attrs), location);
}

ir::Function Rewriter::Finish() {
  built_.params = function_.params;
  built_.attrs = function_.attrs;
  built_.result_names = function_.result_names;
  for (const ir::Operand& result : function_.body.results) built_.body.results.push_back(Map(result));
  return std::move(built_);
}

}  // namespace inlay::passes
