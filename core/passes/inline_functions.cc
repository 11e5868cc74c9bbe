// Replaces calls of the module's functions by their bodies, and an if whose condition is a literal by the block it
// takes. Leaves in the module "main" and the bodies of whiles (core/ir/control_flow.h).
//
//   fn @f(%a: f32[2]) { %0 = exp(%a); return %0 }
//   fn @main(%x: f32[2]) { %0 = @f(%x); %1 = @f(%0); return %1 }
// becomes
//   fn @main(%x: f32[2]) { %0 = exp(%x); %1 = exp(%0); return %1 }
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/control_flow.h"
#include "core/ir/infer_binding.h"
#include "core/ir/literal.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Block;
using ir::Operand;

// Functions that call each other twice, 64 deep, would otherwise fill any memory.
constexpr int64_t kMaxBindings = 200000;

class Inliner {
 public:
  explicit Inliner(const ir::IRModule& module) : module_(module) {}

  absl::StatusOr<std::map<std::string, ir::Function>> Run() {
    std::map<std::string, ir::Function> functions;
    bodies_ = {"main"};
    for (size_t i = 0; i < bodies_.size(); ++i) {  // grows
      const std::string name = bodies_[i];
      if (functions.count(name) > 0) continue;
      const ir::Function& function = module_.functions.at(name);
      ir::Function& out = functions[name] = function;
      out.body = Block();
      Scope scope;
      INLAY_RETURN_IF_ERROR(CopyBlock(function.body, /*fresh=*/false, "", &scope, &out.body));
    }
    return functions;
  }

 private:
  // The values of the Vars of one activation of a function.
  using Scope = absl::flat_hash_map<const ir::Var*, Operand>;

  static Operand Map(const Operand& operand, const Scope& scope) {
    if (!operand.is_var()) return operand;
    auto it = scope.find(operand.var.get());
    return it == scope.end() ? operand : it->second;
  }

  static std::vector<Operand> Map(const std::vector<Operand>& operands, const Scope& scope) {
    std::vector<Operand> out;
    out.reserve(operands.size());
    for (const Operand& operand : operands) out.push_back(Map(operand, scope));
    return out;
  }

  // Appends what `block` does to `out`, and its results. `fresh`: new Vars, since the block may be copied again.
  absl::Status CopyBlock(const Block& block, bool fresh, const std::string& caller, Scope* scope, Block* out) {
    for (const Binding& binding : block.bindings) {
      if ((count_ += ir::NumTensors(binding.var->type)) > kMaxBindings) {
        return absl::InvalidArgumentError(
            absl::StrCat("the functions of the module come to more than ", kMaxBindings, " values when inlined"));
      }
      INLAY_RETURN_IF_ERROR(CopyBinding(binding, fresh, caller, scope, out));
    }
    out->results = Map(block.results, *scope);
    return absl::OkStatus();
  }

  absl::Status CopyBinding(const Binding& binding, bool fresh, const std::string& caller, Scope* scope, Block* out) {
    std::vector<Operand> args = Map(binding.args, *scope);
    if (ir::IsWhile(binding)) {
      if (binding.callee == "main" || binding.callee == "transform_params" ||
          absl::StartsWith(binding.callee, "inlay_")) {
        return absl::InvalidArgumentError(
            absl::StrCat("a while's body may not be called '", binding.callee, "', which later stages use"));
      }
      bodies_.push_back(binding.callee);
    }
    if (binding.kind == Binding::Kind::kCallFunction && !ir::IsWhile(binding)) {
      const ir::Function& callee = module_.functions.at(binding.callee);
      Scope inner;
      for (size_t i = 0; i < args.size(); ++i) inner.emplace(callee.params[i].get(), args[i]);
      const std::string where = binding.location.empty() ? caller : binding.location;
      Block body;
      body.bindings.swap(out->bindings);
      INLAY_RETURN_IF_ERROR(CopyBlock(callee.body, true, where, &inner, &body));
      out->bindings.swap(body.bindings);
      return DefineResults(binding, fresh, std::move(body.results), scope, out);
    }
    if (binding.kind == Binding::Kind::kIf && args[0].is_literal()) {
      const bool taken = ir::ElementAsInt(ir::DType::kBool, args[0].constant->data, 0) != 0;
      Block body;
      body.bindings.swap(out->bindings);
      INLAY_RETURN_IF_ERROR(CopyBlock(binding.blocks[taken ? 0 : 1], fresh, caller, scope, &body));
      out->bindings.swap(body.bindings);
      return DefineResults(binding, fresh, std::move(body.results), scope, out);
    }
    Binding copy = binding;
    copy.args = std::move(args);
    if (copy.location.empty()) copy.location = caller;
    for (size_t i = 0; i < binding.blocks.size(); ++i) {
      copy.blocks[i] = Block();
      INLAY_RETURN_IF_ERROR(CopyBlock(binding.blocks[i], fresh, caller, scope, &copy.blocks[i]));
    }
    if (fresh) {
      copy.var = ir::MakeVar(binding.var->name, binding.var->type);
      scope->insert_or_assign(binding.var.get(), Operand(copy.var));
    }
    out->bindings.push_back(std::move(copy));
    return absl::OkStatus();
  }

  // The Var of the call stands for the one result, or for a tuple of the several.
  absl::Status DefineResults(const Binding& binding, bool fresh, std::vector<Operand> results, Scope* scope,
                             Block* out) {
    if (results.size() == 1) {
      scope->insert_or_assign(binding.var.get(), results[0]);
      return absl::OkStatus();
    }
    Binding tuple;
    tuple.kind = Binding::Kind::kTuple;
    tuple.var = fresh ? ir::MakeVar(binding.var->name, binding.var->type) : binding.var;
    tuple.args = std::move(results);
    tuple.location = binding.location;
    scope->insert_or_assign(binding.var.get(), Operand(tuple.var));
    out->bindings.push_back(std::move(tuple));
    return absl::OkStatus();
  }

  const ir::IRModule& module_;
  std::vector<std::string> bodies_;  // functions that stay
  int64_t count_ = 0;
};

class InlineFunctionsPass : public Pass {
 public:
  absl::string_view name() const override { return "inline_functions"; }
  int min_opt_level() const override { return 0; }
  absl::StatusOr<ir::IRModule> Run(ir::IRModule module, const target::CompilationConfig&) const override {
    INLAY_ASSIGN_OR_RETURN(auto functions, Inliner(module).Run());
    module.functions = std::move(functions);
    return module;
  }
};

}  // namespace

std::unique_ptr<Pass> InlineFunctions() { return std::make_unique<InlineFunctionsPass>(); }

}  // namespace inlay::passes
