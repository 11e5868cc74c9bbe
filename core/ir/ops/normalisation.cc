// Normalisation: OPS.md, "Normalisation".
#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

absl::StatusOr<Type> InferLayerNorm(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
  INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
  const TensorType& x = ctx.arg(0);
  INLAY_ASSIGN_OR_RETURN(int axis, CanonicalAxis(ctx, "axis", x.rank()));
  const std::vector<Dim> normalised(x.dims.begin() + axis, x.dims.end());
  for (int i = 1; i <= 2; ++i) {
    absl::StatusOr<std::vector<Dim>> dims = Broadcast(normalised, ctx.arg(i).dims);
    if (dims.ok() && *dims == normalised) continue;
    return absl::InvalidArgumentError(absl::StrCat(i == 1 ? "scale " : "bias ", ctx.arg(i).ToString(),
                                                   " does not broadcast to the normalised axes ",
                                                   TensorType{x.dtype, normalised}.ToString()));
  }
  return Type(x);
}

absl::StatusOr<Type> InferBatchNorm(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
  INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
  const TensorType& x = ctx.arg(0);
  if (x.rank() < 2) return absl::InvalidArgumentError(absl::StrCat("x is ", x.ToString(), "; it must be [N,C,...]"));
  for (int i = 1; i <= 4; ++i) INLAY_RETURN_IF_ERROR(CheckDims(ctx, i, {x.dims[1]}, "one value a channel"));
  return Type(x);
}

absl::StatusOr<Type> InferLrn(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
  if (ctx.arg(0).rank() < 2) return absl::InvalidArgumentError("x must be [N,C,...]");
  if (ctx.attrs.Int("size") < 1) return absl::InvalidArgumentError("attribute 'size' must be at least 1");
  return Type(ctx.arg(0));
}

INLAY_REGISTER_OP(Schema("layer_norm", 3, 3,
                         {WithDefault("axis", AttrKind::kInt, int64_t{-1}),
                          WithDefault("epsilon", AttrKind::kFloat, 1e-5)},
                         OpPattern::kReduction, InferLayerNorm));
INLAY_REGISTER_OP(Schema("batch_norm", 5, 5, {WithDefault("epsilon", AttrKind::kFloat, 1e-5)}, OpPattern::kBroadcast,
                         InferBatchNorm));
INLAY_REGISTER_OP(Schema("lrn", 1, 1,
                         {Required("size", AttrKind::kInt), WithDefault("alpha", AttrKind::kFloat, 1e-4),
                          WithDefault("beta", AttrKind::kFloat, 0.75), WithDefault("bias", AttrKind::kFloat, 1.0)},
                         OpPattern::kOpaque, InferLrn));

}  // namespace
}  // namespace inlay::ir::ops
