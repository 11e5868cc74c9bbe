#include "core/backends/common/partition_function.h"

#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"

namespace inlay::backends {
namespace {

absl::Status CheckParams(const ir::Function& function) {
  if (!function.attrs.Has(backend::kConstantParams)) {
    return absl::InvalidArgumentError("a partition function without the attribute 'constant_params'");
  }
  for (const ir::VarPtr& param : function.params) {
    if (!param->type.is_tensor() || !param->type.tensor().is_static()) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", param->name, "' is no tensor of known shape"));
    }
  }
  for (int64_t i : function.attrs.IntsOr(backend::kConstantParams, {})) {
    if (i < 0 || i >= static_cast<int64_t>(function.params.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("constant_params names parameter ", i, ", there are ", function.params.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPartitionFunction(const ir::Function& function) {
  if (absl::Status status = CheckParams(function); !status.ok()) return status;
  std::unordered_set<const ir::Var*> params, made;
  for (const ir::VarPtr& param : function.params) params.insert(param.get());
  for (const ir::Binding& binding : function.body.bindings) {
    for (const ir::Operand& arg : binding.args) {
      if (arg.is_weight()) {
        return absl::InvalidArgumentError(absl::StrCat(ir::Describe(binding), ": a weight inside a partition"));
      }
      if (arg.is_var() && params.count(arg.var.get()) + made.count(arg.var.get()) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(ir::Describe(binding), ": an argument that is not defined"));
      }
    }
    made.insert(binding.var.get());
  }
  if (function.body.results.empty()) return absl::InvalidArgumentError("a partition function without results");
  for (const ir::Operand& result : function.body.results) {
    if (!result.is_var() || made.count(result.var.get()) == 0) {
      return absl::InvalidArgumentError("a result that no call of the partition makes");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckF32Tensor(const ir::TensorType& type, int max_rank) {
  if (type.dtype != ir::DType::kF32) {
    return absl::UnimplementedError(absl::StrCat("dtype ", ir::Name(type.dtype), "; only f32 is supported"));
  }
  if (!type.is_static()) {
    return absl::UnimplementedError(absl::StrCat("dimension '", type.FirstSymbol(), "' is symbolic"));
  }
  if (type.rank() > max_rank) return absl::UnimplementedError(absl::StrCat("rank above ", max_rank));
  if (type.NumElements() == 0) return absl::UnimplementedError("a tensor without elements");
  if (type.NumElements() >= int64_t{1} << 31) return absl::UnimplementedError("a tensor of 2^31 elements or more");
  return absl::OkStatus();
}

}  // namespace inlay::backends
