#include "core/backends/native/open_ops.h"

#include "absl/strings/str_cat.h"

namespace inlay::native {
namespace {

absl::Status Refusal(const ir::Binding& binding, absl::string_view symbol, const ir::TensorType& type) {
  return absl::UnimplementedError(absl::StrCat("native has no code for '", binding.callee,
                                               "' with the open dimension '", symbol, "' in ", type.ToString()));
}

// The images may be any number, and of any size where the convolution is plain.
absl::Status CheckConvolution(const ir::Binding& binding) {
  for (size_t i = 0; i < binding.args.size(); ++i) {
    const ir::TensorType type = binding.args[i].tensor_type();
    for (int d = 0; d < type.rank(); ++d) {
      if (i == 0 && (d == 0 || (d > 1 && binding.callee == "conv"))) continue;
      if (!type.dims[d].is_static()) return Refusal(binding, type.dims[d].symbol(), type);
    }
  }
  return absl::OkStatus();
}

// Of the left operand the rows and the batch may be open: words are made of what is summed, and weights packed.
absl::Status CheckIntegerMatmul(const ir::Binding& binding) {
  const ir::TensorType a = binding.args[0].tensor_type(), b = binding.args[1].tensor_type();
  if (const std::string symbol = b.FirstSymbol(); !symbol.empty()) return Refusal(binding, symbol, b);
  const bool transposed = a.rank() > 1 && binding.attrs.BoolOr("transpose_a", false);
  const std::string symbol = transposed ? a.FirstSymbol() : a.dims.back().is_static() ? "" : a.dims.back().symbol();
  return symbol.empty() ? absl::OkStatus() : Refusal(binding, symbol, a);
}

// Of x [steps, batch, inputs] and states [directions, batch, hidden] the steps and the batch may be open.
absl::Status CheckRecurrence(const ir::Binding& binding) {
  constexpr size_t kFirstState = 4;
  for (size_t i = 0; i < binding.args.size(); ++i) {
    const ir::TensorType type = binding.args[i].tensor_type();
    for (int d = 0; d < type.rank(); ++d) {
      const bool may_be_open = (i == 0 && d < 2) || (i >= kFirstState && d == 1);
      if (!may_be_open && !type.dims[d].is_static()) return Refusal(binding, type.dims[d].symbol(), type);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOpenDims(const ir::Binding& binding) {
  if (binding.kind != ir::Binding::Kind::kCall) return absl::OkStatus();
  const std::string& op = binding.callee;
  if (op == "conv" || op == "conv_transpose" || op == "conv_integer") return CheckConvolution(binding);
  if (op == "matmul_integer") return CheckIntegerMatmul(binding);
  if (op == "lstm" || op == "gru" || op == "rnn") return CheckRecurrence(binding);
  return absl::OkStatus();
}

}  // namespace inlay::native
