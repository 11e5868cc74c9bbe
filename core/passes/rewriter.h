// Rewriter: what most passes are made of. Walks a function's bindings in order and builds a new function, in which a
// Var can stand for another operand.
//
//   Rewriter rewriter(function);
//   for (const ir::Binding& binding : function.body.bindings) {
//     if (binding.IsCall("identity")) {
//       rewriter.Replace(binding.var, rewriter.Map(binding.args[0]));
//     } else {
//       rewriter.Copy(binding);
//     }
//   }
//   return rewriter.Finish();
//
// One thread; the function must outlive it.
#ifndef INLAY_CORE_PASSES_REWRITER_H_
#define INLAY_CORE_PASSES_REWRITER_H_

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::passes {

class Rewriter {
 public:
  explicit Rewriter(const ir::Function& function) : function_(function) {}

  // What an operand of the old function is in the new one.
  ir::Operand Map(const ir::Operand& old) const;
  // From now on `old` is `value` (an operand of the new function, of the same type).
  void Replace(const ir::VarPtr& old, ir::Operand value) { replaced_.insert_or_assign(old.get(), std::move(value)); }
  // The same binding with mapped operands (in nested blocks too). Keeps the Var: its type must not have changed.
  void Copy(const ir::Binding& binding);
  // A new binding; its type is inferred.
  absl::StatusOr<ir::VarPtr> Emit(const std::string& op, std::vector<ir::Operand> args, ir::Attrs attrs = {},
                                  const std::string& location = "");

  // Results mapped; params, attributes and names as they were.
  ir::Function Finish();

 private:
  ir::Block MapBlock(const ir::Block& block) const;

  const ir::Function& function_;
  ir::Function built_;
  std::unordered_map<const ir::Var*, ir::Operand> replaced_;
};

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_REWRITER_H_
