// Makes functions of what control flow chooses between, so that each is normalised and partitioned as main is.
//
//   %r = if(%c) { %0 = exp(%x); return %0 } else { return %x }
// becomes
//   %r = if(%c) { %0 = @main.then0(%x); return %0 } else { return %x }
//   fn @main.then0(%x: f32[2]) { %0 = exp(%x); return %0 }
//
// Executor vm alone has control flow: for the others it is refused here, by the node's name.
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/control_flow.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Block;
using ir::Operand;
using ir::VarPtr;

absl::Status CheckNone(const Block& block) {
  for (const Binding& binding : block.bindings) {
    const char* what = binding.kind == Binding::Kind::kIf           ? "an If whose condition is not constant"
                       : binding.kind == Binding::Kind::kCallPacked ? "call_packed"
                       : ir::IsWhile(binding)                       ? "a loop of an unknown number of turns"
                                                                    : nullptr;
    if (what == nullptr) continue;
    return absl::UnimplementedError(absl::StrCat("executors graph and aot have no control flow, and this is ", what,
                                                 ": ", Describe(binding), "; use executor vm"));
  }
  return absl::OkStatus();
}

// The Vars that a block uses and does not define, in order of first use.
class FreeVars {
 public:
  explicit FreeVars(const Block& block) { Visit(block); }
  const std::vector<VarPtr>& vars() const { return vars_; }

 private:
  void Use(const Operand& operand) {
    if (operand.is_var() && !defined_.contains(operand.var.get()) && seen_.insert(operand.var.get()).second) {
      vars_.push_back(operand.var);
    }
  }
  void Visit(const Block& block) {
    for (const Binding& binding : block.bindings) {
      for (const Operand& arg : binding.args) Use(arg);
      for (const Block& nested : binding.blocks) Visit(nested);
      defined_.insert(binding.var.get());
    }
    for (const Operand& result : block.results) Use(result);
  }
  absl::flat_hash_set<const ir::Var*> defined_, seen_;
  std::vector<VarPtr> vars_;
};

using Renaming = absl::flat_hash_map<const ir::Var*, VarPtr>;

void Rename(const Renaming& renaming, Operand* operand) {
  if (!operand->is_var()) return;
  const auto it = renaming.find(operand->var.get());
  if (it != renaming.end()) *operand = it->second;
}

void Rename(const Renaming& renaming, Block* block) {
  for (Binding& binding : block->bindings) {
    for (Operand& arg : binding.args) Rename(renaming, &arg);
    for (Block& nested : binding.blocks) Rename(renaming, &nested);
  }
  for (Operand& result : block->results) Rename(renaming, &result);
}

class Outliner {
 public:
  explicit Outliner(ir::IRModule* module) : module_(*module) {}

  absl::Status Run() {
    std::vector<std::string> names;
    for (const auto& [name, function] : module_.functions) names.push_back(name);
    for (const std::string& name : names) {
      ir::Function function = std::move(module_.functions.at(name));
      INLAY_RETURN_IF_ERROR(Annotate(OutlineIn(name, &function.body), absl::StrCat("function '", name, "'")));
      module_.functions[name] = std::move(function);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status OutlineIn(const std::string& name, Block* block) {
    for (Binding& binding : block->bindings) {
      for (size_t i = 0; i < binding.blocks.size(); ++i) {
        INLAY_RETURN_IF_ERROR(OutlineIn(name, &binding.blocks[i]));
        if (binding.blocks[i].bindings.empty()) continue;
        INLAY_RETURN_IF_ERROR(Annotate(
            Outline(FreshName(absl::StrCat(name, i == 0 ? ".then" : ".else")), binding.location, &binding.blocks[i]),
            Describe(binding)));
      }
    }
    return absl::OkStatus();
  }

  std::string FreshName(const std::string& stem) {
    std::string name;
    do {
      name = absl::StrCat(stem, count_++);
    } while (module_.functions.count(name) > 0);
    return name;
  }

  // The block becomes a call.
  absl::Status Outline(const std::string& name, const std::string& location, Block* block) {
    Binding call;
    call.kind = Binding::Kind::kCallFunction;
    call.callee = name;
    call.location = location;
    ir::Function function;
    Renaming renaming;
    const FreeVars free(*block);
    for (const VarPtr& var : free.vars()) {
      if (!var->type.is_tensor()) {
        return absl::UnimplementedError(absl::StrCat("the tuple %", var->name, " is used in a branch; take its items"));
      }
      VarPtr param = ir::MakeVar(var->name, var->type);
      renaming[var.get()] = param;
      function.params.push_back(std::move(param));
      call.args.emplace_back(var);
    }
    function.body = std::move(*block);
    Rename(renaming, &function.body);
    *block = Block();
    std::vector<ir::Type> types;
    for (const Operand& result : function.body.results) types.push_back(result.type());
    module_.functions[name] = std::move(function);
    if (types.size() == 1) {
      call.var = ir::MakeVar("", types[0]);
      block->results = {call.var};
      block->bindings.push_back(std::move(call));
      return absl::OkStatus();
    }
    call.var = ir::MakeVar("", ir::TupleType{types});
    const VarPtr tuple = call.var;
    block->bindings.push_back(std::move(call));
    for (size_t i = 0; i < types.size(); ++i) {
      Binding item;
      item.kind = Binding::Kind::kTupleGetItem;
      item.var = ir::MakeVar("", types[i]);
      item.args = {tuple};
      item.index = static_cast<int>(i);
      block->results.emplace_back(item.var);
      block->bindings.push_back(std::move(item));
    }
    return absl::OkStatus();
  }

  ir::IRModule& module_;
  int count_ = 0;
};

class OutlineControlFlowPass : public Pass {
 public:
  absl::string_view name() const override { return "outline_control_flow"; }
  int min_opt_level() const override { return 0; }
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig& config) const override {
    if (config.executor.kind != target::ExecutorKind::kVm) {
      INLAY_RETURN_IF_ERROR(CheckNone(module.functions.at("main").body));
      return module;
    }
    INLAY_RETURN_IF_ERROR(Outliner(&module).Run());
    return module;
  }
};

}  // namespace

std::unique_ptr<Pass> OutlineControlFlow() { return std::make_unique<OutlineControlFlowPass>(); }

}  // namespace inlay::passes
