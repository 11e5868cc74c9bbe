#include "core/backends/native/attention_pattern.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace inlay::native {
namespace {

using ir::Any;
using ir::Binding;
using ir::Op;
using ir::OpOf;
using ir::Or;
using ir::PatternPtr;

constexpr int kMaxPointwise = 6;  // operators in f or g
constexpr int kMaxViews = 8;      // operators in front of q, k or v
constexpr int64_t kMaxHeadSize = 512;

// One pointwise operator on the scores `x`, or a number in place of NaN, as PyTorch gives queries that see no key.
// Masks are whatever the other arguments are.
PatternPtr OnScores(const PatternPtr& x) {
  return Or({OpOf({"add", "mul", "sub", "div", "maximum", "minimum"}, {x, Any()}),
             OpOf({"add", "mul", "sub", "maximum", "minimum"}, {Any(), x}),
             Op("where", {Op("isnan", {x}), ir::IsLiteral(), x}), Op("where", {Any(), x, Any()}),
             Op("where", {Any(), Any(), x}), OpOf({"tanh", "clip", "neg", "cast"}, {x})});
}

bool IsScalarLiteral(const ir::Operand& operand) {
  return operand.is_literal() && operand.tensor_type().is_static() && operand.tensor_type().NumElements() == 1;
}

// x scaled by a literal number.
PatternPtr Scaled(const PatternPtr& x, const std::string& name, const std::string& scale) {
  return If(OpOf({"mul", "div"}, {x, ir::IsLiteral(scale)}, name),
            [](const Binding& b) { return IsScalarLiteral(b.args[1]) && b.args[0].type() == b.var->type; });
}

PatternPtr OneView(const PatternPtr& x) {
  return Or({OpOf({"transpose", "reshape", "slice", "expand"}, {x}), ir::TupleItem(Op("split", {x}))});
}

// 16 bits as f32: k and v are read as they are, and widened by the products.
PatternPtr Widened(const PatternPtr& x) {
  return If(Op("cast", {x}),
            [](const Binding& b) { return IsWidening(b.args[0].tensor_type(), b.var->type.tensor()); });
}

PatternPtr ViewOrWidened(const PatternPtr& x) { return Or({OneView(x), Widened(x)}); }
PatternPtr ViewOrScale(const PatternPtr& x) { return Or({OneView(x), Scaled(x, "", "")}); }

bool PlainLeft(const Binding& matmul) {
  return !matmul.attrs.BoolOr("transpose_a", false) && matmul.args[0].tensor_type().rank() >= 2 &&
         matmul.args[1].tensor_type().rank() >= 2;
}

bool AlongLastAxis(const Binding& softmax) {
  int64_t axis = softmax.attrs.IntOr("axis", -1);
  return axis == -1 || axis == softmax.args[0].tensor_type().rank() - 1;
}

PatternPtr Core(const PatternPtr& q, const PatternPtr& k, const PatternPtr& v) {
  PatternPtr scores = If(Op("matmul", {q, k}, "scores"), PlainLeft);
  PatternPtr softmax = If(Op("softmax", {Chain(scores, kMaxPointwise, OnScores)}, "softmax"), AlongLastAxis);
  return If(Op("matmul", {Chain(softmax, kMaxPointwise, OnScores), v}, "context"), PlainLeft);
}

std::vector<ir::Dim> BatchOf(const ir::TensorType& type) { return {type.dims.begin(), type.dims.end() - 2}; }

bool IsAtMost(const ir::Dim& dim, int64_t most) { return dim.is_static() && dim.value() <= most; }
bool IsNothing(const ir::Dim& dim) { return dim == ir::Dim(0); }

bool IsDouble(const Binding& binding) { return binding.var->type.tensor().dtype == ir::DType::kF64; }

}  // namespace

bool IsWidening(const ir::TensorType& from, const ir::TensorType& to) {
  return (from.dtype == ir::DType::kBF16 || from.dtype == ir::DType::kF16) && to.dtype == ir::DType::kF32;
}

const PatternPtr& AttentionCore() {
  static const auto* pattern =
      new PatternPtr(Core(Any("q"), Or({Scaled(Any("k"), "k_scaled", "k_scale"), Any("k")}), Any("v")));
  return *pattern;
}

const PatternPtr& AttentionWithViews() {
  static const auto* pattern = [] {
    PatternPtr q = Chain(Any(), kMaxViews, ViewOrScale), v = Chain(Any(), kMaxViews, ViewOrWidened);
    PatternPtr k = Chain(Any(), kMaxViews, [](const PatternPtr& x) { return Or({ViewOrScale(x), Widened(x)}); });
    PatternPtr core = Core(q, k, v);
    PatternPtr joined = Op("transpose", {core});
    return new PatternPtr(Or({Op("reshape", {Or({joined, core})}), joined, core}));
  }();
  return *pattern;
}

absl::Status CheckAttention(const ir::PatternMatch& match) {
  const Binding &scores = *match.Find("scores"), &softmax = *match.Find("softmax"), &context = *match.Find("context");
  for (const Binding* binding : {&scores, &softmax, &context}) {
    if (!ir::IsFloat(binding->var->type.tensor().dtype)) return absl::UnimplementedError("attention on integers");
    if (IsDouble(*binding) != IsDouble(scores)) return absl::UnimplementedError("attention that mixes f64 with others");
  }
  // A mask may only be broadcast to the scores, not they to it.
  const ir::TensorType &s = scores.var->type.tensor(), &c = context.var->type.tensor();
  if (softmax.var->type.tensor().dims != s.dims || context.args[0].tensor_type().dims != s.dims ||
      BatchOf(c) != BatchOf(s)) {
    return absl::UnimplementedError("attention with a mask or values of more dimensions than the scores");
  }
  const ir::Dim &head = scores.args[0].tensor_type().dims.back(), &value = c.dims.back();
  if (std::any_of(s.dims.begin(), s.dims.end(), IsNothing) || IsNothing(head) || IsNothing(value)) {
    return absl::UnimplementedError("attention of nothing");
  }
  if (!IsAtMost(head, kMaxHeadSize) || !IsAtMost(value, kMaxHeadSize)) {
    return absl::UnimplementedError(absl::StrCat("attention with heads of more than ", kMaxHeadSize));
  }
  return absl::OkStatus();
}

}  // namespace inlay::native
