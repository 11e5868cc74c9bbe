// Elementwise operators of several arguments, which broadcast: OPS.md, "Elementwise, several arguments".
#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

enum class Result { kSame, kBool };

OpSchema Binary(std::string name, DTypes dtypes, Result result = Result::kSame) {
  return Schema(std::move(name), 2, 2, {}, OpPattern::kBroadcast,
                [dtypes, result](const InferContext& ctx) -> absl::StatusOr<Type> {
                  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, dtypes));
                  INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
                  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(ctx.arg(0).dims, ctx.arg(1).dims));
                  return Type(TensorType{result == Result::kBool ? DType::kBool : ctx.arg(0).dtype, std::move(dims)});
                });
}

absl::StatusOr<Type> InferMod(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kN));
  INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
  if (IsFloat(ctx.arg(0).dtype) && !ctx.attrs.Bool("fmod")) {
    return absl::InvalidArgumentError(
        absl::StrCat("mod of ", Name(ctx.arg(0).dtype), " must have fmod=true; fmod=false is for integers"));
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(ctx.arg(0).dims, ctx.arg(1).dims));
  return Type(TensorType{ctx.arg(0).dtype, std::move(dims)});
}

absl::StatusOr<Type> InferPow(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kN));
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 1, DTypes::kN));
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(ctx.arg(0).dims, ctx.arg(1).dims));
  return Type(TensorType{ctx.arg(0).dtype, std::move(dims)});
}

absl::StatusOr<Type> InferWhere(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kB));
  INLAY_RETURN_IF_ERROR(CheckSameDType(ctx, 1));
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(ctx.arg(1).dims, ctx.arg(2).dims));
  INLAY_ASSIGN_OR_RETURN(dims, Broadcast(ctx.arg(0).dims, dims));
  return Type(TensorType{ctx.arg(1).dtype, std::move(dims)});
}

INLAY_REGISTER_OP(Binary("add", DTypes::kN));
INLAY_REGISTER_OP(Binary("sub", DTypes::kN));
INLAY_REGISTER_OP(Binary("mul", DTypes::kN));
INLAY_REGISTER_OP(Binary("div", DTypes::kN));
INLAY_REGISTER_OP(Binary("minimum", DTypes::kN));
INLAY_REGISTER_OP(Binary("maximum", DTypes::kN));
INLAY_REGISTER_OP(Binary("equal", DTypes::kA, Result::kBool));
INLAY_REGISTER_OP(Binary("not_equal", DTypes::kA, Result::kBool));
INLAY_REGISTER_OP(Binary("less", DTypes::kN, Result::kBool));
INLAY_REGISTER_OP(Binary("less_equal", DTypes::kN, Result::kBool));
INLAY_REGISTER_OP(Binary("greater", DTypes::kN, Result::kBool));
INLAY_REGISTER_OP(Binary("greater_equal", DTypes::kN, Result::kBool));
INLAY_REGISTER_OP(Binary("logical_and", DTypes::kB));
INLAY_REGISTER_OP(Binary("logical_or", DTypes::kB));
INLAY_REGISTER_OP(Binary("logical_xor", DTypes::kB));
INLAY_REGISTER_OP(Binary("bitwise_and", DTypes::kI));
INLAY_REGISTER_OP(Binary("bitwise_or", DTypes::kI));
INLAY_REGISTER_OP(Binary("bitwise_xor", DTypes::kI));
INLAY_REGISTER_OP(Binary("shift_left", DTypes::kI));
INLAY_REGISTER_OP(Binary("shift_right", DTypes::kI));
INLAY_REGISTER_OP(Schema("mod", 2, 2, {WithDefault("fmod", AttrKind::kBool, false)}, OpPattern::kBroadcast, InferMod));
INLAY_REGISTER_OP(Schema("pow", 2, 2, {}, OpPattern::kBroadcast, InferPow));
INLAY_REGISTER_OP(Schema("where", 3, 3, {}, OpPattern::kBroadcast, InferWhere));

}  // namespace
}  // namespace inlay::ir::ops
