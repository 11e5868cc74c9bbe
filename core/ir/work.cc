#include "core/ir/work.h"

#include <algorithm>

#include "core/ir/op_registry.h"

namespace inlay::ir {
namespace {

double Extent(const Operand& operand, int axis) {
  const TensorType& type = operand.tensor_type();
  if (axis < 0) axis += type.rank();
  if (axis < 0 || axis >= type.rank() || !type.dims[axis].is_static()) return 1;
  return static_cast<double>(type.dims[axis].value());
}

// Takes some elements of its first argument, so that not all of it need be read.
bool IsLookup(const std::string& op) {
  return op == "gather" || op == "gather_elements" || op == "gather_nd" || op == "slice" || op == "split";
}

// What the partition reads of a parameter.
int64_t ReadBytes(const Function& partition, const Var* param) {
  const int64_t all = CountBytes(param->type);
  int64_t looked_up = 0;
  for (const Binding& binding : partition.body.bindings) {
    for (size_t i = 0; i < binding.args.size(); ++i) {
      if (binding.args[i].var.get() != param) continue;
      if (i != 0 || binding.kind != Binding::Kind::kCall || !IsLookup(binding.callee)) return all;
      looked_up += CountBytes(binding.var->type);
    }
  }
  for (const Operand& result : partition.body.results) {
    if (result.var.get() == param) return all;
  }
  return std::min(all, looked_up);
}

}  // namespace

double CountElements(const Type& type) {
  if (type.is_tensor()) return type.tensor().is_static() ? static_cast<double>(type.tensor().NumElements()) : 0;
  double sum = 0;
  for (const Type& field : type.tuple().fields) sum += CountElements(field);
  return sum;
}

int64_t CountBytes(const Type& type) {
  if (type.is_tensor()) return type.tensor().is_static() ? type.tensor().NumBytes() : 0;
  int64_t sum = 0;
  for (const Type& field : type.tuple().fields) sum += CountBytes(field);
  return sum;
}

double CountFlops(const Binding& binding) {
  if (binding.kind != Binding::Kind::kCall || binding.args.empty()) return 0;
  const std::string& op = binding.callee;
  const double out = CountElements(binding.var->type);
  if (op == "matmul" || op == "matmul_integer" || op == "matmul_nbits") {
    const int rank = binding.args[0].tensor_type().rank();
    const bool transposed = rank > 1 && binding.attrs.BoolOr("transpose_a", false);
    return 2 * out * Extent(binding.args[0], transposed ? -2 : -1);
  }
  if (op == "conv" || op == "conv_integer") {
    return 2 * out * CountElements(binding.args[1].type()) / std::max(1.0, Extent(binding.args[1], 0));
  }
  if (op == "conv_transpose") {
    return 2 * CountElements(binding.args[0].type()) * CountElements(binding.args[1].type()) /
           std::max(1.0, Extent(binding.args[1], 0));
  }
  if (op == "lstm" || op == "gru" || op == "rnn") {
    const double steps = Extent(binding.args[0], 0) * Extent(binding.args[0], 1);
    return 2 * steps * (CountElements(binding.args[1].type()) + CountElements(binding.args[2].type()));
  }
  if (op == "max_pool" || op == "avg_pool") {
    double taps = 1;
    for (int64_t extent : binding.attrs.IntsOr("kernel", {})) taps *= static_cast<double>(extent);
    return out * taps;
  }
  const OpSchema* schema = OpRegistry::Global().Find(op);
  if (schema == nullptr) return 0;
  switch (schema->pattern) {
    case OpPattern::kElementwise:
    case OpPattern::kBroadcast:
      return out;
    case OpPattern::kReduction:
      return CountElements(binding.args[0].type());
    default:
      return 0;
  }
}

Work CountWork(const Function& partition, const std::vector<int64_t>& constant_params) {
  Work work;
  for (const Binding& binding : partition.body.bindings) work.flops += CountFlops(binding);
  for (size_t i = 0; i < partition.params.size(); ++i) {
    const int64_t bytes = ReadBytes(partition, partition.params[i].get());
    work.parameter_bytes += bytes;
    if (std::count(constant_params.begin(), constant_params.end(), static_cast<int64_t>(i)) > 0) {
      work.constant_bytes += bytes;
    }
  }
  for (const Operand& result : partition.body.results) work.result_bytes += CountBytes(result.type());
  return work;
}

}  // namespace inlay::ir
