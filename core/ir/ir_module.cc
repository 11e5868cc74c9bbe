#include "core/ir/ir_module.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/ir/literal.h"
#include "core/ir/op_registry.h"

namespace inlay::ir {

VarPtr MakeVar(std::string name, Type type) {
  return std::make_shared<const Var>(Var{std::move(name), std::move(type)});
}

ConstantPtr MakeWeight(TensorType type, Digest digest, std::string name) {
  auto constant = std::make_shared<Constant>();
  constant->type = std::move(type);
  constant->name = std::move(name);
  constant->is_weight = true;
  constant->digest = digest;
  return constant;
}

ConstantPtr MakeLiteral(TensorType type, std::string data, std::string name) {
  auto constant = std::make_shared<Constant>();
  constant->type = std::move(type);
  constant->name = std::move(name);
  constant->data = std::move(data);
  return constant;
}

ConstantPtr MakeScalar(DType dtype, double value) {
  std::string data;
  AppendDouble(dtype, value, &data);
  return MakeLiteral(TensorType{dtype, {}}, std::move(data));
}

std::string Describe(const Binding& binding) {
  std::string text = binding.var == nullptr ? "?" : absl::StrCat("%", binding.var->name);
  switch (binding.kind) {
    case Binding::Kind::kCall:
    case Binding::Kind::kCallFunction:
      absl::StrAppend(&text, " = ", binding.callee, "(...)");
      break;
    case Binding::Kind::kCallPacked:
      absl::StrAppend(&text, " = call_packed ", binding.callee, "(...)");
      break;
    case Binding::Kind::kTuple:
      absl::StrAppend(&text, " = tuple(...)");
      break;
    case Binding::Kind::kTupleGetItem:
      absl::StrAppend(&text, " = item ", binding.index);
      break;
    case Binding::Kind::kIf:
      absl::StrAppend(&text, " = if");
      break;
  }
  if (!binding.location.empty()) absl::StrAppend(&text, " at '", binding.location, "'");
  return text;
}

IRModule::IRModule() {
  static const auto* default_config = new std::shared_ptr<const target::CompilationConfig>(
      std::make_shared<const target::CompilationConfig>(target::CompilationConfig::Default()));
  config_ = *default_config;
}

IRModule IRModule::WithAttr(std::string name, AttrValue value) const {
  IRModule copy = *this;
  copy.attrs.Set(std::move(name), std::move(value));
  return copy;
}

VarPtr Builder::Param(std::string name, TensorType type) {
  function_->params.push_back(MakeVar(std::move(name), std::move(type)));
  return function_->params.back();
}

absl::StatusOr<VarPtr> Builder::Call(absl::string_view op, std::vector<Operand> args, Attrs attrs,
                                     std::string location) {
  absl::StatusOr<Type> type = OpRegistry::Global().Infer(op, args, &attrs);
  if (!type.ok()) {
    return Annotate(type.status(), location.empty() ? std::string(op) : absl::StrCat(op, " at '", location, "'"));
  }
  Binding binding;
  binding.var = MakeVar(absl::StrCat("v", function_->body.bindings.size()), *std::move(type));
  binding.callee = std::string(op);
  binding.args = std::move(args);
  binding.attrs = std::move(attrs);
  binding.location = std::move(location);
  function_->body.bindings.push_back(std::move(binding));
  return function_->body.bindings.back().var;
}

absl::StatusOr<VarPtr> Builder::GetItem(VarPtr tuple, int index) {
  if (!tuple->type.is_tuple() || index < 0 || index >= static_cast<int>(tuple->type.tuple().fields.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("no item ", index, " in %", tuple->name, ": ", tuple->type.ToString()));
  }
  Binding binding;
  binding.kind = Binding::Kind::kTupleGetItem;
  binding.index = index;
  binding.var = MakeVar(absl::StrCat("v", function_->body.bindings.size()), tuple->type.tuple().fields[index]);
  binding.args = {std::move(tuple)};
  function_->body.bindings.push_back(std::move(binding));
  return function_->body.bindings.back().var;
}

void Builder::Return(std::vector<Operand> results) { function_->body.results = std::move(results); }

}  // namespace inlay::ir
