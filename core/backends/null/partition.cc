#include "core/backends/null/partition.h"

#include "absl/strings/str_cat.h"

namespace inlay::null {

absl::Status CheckCall(const ir::Binding& call) {
  if (!call.IsCall("reshape")) {
    return absl::UnimplementedError(absl::StrCat("null knows reshape only, not '", call.callee, "'"));
  }
  if (!call.args[0].is_var()) return absl::UnimplementedError("a reshape of a constant");
  const ir::TensorType& type = call.args[0].tensor_type();
  if (!type.is_static() || !call.var->type.tensor().is_static()) {
    return absl::UnimplementedError(absl::StrCat("dimension '", type.FirstSymbol(), "' is symbolic"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BytesToCopy(const ir::Function& partition) {
  for (const ir::Binding& binding : partition.body.bindings) {
    if (absl::Status status = CheckCall(binding); !status.ok()) return status;
  }
  const auto& body = partition.body;
  if (partition.params.size() != 1 || body.bindings.size() != 1 || body.results.size() != 1 ||
      !(body.results[0] == ir::Operand(body.bindings[0].var)) ||
      !(body.bindings[0].args[0] == ir::Operand(partition.params[0]))) {
    return absl::InvalidArgumentError("not a partition of one reshape of its parameter");
  }
  return partition.params[0]->type.tensor().NumBytes();
}

}  // namespace inlay::null
