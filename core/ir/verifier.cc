#include "core/ir/verifier.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/infer_binding.h"
#include "core/ir/required_extents.h"
#include "core/ir/updates.h"

namespace inlay::ir {
namespace {

absl::Status CheckConstant(const Constant& constant) {
  if (!constant.type.is_static()) {
    return absl::InvalidArgumentError(absl::StrCat("the constant '", constant.name, "' has a symbolic extent"));
  }
  INLAY_RETURN_IF_ERROR(CheckTensorType(constant.type));
  if (!constant.is_weight && static_cast<int64_t>(constant.data.size()) != constant.type.NumBytes()) {
    return absl::InvalidArgumentError(absl::StrCat("the literal '", constant.name, "' has ", constant.data.size(),
                                                   " bytes; its type ", constant.type.ToString(), " has ",
                                                   constant.type.NumBytes()));
  }
  return absl::OkStatus();
}

class FunctionVerifier {
 public:
  explicit FunctionVerifier(const SignatureLookup& lookup) : lookup_(lookup) {}

  absl::Status Run(const Function& function) {
    for (const VarPtr& param : function.params) {
      if (param == nullptr) return absl::InvalidArgumentError("a parameter is null");
      if (!param->type.is_tensor()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the parameter %", param->name, " is a tuple; it must be a tensor"));
      }
      INLAY_RETURN_IF_ERROR(CheckTensorType(param->type.tensor()));
      INLAY_RETURN_IF_ERROR(Define(param));
    }
    if (!function.result_names.empty() && function.result_names.size() != function.body.results.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(function.result_names.size(), " names for ", function.body.results.size(), " results"));
    }
    return CheckBlock(function.body);
  }

 private:
  absl::Status Define(const VarPtr& var) {
    if (!defined_.insert(var.get()).second) {
      return absl::InvalidArgumentError(absl::StrCat("%", var->name, " is defined twice"));
    }
    visible_.insert(var.get());
    return absl::OkStatus();
  }

  absl::Status CheckOperand(const Operand& operand) {
    if (operand.constant != nullptr) {
      if (!checked_constants_.insert(operand.constant.get()).second) return absl::OkStatus();
      return CheckConstant(*operand.constant);
    }
    if (operand.var == nullptr) return absl::InvalidArgumentError("an argument is null");
    if (visible_.contains(operand.var.get())) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "%", operand.var->name,
        defined_.contains(operand.var.get()) ? " is used outside of its block" : " is used before it is defined"));
  }

  absl::Status CheckBlock(const Block& block) {
    std::vector<const Var*> local;
    for (const Binding& binding : block.bindings) {
      if (absl::Status status = CheckBinding(binding); !status.ok()) return Annotate(status, Describe(binding));
      local.push_back(binding.var.get());
    }
    for (const Operand& result : block.results) INLAY_RETURN_IF_ERROR(Annotate(CheckOperand(result), "results"));
    for (const Var* var : local) visible_.erase(var);
    return absl::OkStatus();
  }

  absl::Status CheckBinding(const Binding& binding) {
    if (binding.var == nullptr) return absl::InvalidArgumentError("it defines no Var");
    for (const Operand& arg : binding.args) INLAY_RETURN_IF_ERROR(CheckOperand(arg));
    for (const Block& nested : binding.blocks) INLAY_RETURN_IF_ERROR(CheckBlock(nested));
    // A copy without the blocks, which can be large; only an if looks at them.
    absl::StatusOr<Type> type = Type();
    if (binding.kind == Binding::Kind::kIf) {
      Binding copy = binding;
      type = InferBinding(&copy, lookup_, &binding.var->type);
    } else {
      scratch_.kind = binding.kind;
      scratch_.callee = binding.callee;
      scratch_.args = binding.args;
      scratch_.attrs = binding.attrs;
      scratch_.index = binding.index;
      type = InferBinding(&scratch_, lookup_, &binding.var->type);
    }
    INLAY_RETURN_IF_ERROR(type.status());
    if (*type != binding.var->type) {
      return absl::InvalidArgumentError(absl::StrCat("%", binding.var->name, " is declared ",
                                                     binding.var->type.ToString(), "; inference gives ",
                                                     type->ToString()));
    }
    return Define(binding.var);
  }

  const SignatureLookup& lookup_;
  absl::flat_hash_set<const Var*> defined_, visible_;
  absl::flat_hash_set<const Constant*> checked_constants_;
  Binding scratch_;
};

void CollectCalls(const Block& block, std::vector<std::string>* callees) {
  for (const Binding& binding : block.bindings) {
    if (binding.kind == Binding::Kind::kCallFunction) callees->push_back(binding.callee);
    for (const Block& nested : binding.blocks) CollectCalls(nested, callees);
  }
}

}  // namespace

absl::Status Verify(const IRModule& module) {
  if (module.functions.count("main") == 0) {
    return absl::InvalidArgumentError("the module has no function 'main', which is its entry");
  }
  std::map<std::string, std::vector<std::string>> calls;
  std::map<std::string, Signature> signatures;
  for (const auto& [name, function] : module.functions) {
    CollectCalls(function.body, &calls[name]);
    signatures[name] = SignatureOf(function);
  }
  INLAY_RETURN_IF_ERROR(CallOrder(calls).status());
  const SignatureLookup lookup = [&](const std::string& name) -> const Signature* {
    auto it = signatures.find(name);
    return it == signatures.end() ? nullptr : &it->second;
  };
  for (const auto& [name, function] : module.functions) {
    INLAY_RETURN_IF_ERROR(Annotate(FunctionVerifier(lookup).Run(function), absl::StrCat("function '", name, "'")));
  }
  INLAY_RETURN_IF_ERROR(RequiredExtents(module.functions.at("main")).status());
  return UpdatedInputs(module.functions.at("main")).status();
}

absl::Status Verify(const Function& function) {
  const SignatureLookup none = [](const std::string&) -> const Signature* { return nullptr; };
  return FunctionVerifier(none).Run(function);
}

}  // namespace inlay::ir
