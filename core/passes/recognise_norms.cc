// silu, softmax and layer_norm: what the pattern matcher can say. See recognise_composites.cc.
#include "absl/strings/str_cat.h"
#include "core/ir/literal.h"
#include "core/passes/recognise_composites.h"

namespace inlay::passes {
namespace {

using ir::Any;
using ir::Binding;
using ir::CommutativeOp;
using ir::IsLiteral;
using ir::Op;
using ir::Or;
using ir::PatternPtr;

bool KeepsDims(const Binding& reduction) { return reduction.attrs.Bool("keepdims"); }

// (x - mean) / sqrt(var + eps), in the forms that simplify leaves.
PatternPtr Normalised() {
  const PatternPtr mean = If(Op("reduce_mean", {Any("x")}, "mean"), KeepsDims);
  const PatternPtr centred = Op("sub", {Any("x"), mean}, "centred");
  const PatternPtr square = Or({Op("mul", {centred, centred}), Op("pow", {centred, IsLiteral("two")})});
  const PatternPtr variance = If(Op("reduce_mean", {square}, "variance"), KeepsDims);
  const PatternPtr sum = CommutativeOp("add", variance, IsLiteral("epsilon"));
  const PatternPtr root = Or({Op("sqrt", {sum}), Op("pow", {sum, IsLiteral("half")})});
  const PatternPtr inverse = Or({Op("rsqrt", {sum}), Op("reciprocal", {root})});
  return Or({Op("div", {centred, root}), CommutativeOp("mul", centred, inverse)});
}

// The first of the trailing axes that are reduced, or -1 where they are not the trailing ones.
int TrailingAxis(const Binding& reduction) {
  const std::vector<int64_t>& axes = reduction.attrs.Ints("axes");
  const int rank = reduction.args[0].tensor_type().rank();
  if (axes.empty()) return -1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != rank - static_cast<int64_t>(axes.size()) + static_cast<int64_t>(i)) return -1;
  }
  return static_cast<int>(axes[0]);
}

bool LiteralIs(const ir::PatternMatch& match, const std::string& name, double value) {
  auto it = match.named_operands.find(name);
  return it == match.named_operands.end() || ir::SplatDouble(it->second) == value;
}

}  // namespace

absl::optional<Composite> RecogniseSilu(const Binding& root, const ir::DefUse& def_use) {
  static const auto* pattern = new PatternPtr(CommutativeOp("mul", Any("x"), Op("sigmoid", {Any("x")})));
  ir::PatternMatch match;
  if (!Match(*pattern, root, def_use, &match)) return absl::nullopt;
  return Composite{"silu", {match.named_operands.at("x")}, {}};
}

absl::optional<Composite> RecogniseSoftmax(const Binding& root, const ir::DefUse& def_use) {
  static const auto* pattern = [] {
    const PatternPtr max = If(Op("reduce_max", {Any("x")}, "max"), KeepsDims);
    const PatternPtr e = Op("exp", {Op("sub", {Any("x"), max})}, "exp");
    return new PatternPtr(Op("div", {e, If(Op("reduce_sum", {e}, "sum"), KeepsDims)}));
  }();
  ir::PatternMatch match;
  if (!Match(*pattern, root, def_use, &match)) return absl::nullopt;
  const std::vector<int64_t>& axes = match.Find("max")->attrs.Ints("axes");
  if (axes.size() != 1 || axes != match.Find("sum")->attrs.Ints("axes")) return absl::nullopt;
  return Composite{"softmax", {match.named_operands.at("x")}, {{"axis", axes[0]}}};
}

absl::optional<Composite> RecogniseLayerNorm(const Binding& root, const ir::DefUse& def_use) {
  static const auto* pattern =
      new PatternPtr(CommutativeOp("add", CommutativeOp("mul", Normalised(), Any("scale")), Any("bias")));
  ir::PatternMatch match;
  if (!Match(*pattern, root, def_use, &match)) return absl::nullopt;
  const int axis = TrailingAxis(*match.Find("mean"));
  if (axis < 0 || match.Find("mean")->attrs.Ints("axes") != match.Find("variance")->attrs.Ints("axes")) {
    return absl::nullopt;
  }
  const absl::optional<double> epsilon = ir::SplatDouble(match.named_operands.at("epsilon"));
  if (!epsilon.has_value() || !LiteralIs(match, "two", 2) || !LiteralIs(match, "half", 0.5)) return absl::nullopt;
  // An f32 that prints as 1e-5 is 9.99999974738e-06; the attribute is what people wrote.
  const double shown = atof(absl::StrCat(static_cast<float>(*epsilon)).c_str());
  return Composite{"layer_norm",
                   {match.named_operands.at("x"), match.named_operands.at("scale"), match.named_operands.at("bias")},
                   {{"axis", int64_t{axis}}, {"epsilon", shown}}};
}

}  // namespace inlay::passes
