// Finds operators that exporters took apart (torch.onnx below opset 17 and 20, TensorFlow) and puts them together
// again.
//
//   %0 = div(%x, f32(1.4142135))
//   %1 = erf(%0)
//   %2 = add(%1, f32(1.0))                 becomes      %4 = gelu(%x, approximate="none")
//   %3 = mul(%x, %2)
//   %4 = mul(%3, f32(0.5))
//
//   %0 = reduce_mean(%x, axes=[2], keepdims=true)
//   %1 = sub(%x, %0)
//   %2 = mul(%1, %1)
//   %3 = reduce_mean(%2, axes=[2], keepdims=true)
//   %4 = sqrt(add(%3, f32(1e-12)))         becomes      %7 = layer_norm(%x, @scale, @bias, axis=2, epsilon=1e-12)
//   %5 = div(%1, %4)
//   %6 = mul(%5, @scale)
//   %7 = add(%6, @bias)
//
// Only where nothing inside is used from outside. hard_swish stays as it is.
#include "core/passes/recognise_composites.h"

#include "core/base/status_macros.h"
#include "core/ir/op_registry.h"
#include "core/passes/passes.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::Block;

absl::optional<Composite> Recognise(const Binding& root, const ir::DefUse& def_use) {
  if (root.kind != Binding::Kind::kCall || !root.var->type.is_tensor()) return absl::nullopt;
  const std::string& op = root.callee;
  if (op == "mul") {
    if (auto found = RecogniseSilu(root, def_use)) return found;
    if (auto found = RecogniseGelu(root, def_use)) return found;
  }
  if (op == "div") {
    if (auto found = RecogniseSoftmax(root, def_use)) return found;
  }
  if (op == "add") return RecogniseLayerNorm(root, def_use);
  return absl::nullopt;
}

// The root becomes the call, in place: its Var stays, so nothing else changes. What was inside is dead code.
absl::Status Rewrite(Block* block) {
  for (Binding& binding : block->bindings) {
    for (Block& nested : binding.blocks) INLAY_RETURN_IF_ERROR(Rewrite(&nested));
  }
  std::vector<std::pair<int, Composite>> found;
  const ir::DefUse def_use(*block);
  for (size_t i = 0; i < block->bindings.size(); ++i) {
    if (auto composite = Recognise(block->bindings[i], def_use)) found.emplace_back(i, *std::move(composite));
  }
  for (auto& [position, composite] : found) {
    Binding& root = block->bindings[position];
    absl::StatusOr<ir::Type> type = ir::OpRegistry::Global().Infer(composite.op, composite.args, &composite.attrs);
    if (!type.ok() || *type != root.var->type) continue;  // such as a scale that does not fit layer_norm
    root.callee = std::move(composite.op);
    root.args = std::move(composite.args);
    root.attrs = std::move(composite.attrs);
  }
  return absl::OkStatus();
}

class RecogniseCompositesPass : public FunctionPass {
 public:
  absl::string_view name() const override { return "recognise_composites"; }
  int min_opt_level() const override { return 2; }

 protected:
  absl::StatusOr<ir::Function> RunOnFunction(ir::Function function, const target::CompilationConfig&) const override {
    INLAY_RETURN_IF_ERROR(Rewrite(&function.body));
    return function;
  }
};

}  // namespace

std::unique_ptr<Pass> RecogniseComposites() { return std::make_unique<RecogniseCompositesPass>(); }

}  // namespace inlay::passes
