#include "core/backend/testing/reference.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "core/backend/testing/reference_ops.h"
#include "core/ir/literal.h"

namespace inlay::backend::testing {
namespace {

const std::map<std::string, RefOp>& Ops() {
  static const auto* const kOps = [] {
    auto* ops = new std::map<std::string, RefOp>;
    AddElementwiseOps(ops);
    AddReductionOps(ops);
    AddContractionOps(ops);
    AddMovementOps(ops);
    return ops;
  }();
  return *kOps;
}

void RoundValues(RefTensor* tensor) {
  if (!ir::IsFloat(tensor->type.dtype)) return;
  for (double& value : tensor->values) value = ir::RoundTo(tensor->type.dtype, value);
}

}  // namespace

int64_t Count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

void ForEach(const Shape& shape, const std::function<void(const Index&)>& f) {
  Index index(shape.size(), 0);
  for (int64_t left = Count(shape); left > 0; --left) {
    f(index);
    for (int axis = static_cast<int>(shape.size()) - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) {
      index[axis] = 0;
    }
  }
}

int64_t Offset(const Shape& shape, const Index& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) offset = offset * shape[i] + index[i];
  return offset;
}

double AtBroadcast(const RefTensor& tensor, const Index& index) {
  const Shape shape = tensor.type.Shape();
  int64_t offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t at = index[index.size() - shape.size() + i];
    offset = offset * shape[i] + (shape[i] == 1 ? 0 : at);
  }
  return tensor.values[offset];
}

RefTensor FromBytes(const ir::TensorType& type, const std::string& bytes) {
  RefTensor tensor{type, std::vector<double>(type.NumElements())};
  for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = ir::ElementAsDouble(type.dtype, bytes, i);
  return tensor;
}

std::string ToBytes(const RefTensor& tensor) {
  std::string bytes;
  for (double value : tensor.values) {
    if (ir::IsFloat(tensor.type.dtype)) {
      ir::AppendDouble(tensor.type.dtype, value, &bytes);
    } else {
      ir::AppendInt(tensor.type.dtype, static_cast<int64_t>(value), &bytes);
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<RefTensor>> Evaluate(const ir::Function& function, const std::vector<RefTensor>& arguments) {
  std::unordered_map<const ir::Var*, RefTensor> values;
  std::unordered_map<const ir::Constant*, RefTensor> literals;
  for (size_t i = 0; i < function.params.size(); ++i) values[function.params[i].get()] = arguments[i];
  auto value_of = [&](const ir::Operand& operand) -> const RefTensor* {
    if (operand.is_var()) return &values.at(operand.var.get());
    auto [found, is_new] = literals.emplace(operand.constant.get(), RefTensor());
    if (is_new) found->second = FromBytes(operand.constant->type, operand.constant->data);
    return &found->second;
  };
  for (const ir::Binding& binding : function.body.bindings) {
    auto op = Ops().find(binding.callee);
    if (binding.kind != ir::Binding::Kind::kCall || op == Ops().end() || !binding.var->type.is_tensor()) {
      return absl::UnimplementedError(absl::StrCat("the reference does not know ", ir::Describe(binding)));
    }
    std::vector<const RefTensor*> args;
    for (const ir::Operand& arg : binding.args) args.push_back(value_of(arg));
    RefTensor out{binding.var->type.tensor(), {}};
    out.values.resize(out.type.NumElements());
    op->second({binding.attrs, args, &out});
    RoundValues(&out);
    values[binding.var.get()] = std::move(out);
  }
  std::vector<RefTensor> results;
  for (const ir::Operand& result : function.body.results) results.push_back(*value_of(result));
  return results;
}

}  // namespace inlay::backend::testing
