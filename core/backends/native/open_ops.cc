#include "core/backends/native/open_ops.h"

#include <optional>
#include <set>

#include "absl/strings/str_cat.h"

namespace inlay::native {
namespace {

std::optional<ir::TensorType> FirstOpen(const ir::Type& type) {
  if (type.is_tensor()) return type.tensor().is_static() ? std::nullopt : std::optional(type.tensor());
  for (const ir::Type& field : type.tuple().fields) {
    if (auto open = FirstOpen(field)) return open;
  }
  return std::nullopt;
}

std::optional<ir::TensorType> FirstOpen(const ir::Binding& binding) {
  for (const ir::Operand& arg : binding.args) {
    if (auto open = FirstOpen(arg.type())) return open;
  }
  return FirstOpen(binding.var->type);
}

}  // namespace

absl::Status CheckOpenDims(const ir::Binding& binding) {
  static const auto* without = new std::set<std::string>{
      "conv", "conv_transpose", "max_pool", "avg_pool", "resize", "lstm", "gru", "rnn", "topk"};
  if (binding.kind != ir::Binding::Kind::kCall || without->count(binding.callee) == 0) return absl::OkStatus();
  std::optional<ir::TensorType> open = FirstOpen(binding);
  if (!open) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("native has no code for '", binding.callee,
                                               "' with the open dimension '", open->FirstSymbol(), "' in ",
                                               open->ToString()));
}

}  // namespace inlay::native
