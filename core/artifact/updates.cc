#include "core/artifact/updates.h"

#include <algorithm>
#include <set>

#include "core/base/status_macros.h"
#include "core/ir/batch.h"
#include "core/ir/control_flow.h"
#include "core/ir/updates.h"

namespace inlay::artifact {
namespace {

using ir::Binding;

bool Reads(const std::vector<ir::Operand>& operands, const ir::Var* var) {
  return std::any_of(operands.begin(), operands.end(), [&](const ir::Operand& o) { return o.var.get() == var; });
}

bool Reads(const ir::Block& block, const ir::Var* var) {
  return Reads(block.results, var) || std::any_of(block.bindings.begin(), block.bindings.end(), [&](const Binding& b) {
           return Reads(b.args, var) || std::any_of(b.blocks.begin(), b.blocks.end(),
                                                    [&](const ir::Block& nested) { return Reads(nested, var); });
         });
}

class Planner {
 public:
  Planner(const ir::IRModule& module, const FunctionTable& functions)
      : module_(module), functions_(functions), main_(module.functions.at("main")) {}

  absl::StatusOr<std::vector<Update>> Run() {
    std::vector<Update> updates(main_.body.results.size());
    INLAY_ASSIGN_OR_RETURN(const std::vector<int64_t> inputs, ir::UpdatedInputs(main_));
    std::set<const ir::Var*> updated;
    for (int64_t input : inputs) {
      if (input >= 0) updated.insert(main_.params[input].get());
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] < 0) continue;
      updates[i].input = static_cast<int>(inputs[i]);
      const ir::Var* input = main_.params[inputs[i]].get();
      const ir::Var* result = main_.body.results[i].var.get();
      updates[i].staged = result != input && updated.count(result) > 0;
      INLAY_ASSIGN_OR_RETURN(updates[i].direct, MayWrite(result, input));
    }
    return updates;
  }

 private:
  // Whether the call that makes `result` may write it to the memory of `input`.
  absl::StatusOr<bool> MayWrite(const ir::Var* result, const ir::Var* input) const {
    if (Reads(main_.body.results, input)) return false;  // copied at the end
    const std::vector<Binding>& bindings = main_.body.bindings;
    int output = 0;
    auto made = [&](const Binding& b) { return b.var.get() == result; };
    auto maker = std::find_if(bindings.begin(), bindings.end(), made);
    if (maker != bindings.end() && maker->kind == Binding::Kind::kTupleGetItem) {
      output = maker->index;
      result = maker->args[0].var.get();
      maker = std::find_if(bindings.begin(), bindings.end(), made);
    }
    if (maker == bindings.end() || maker->kind != Binding::Kind::kCallFunction || ir::IsWhile(*maker) ||
        maker->attrs.Has(ir::kMicroBatches)) {
      return false;
    }
    for (auto b = bindings.begin(); b != bindings.end(); ++b) {
      const bool reads = Reads(b->args, input) || std::any_of(b->blocks.begin(), b->blocks.end(),
                                                              [&](const ir::Block& n) { return Reads(n, input); });
      // What is in a tuple may be read later; parts of a batch take turns.
      const bool at_once = b->kind != Binding::Kind::kTuple && !b->attrs.Has(ir::kMicroBatches);
      if (reads && b != maker && (b > maker || !at_once)) return false;
    }
    const auto callee = module_.functions.find(maker->callee);
    if (callee == module_.functions.end() || callee->second.attrs.StringOr("backend", "").empty()) return false;
    INLAY_ASSIGN_OR_RETURN(const proto::PrimitiveFunction* function,
                           functions_.Find(callee->second.attrs.StringOr("symbol", maker->callee), callee->second));
    for (size_t arg = 0; arg < maker->args.size(); ++arg) {
      if (maker->args[arg].var.get() != input) continue;
      if (output >= function->in_place_size() || function->in_place(output) != static_cast<int>(arg)) return false;
    }
    return true;
  }

  const ir::IRModule& module_;
  const FunctionTable& functions_;
  const ir::Function& main_;
};

}  // namespace

absl::StatusOr<std::vector<Update>> PlanUpdates(const ir::IRModule& partitioned, const FunctionTable& functions) {
  if (partitioned.functions.count("main") == 0) {
    return absl::InvalidArgumentError("the module has no function main");
  }
  return Planner(partitioned, functions).Run();
}

}  // namespace inlay::artifact
