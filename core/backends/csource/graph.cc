#include "core/backends/csource/graph.h"

#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace inlay::csource {
namespace {

class Builder {
 public:
  absl::StatusOr<Graph> Run(const ir::Function& function) {
    for (const ir::VarPtr& param : function.params) {
      INLAY_ASSIGN_OR_RETURN(Tensor * t, NewTensor(param->type, absl::StrCat("parameter '", param->name, "'")));
      t->param = static_cast<int>(graph_.params.size());
      graph_.params.push_back(t);
      values_[param.get()] = {t};
    }
    for (const ir::Binding& binding : function.body.bindings) {
      INLAY_RETURN_IF_ERROR(Annotate(Add(binding), ir::Describe(binding)));
    }
    for (const ir::Operand& result : function.body.results) {
      INLAY_ASSIGN_OR_RETURN(std::vector<Tensor*> value, ValueOf(result));
      if (value.size() != 1) return absl::InvalidArgumentError("a tuple as a partition's result");
      value[0]->is_result = true;
      graph_.results.push_back(value[0]);
    }
    return std::move(graph_);
  }

 private:
  absl::StatusOr<Tensor*> NewTensor(const ir::Type& type, const std::string& what) {
    if (!type.is_tensor()) return absl::UnimplementedError(absl::StrCat(what, " is a tuple"));
    if (!type.tensor().is_static()) {
      return absl::UnimplementedError(absl::StrCat(what, " is ", type.ToString(), ": dimension '",
                                                   type.tensor().FirstSymbol(), "' is symbolic, C needs numbers"));
    }
    auto t = std::make_unique<Tensor>();
    t->id = static_cast<int>(graph_.tensors.size());
    t->dtype = type.tensor().dtype;
    t->shape = type.tensor().Shape();
    graph_.tensors.push_back(std::move(t));
    return graph_.tensors.back().get();
  }

  absl::StatusOr<std::vector<Tensor*>> ValueOf(const ir::Operand& operand) {
    if (operand.is_var()) {
      auto found = values_.find(operand.var.get());
      if (found == values_.end()) return absl::InvalidArgumentError("a value from outside of the partition");
      return found->second;
    }
    if (operand.is_weight()) return absl::InvalidArgumentError("a weight inside a partition; it must be a parameter");
    Tensor*& t = literals_[operand.constant.get()];
    if (t == nullptr) {
      INLAY_ASSIGN_OR_RETURN(t, NewTensor(operand.type(), "a literal"));
      t->literal = operand.constant.get();
    }
    return std::vector<Tensor*>{t};
  }

  absl::Status Add(const ir::Binding& binding) {
    std::vector<std::vector<Tensor*>> args;
    for (const ir::Operand& arg : binding.args) {
      INLAY_ASSIGN_OR_RETURN(std::vector<Tensor*> value, ValueOf(arg));
      args.push_back(std::move(value));
    }
    std::vector<Tensor*>& value = values_[binding.var.get()];
    if (binding.kind == ir::Binding::Kind::kTuple) {
      for (const auto& arg : args) value.insert(value.end(), arg.begin(), arg.end());
      return absl::OkStatus();
    }
    if (binding.kind == ir::Binding::Kind::kTupleGetItem) {
      if (binding.index < 0 || binding.index >= static_cast<int>(args[0].size())) {
        return absl::InvalidArgumentError("there is no such tuple item");
      }
      value = {args[0][binding.index]};
      return absl::OkStatus();
    }
    if (binding.kind != ir::Binding::Kind::kCall) {
      return absl::UnimplementedError("a partition holds calls of operators only");
    }
    auto node = std::make_unique<Node>();
    node->id = static_cast<int>(graph_.nodes.size());
    node->op = binding.callee;
    node->binding = &binding;
    for (const auto& arg : args) {
      if (arg.size() != 1) return absl::InvalidArgumentError("a tuple as an operator's argument");
      node->inputs.push_back(arg[0]);
      arg[0]->users.push_back(node.get());
    }
    std::vector<ir::Type> types = {binding.var->type};
    if (binding.var->type.is_tuple()) types = binding.var->type.tuple().fields;
    for (const ir::Type& type : types) {
      INLAY_ASSIGN_OR_RETURN(Tensor * t, NewTensor(type, "the result"));
      t->producer = node.get();
      node->outputs.push_back(t);
      value.push_back(t);
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  Graph graph_;
  std::unordered_map<const ir::Var*, std::vector<Tensor*>> values_;
  std::unordered_map<const ir::Constant*, Tensor*> literals_;
};

}  // namespace

int64_t Tensor::size() const { return Product(shape, 0, rank()); }

absl::StatusOr<Graph> Graph::Build(const ir::Function& function) { return Builder().Run(function); }

int64_t Product(const Shape& shape, int begin, int end) {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= shape[i];
  return product;
}

Shape StridesOf(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

}  // namespace inlay::csource
