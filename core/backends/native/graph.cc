#include "core/backends/native/graph.h"

#include <map>
#include <unordered_map>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/ir/open_symbols.h"

namespace inlay::native {

int64_t Product(const std::vector<int64_t>& shape, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= shape[i];
  return n;
}
int64_t Product(const std::vector<int64_t>& shape) { return Product(shape, 0, static_cast<int>(shape.size())); }

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

int64_t Tensor::NumElements() const { return Product(shape); }
int64_t Tensor::NumBytes() const { return NumElements() * ir::ByteSize(dtype); }
const Tensor* Tensor::Base() const {
  const Tensor* t = this;
  while (t->alias_of != nullptr) t = t->alias_of;
  return t;
}

namespace {

class GraphBuilder {
 public:
  absl::StatusOr<Graph> Build(const ir::Function& function) {
    graph_.symbols = ir::OpenSymbols(function);
    for (const ir::VarPtr& param : function.params) {
      if (!param->type.is_tensor()) return absl::InvalidArgumentError("native: a partition's parameter is a tuple");
      Tensor* t = NewTensor(param->type.tensor());
      t->param = static_cast<int>(graph_.params.size());
      graph_.params.push_back(t);
      values_[param.get()] = {t};
    }
    for (const ir::Binding& binding : function.body.bindings) {
      INLAY_RETURN_IF_ERROR(Annotate(AddBinding(binding), ir::Describe(binding)));
    }
    for (const ir::Operand& result : function.body.results) {
      INLAY_ASSIGN_OR_RETURN(std::vector<Tensor*> tensors, Resolve(result));
      for (Tensor* t : tensors) {
        t->is_result = true;
        graph_.results.push_back(t);
      }
    }
    graph_.param_is_constant.resize(graph_.params.size());
    for (int64_t i : function.attrs.IntsOr("constant_params", {})) {
      if (i >= 0 && i < static_cast<int64_t>(graph_.params.size())) graph_.param_is_constant[i] = true;
    }
    return std::move(graph_);
  }

 private:
  Tensor* NewTensor(const ir::TensorType& type) {
    auto tensor = std::make_unique<Tensor>();
    tensor->id = static_cast<int>(graph_.tensors.size());
    tensor->type = type;
    tensor->dtype = type.dtype;
    for (const ir::Dim& dim : type.dims) tensor->dims.emplace_back(dim);
    if (type.is_static()) tensor->shape = type.Shape();
    graph_.tensors.push_back(std::move(tensor));
    return graph_.tensors.back().get();
  }

  absl::StatusOr<std::vector<Tensor*>> Resolve(const ir::Operand& operand) {
    if (operand.is_var()) {
      auto found = values_.find(operand.var.get());
      if (found == values_.end()) return absl::InvalidArgumentError("native: a Var is used before its definition");
      return found->second;
    }
    if (operand.is_weight()) return absl::InvalidArgumentError("native: a weight inside a partition (not a parameter)");
    auto [found, added] = literals_.emplace(operand.constant.get(), nullptr);
    if (added) {
      found->second = NewTensor(operand.constant->type);
      found->second->literal = operand.constant.get();
    }
    return std::vector<Tensor*>{found->second};
  }

  absl::Status AddBinding(const ir::Binding& binding) {
    std::vector<std::vector<Tensor*>> args;
    for (const ir::Operand& arg : binding.args) {
      INLAY_ASSIGN_OR_RETURN(std::vector<Tensor*> tensors, Resolve(arg));
      args.push_back(std::move(tensors));
    }
    std::vector<Tensor*>& value = values_[binding.var.get()];
    switch (binding.kind) {
      case ir::Binding::Kind::kTuple:
        for (const auto& arg : args) value.insert(value.end(), arg.begin(), arg.end());
        return absl::OkStatus();
      case ir::Binding::Kind::kTupleGetItem:
        if (binding.index < 0 || binding.index >= static_cast<int>(args[0].size())) {
          return absl::InvalidArgumentError("native: the tuple has no such item");
        }
        value = {args[0][binding.index]};
        return absl::OkStatus();
      case ir::Binding::Kind::kCall:
        break;
      default:
        return absl::UnimplementedError("native: a partition holds calls of operators only");
    }
    if (binding.callee == "identity") {
      value = args[0];
      return absl::OkStatus();
    }
    auto node = std::make_unique<Node>();
    node->id = static_cast<int>(graph_.nodes.size());
    node->op = binding.callee;
    node->attrs = &binding.attrs;
    node->binding = &binding;
    for (const auto& arg : args) {
      if (arg.size() != 1) return absl::InvalidArgumentError("native: a tuple as an operator's argument");
      node->inputs.push_back(arg[0]);
      arg[0]->users.push_back(node.get());
    }
    std::vector<ir::TensorType> types;
    if (binding.var->type.is_tensor()) {
      types.push_back(binding.var->type.tensor());
    } else {
      for (const ir::Type& field : binding.var->type.tuple().fields) types.push_back(field.tensor());
    }
    for (const ir::TensorType& type : types) {
      Tensor* t = NewTensor(type);
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

absl::StatusOr<Graph> Graph::Build(const ir::Function& function) { return GraphBuilder().Build(function); }

}  // namespace inlay::native
