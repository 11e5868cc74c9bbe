#include "core/ir/infer_binding.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/control_flow.h"
#include "core/ir/op_registry.h"

namespace inlay::ir {
namespace {

bool IsCondition(const Type& type) {
  return type.is_tensor() && type.tensor().dtype == DType::kBool && type.tensor().is_static() &&
         type.tensor().NumElements() == 1;
}

absl::Status CheckWhile(const Binding& binding, const Signature& body) {
  const std::vector<Type> results =
      body.result.is_tuple() ? body.result.tuple().fields : std::vector<Type>{body.result};
  if (results.empty() || results.size() > body.params.size() || !IsCondition(results[0])) {
    return absl::InvalidArgumentError(
        absl::StrCat("a while's body '", binding.callee, "' gives ", body.result.ToString(),
                     "; it must give a bool with one element, and no more than it takes"));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == body.params[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("a while's body '", binding.callee, "' takes ",
                                                   body.params[i].ToString(), " and gives ", results[i].ToString(),
                                                   " at ", i, "; they must agree"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Type> InferFunctionCall(const Binding& binding, const SignatureLookup& lookup) {
  const Signature* signature = lookup(binding.callee);
  if (signature == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the module has no function '", binding.callee, "'"));
  }
  if (signature->params.size() != binding.args.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the function '", binding.callee, "' takes ",
                                                   signature->params.size(), " arguments, not ", binding.args.size()));
  }
  for (size_t i = 0; i < binding.args.size(); ++i) {
    if (binding.args[i].type() == signature->params[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("argument ", i, " is ", binding.args[i].type().ToString(),
                                                   "; the function '", binding.callee, "' takes ",
                                                   signature->params[i].ToString()));
  }
  if (IsWhile(binding)) INLAY_RETURN_IF_ERROR(CheckWhile(binding, *signature));
  return signature->result;
}

absl::StatusOr<Type> InferIf(const Binding& binding) {
  if (binding.args.size() != 1 || binding.blocks.size() != 2) {
    return absl::InvalidArgumentError("an if has one argument, the condition, and two blocks");
  }
  const Type condition = binding.args[0].type();
  if (!IsCondition(condition)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the condition is ", condition.ToString(), "; it must be a bool tensor with one element"));
  }
  const Block &then_block = binding.blocks[0], &else_block = binding.blocks[1];
  if (then_block.results.empty() || else_block.results.empty()) {
    return absl::InvalidArgumentError("a block of an if must have a result");
  }
  Type a = ResultType(then_block), b = ResultType(else_block);
  if (a != b || then_block.results.size() != else_block.results.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the two blocks of the if give ", a.ToString(), " and ", b.ToString(), "; they must agree"));
  }
  return a;
}

absl::Status CountLeaves(const Type& type, int depth, int* leaves) {
  if (type.is_tensor()) {
    if (++*leaves > kMaxTupleLeaves) {
      return absl::InvalidArgumentError(absl::StrCat("a tuple of more than ", kMaxTupleLeaves, " tensors"));
    }
    return absl::OkStatus();
  }
  if (depth >= kMaxTupleDepth) {
    return absl::InvalidArgumentError(absl::StrCat("tuples nested deeper than ", kMaxTupleDepth));
  }
  // An empty tuple counts too, so that the number of nodes is bounded, not only that of tensors.
  if (type.tuple().fields.empty()) return CountLeaves(Type(TensorType{}), depth, leaves);
  for (const Type& field : type.tuple().fields) INLAY_RETURN_IF_ERROR(CountLeaves(field, depth + 1, leaves));
  return absl::OkStatus();
}

// Colours: absent = not seen, false = under way, true = done.
absl::Status Visit(const std::string& name, int depth, const std::map<std::string, std::vector<std::string>>& calls,
                   std::map<std::string, bool>* done, std::vector<std::string>* order) {
  auto [it, fresh] = done->emplace(name, false);
  if (!fresh) {
    if (it->second) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the function '", name, "' calls itself, directly or through others"));
  }
  if (depth > kMaxCallDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("function calls are nested deeper than ", kMaxCallDepth, " at '", name, "'"));
  }
  for (const std::string& callee : calls.at(name)) {
    if (calls.count(callee) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the function '", name, "' calls '", callee, "', which the module does not have"));
    }
    INLAY_RETURN_IF_ERROR(Visit(callee, depth + 1, calls, done, order));
  }
  (*done)[name] = true;
  order->push_back(name);
  return absl::OkStatus();
}

}  // namespace

Type ResultType(const Block& block) {
  if (block.results.size() == 1) return block.results[0].type();
  TupleType tuple;
  for (const Operand& result : block.results) tuple.fields.push_back(result.type());
  return tuple;
}

Signature SignatureOf(const Function& function) {
  Signature signature;
  for (const VarPtr& param : function.params) signature.params.push_back(param->type);
  signature.result = ResultType(function.body);
  return signature;
}

absl::Status CheckTupleLimits(const Type& type) {
  int leaves = 0;
  return CountLeaves(type, 0, &leaves);
}

int64_t NumTensors(const Type& type) {
  if (type.is_tensor() || type.tuple().fields.empty()) return 1;
  int64_t n = 0;
  for (const Type& field : type.tuple().fields) n += NumTensors(field);
  return n;
}

absl::StatusOr<Type> InferBinding(Binding* binding, const SignatureLookup& lookup, const Type* declared) {
  switch (binding->kind) {
    case Binding::Kind::kCall:
      return OpRegistry::Global().Infer(binding->callee, binding->args, &binding->attrs);
    case Binding::Kind::kCallFunction:
      return InferFunctionCall(*binding, lookup);
    case Binding::Kind::kCallPacked:
      if (binding->callee.empty()) return absl::InvalidArgumentError("call_packed without the name of a function");
      if (declared == nullptr) return absl::InvalidArgumentError("call_packed without the type of its result");
      return *declared;
    case Binding::Kind::kTuple: {
      TupleType tuple;
      for (const Operand& arg : binding->args) tuple.fields.push_back(arg.type());
      Type type(std::move(tuple));
      INLAY_RETURN_IF_ERROR(CheckTupleLimits(type));
      return type;
    }
    case Binding::Kind::kTupleGetItem: {
      if (binding->args.size() != 1 || !binding->args[0].type().is_tuple()) {
        return absl::InvalidArgumentError("tuple_get_item takes one argument, a tuple");
      }
      const TupleType& tuple = binding->args[0].var->type.tuple();
      if (binding->index < 0 || binding->index >= static_cast<int>(tuple.fields.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("tuple_get_item ", binding->index, " of a tuple of ", tuple.fields.size()));
      }
      return tuple.fields[binding->index];
    }
    case Binding::Kind::kIf:
      return InferIf(*binding);
  }
  return absl::InternalError("a binding of an unknown kind");
}

absl::StatusOr<std::vector<std::string>> CallOrder(const std::map<std::string, std::vector<std::string>>& calls) {
  std::map<std::string, bool> done;
  std::vector<std::string> order;
  for (const auto& [name, callees] : calls) INLAY_RETURN_IF_ERROR(Visit(name, 0, calls, &done, &order));
  return order;
}

}  // namespace inlay::ir
