// Elementwise operators of one argument: OPS.md, "Elementwise, one argument".
#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

OpSchema Unary(std::string name, DTypes dtypes, std::vector<AttrSpec> attrs = {}) {
  return Schema(std::move(name), 1, 1, std::move(attrs), OpPattern::kElementwise,
                [dtypes](const InferContext& ctx) -> absl::StatusOr<Type> {
                  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, dtypes));
                  return Type(ctx.arg(0));
                });
}

// F -> bool.
OpSchema Predicate(std::string name, std::vector<AttrSpec> attrs = {}) {
  return Schema(std::move(name), 1, 1, std::move(attrs), OpPattern::kElementwise,
                [](const InferContext& ctx) -> absl::StatusOr<Type> {
                  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
                  return Type(TensorType{DType::kBool, ctx.arg(0).dims});
                });
}

absl::StatusOr<Type> InferCast(const InferContext& ctx) {
  return Type(TensorType{ctx.attrs.GetDType("dtype"), ctx.arg(0).dims});
}

constexpr AttrKind kFloat = AttrKind::kFloat;

INLAY_REGISTER_OP(Unary("neg", DTypes::kN));
INLAY_REGISTER_OP(Unary("abs", DTypes::kN));
INLAY_REGISTER_OP(Unary("sign", DTypes::kN));
INLAY_REGISTER_OP(Unary("exp", DTypes::kF));
INLAY_REGISTER_OP(Unary("log", DTypes::kF));
INLAY_REGISTER_OP(Unary("sqrt", DTypes::kF));
INLAY_REGISTER_OP(Unary("rsqrt", DTypes::kF));
INLAY_REGISTER_OP(Unary("reciprocal", DTypes::kF));
INLAY_REGISTER_OP(Unary("sin", DTypes::kF));
INLAY_REGISTER_OP(Unary("cos", DTypes::kF));
INLAY_REGISTER_OP(Unary("tan", DTypes::kF));
INLAY_REGISTER_OP(Unary("asin", DTypes::kF));
INLAY_REGISTER_OP(Unary("acos", DTypes::kF));
INLAY_REGISTER_OP(Unary("atan", DTypes::kF));
INLAY_REGISTER_OP(Unary("sinh", DTypes::kF));
INLAY_REGISTER_OP(Unary("cosh", DTypes::kF));
INLAY_REGISTER_OP(Unary("tanh", DTypes::kF));
INLAY_REGISTER_OP(Unary("asinh", DTypes::kF));
INLAY_REGISTER_OP(Unary("acosh", DTypes::kF));
INLAY_REGISTER_OP(Unary("atanh", DTypes::kF));
INLAY_REGISTER_OP(Unary("erf", DTypes::kF));
INLAY_REGISTER_OP(Unary("sigmoid", DTypes::kF));
INLAY_REGISTER_OP(Unary("floor", DTypes::kF));
INLAY_REGISTER_OP(Unary("ceil", DTypes::kF));
INLAY_REGISTER_OP(Unary("round", DTypes::kF));
INLAY_REGISTER_OP(Unary("relu", DTypes::kN));
INLAY_REGISTER_OP(Unary("gelu", DTypes::kF, {Choice("approximate", "none", {"none", "tanh"})}));
INLAY_REGISTER_OP(Unary("silu", DTypes::kF));
INLAY_REGISTER_OP(Unary("softplus", DTypes::kF));
INLAY_REGISTER_OP(Unary("leaky_relu", DTypes::kF, {WithDefault("alpha", kFloat, 0.01)}));
INLAY_REGISTER_OP(Unary("elu", DTypes::kF, {WithDefault("alpha", kFloat, 1.0)}));
INLAY_REGISTER_OP(Unary("hard_sigmoid", DTypes::kF,
                        {WithDefault("alpha", kFloat, 0.2), WithDefault("beta", kFloat, 0.5)}));
INLAY_REGISTER_OP(Unary("clip", DTypes::kN, {MayBeAbsent("min", kFloat), MayBeAbsent("max", kFloat)}));
INLAY_REGISTER_OP(Unary("logical_not", DTypes::kB));
INLAY_REGISTER_OP(Unary("bitwise_not", DTypes::kI));
INLAY_REGISTER_OP(Unary("identity", DTypes::kA));
INLAY_REGISTER_OP(Predicate("isnan"));
INLAY_REGISTER_OP(Predicate("isinf", {WithDefault("positive", AttrKind::kBool, true),
                                      WithDefault("negative", AttrKind::kBool, true)}));
INLAY_REGISTER_OP(Schema("cast", 1, 1, {Required("dtype", AttrKind::kDType)}, OpPattern::kElementwise, InferCast));

}  // namespace
}  // namespace inlay::ir::ops
