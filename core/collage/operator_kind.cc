#include "core/collage/operator_kind.h"

#include <algorithm>

#include "core/ir/op_registry.h"
#include "core/ir/work.h"

namespace inlay::collage {
namespace {

double Extent(const ir::TensorType& type, int axis) {
  if (axis < 0) axis += type.rank();
  if (axis < 0 || axis >= type.rank() || !type.dims[axis].is_static()) return 1;
  return static_cast<double>(type.dims[axis].value());
}

bool IsConv(const ir::Binding& call) {
  return call.callee == "conv" || call.callee == "conv_integer" || call.callee == "conv_transpose";
}

// Multiply-adds of a contraction, else elements.
double WorkOf(const ir::Binding& call) {
  if (ir::IsContraction(call)) return ir::CountFlops(call) / 2;
  double largest = ir::CountElements(call.var->type);
  for (const ir::Operand& arg : call.args) largest = std::max(largest, ir::CountElements(arg.type()));
  return largest;
}

std::string KindOfConv(const ir::Binding& call) {
  const ir::TensorType& weights = call.args[1].tensor_type();
  if (call.attrs.IntOr("groups", 1) > 1) return Extent(weights, 1) == 1 ? "conv depthwise" : "conv grouped";
  const double taps = Extent(weights, 2) * Extent(weights, 3);
  return taps == 1 ? "conv 1x1" : taps == 9 ? "conv 3x3" : "conv";
}

std::string KindOf(const ir::Binding& call) {
  if (IsConv(call)) return KindOfConv(call);
  switch (ir::PatternOf(call)) {
    case ir::OpPattern::kContraction:
      return Extent(call.var->type.tensor(), -2) == 1 ? "matmul of a row" : "matmul";
    case ir::OpPattern::kElementwise:
    case ir::OpPattern::kBroadcast:
      return "pointwise";
    case ir::OpPattern::kInjective:
      return "movement";
    case ir::OpPattern::kReduction:
      return "reduction";
    default:
      return call.callee;
  }
}

}  // namespace

std::string OperatorKind(const ir::Function& partition) {
  const ir::Binding* most = nullptr;
  double work = -1;
  int products = 0;
  bool softmax = false;
  for (const ir::Binding& binding : partition.body.bindings) {
    if (binding.kind != ir::Binding::Kind::kCall || binding.args.empty()) continue;
    products += ir::IsContraction(binding) && !IsConv(binding);
    softmax |= binding.callee == "softmax";
    const double here = WorkOf(binding);
    if (here > work) most = &binding, work = here;
  }
  if (most == nullptr) return "nothing";
  return products >= 2 && softmax ? "attention" : KindOf(*most);
}

}  // namespace inlay::collage
