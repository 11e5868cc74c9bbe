// Gather and scatter: OPS.md, "Moving data". Values of indices are clamped at run time, so only types are checked here.
#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

absl::Status CheckIndices(const InferContext& ctx, int arg) {
  const DType dtype = ctx.arg(arg).dtype;
  if (dtype == DType::kI32 || dtype == DType::kI64) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the indices are ", ctx.arg(arg).ToString(), "; they must be i32 or i64"));
}

// Clamping an index into an axis without elements has no answer.
absl::Status CheckNotEmpty(const TensorType& x, int axis, const TensorType& indices) {
  bool no_index = false;
  for (const Dim& d : indices.dims) no_index |= d == Dim(0);
  if (x.dims[axis] != Dim(0) || no_index) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("indices into axis ", axis, " of ", x.ToString(), ", which is empty"));
}

absl::StatusOr<Type> InferGather(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckIndices(ctx, 1));
  const TensorType &x = ctx.arg(0), &indices = ctx.arg(1);
  INLAY_ASSIGN_OR_RETURN(int axis, CanonicalAxis(ctx, "axis", x.rank()));
  INLAY_RETURN_IF_ERROR(CheckNotEmpty(x, axis, indices));
  std::vector<Dim> dims(x.dims.begin(), x.dims.begin() + axis);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), x.dims.begin() + axis + 1, x.dims.end());
  return Type(TensorType{x.dtype, std::move(dims)});
}

// The indices have x's rank, and no more elements than x along the axes that are not indexed.
absl::Status CheckElementIndices(const InferContext& ctx, int axis) {
  INLAY_RETURN_IF_ERROR(CheckIndices(ctx, 1));
  const TensorType &x = ctx.arg(0), &indices = ctx.arg(1);
  INLAY_RETURN_IF_ERROR(CheckRank(ctx, 1, x.rank()));
  INLAY_RETURN_IF_ERROR(CheckNotEmpty(x, axis, indices));
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis || indices.dims[i] == x.dims[i]) continue;
    if (indices.dims[i].is_static() &&
        (x.dims[i].is_static() ? indices.dims[i].value() <= x.dims[i].value() : indices.dims[i].value() == 1)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("the indices ", indices.ToString(), " reach beyond ", x.ToString(),
                                                   " along axis ", i, ", which is not the indexed one"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Type> InferGatherElements(const InferContext& ctx) {
  INLAY_ASSIGN_OR_RETURN(int axis, CanonicalAxis(ctx, "axis", ctx.arg(0).rank()));
  INLAY_RETURN_IF_ERROR(CheckElementIndices(ctx, axis));
  return Type(TensorType{ctx.arg(0).dtype, ctx.arg(1).dims});
}

absl::StatusOr<Type> InferScatterElements(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, ctx.attrs.String("reduction") == "none" ? DTypes::kA : DTypes::kN));
  INLAY_ASSIGN_OR_RETURN(int axis, CanonicalAxis(ctx, "axis", ctx.arg(0).rank()));
  INLAY_RETURN_IF_ERROR(CheckElementIndices(ctx, axis));
  INLAY_RETURN_IF_ERROR(CheckDims(ctx, 2, ctx.arg(1).dims, "the shape of the indices"));
  if (ctx.arg(2).dtype != ctx.arg(0).dtype) return absl::InvalidArgumentError("updates and x differ in dtype");
  return Type(ctx.arg(0));
}

// The extent of the indices' last axis: how many axes of x (behind the batch axes) one index tuple addresses.
absl::StatusOr<int> IndexDepth(const InferContext& ctx, int batch_dims) {
  INLAY_RETURN_IF_ERROR(CheckIndices(ctx, 1));
  const TensorType &x = ctx.arg(0), &indices = ctx.arg(1);
  if (batch_dims < 0 || batch_dims >= indices.rank() || batch_dims > x.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_dims is ", batch_dims, " with x ", x.ToString(), " and indices ", indices.ToString()));
  }
  INLAY_ASSIGN_OR_RETURN(int64_t depth, StaticExtent(indices, indices.rank() - 1, "an index tuple"));
  if (depth < 1 || depth > x.rank() - batch_dims) {
    return absl::InvalidArgumentError(absl::StrCat("the indices ", indices.ToString(), " address ", depth, " axes of ",
                                                   x.ToString(), " behind ", batch_dims, " batch axes"));
  }
  for (int i = 0; i < batch_dims; ++i) {
    if (x.dims[i] != indices.dims[i]) return absl::InvalidArgumentError(absl::StrCat("batch axis ", i, " differs"));
  }
  for (int i = 0; i < depth; ++i) INLAY_RETURN_IF_ERROR(CheckNotEmpty(x, batch_dims + i, indices));
  return static_cast<int>(depth);
}

// indices.shape[:-1] + x.shape[batch_dims + depth:]
std::vector<Dim> IndexedDims(const InferContext& ctx, int batch_dims, int depth) {
  const TensorType &x = ctx.arg(0), &indices = ctx.arg(1);
  std::vector<Dim> dims(indices.dims.begin(), indices.dims.end() - 1);
  dims.insert(dims.end(), x.dims.begin() + batch_dims + depth, x.dims.end());
  return dims;
}

absl::StatusOr<Type> InferGatherNd(const InferContext& ctx) {
  const int64_t batch_dims = ctx.attrs.Int("batch_dims");
  if (batch_dims < 0 || batch_dims > kMaxRank)
    return absl::InvalidArgumentError(absl::StrCat("batch_dims is ", batch_dims));
  INLAY_ASSIGN_OR_RETURN(int depth, IndexDepth(ctx, static_cast<int>(batch_dims)));
  return Type(TensorType{ctx.arg(0).dtype, IndexedDims(ctx, static_cast<int>(batch_dims), depth)});
}

absl::StatusOr<Type> InferScatterNd(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, ctx.attrs.String("reduction") == "none" ? DTypes::kA : DTypes::kN));
  INLAY_ASSIGN_OR_RETURN(int depth, IndexDepth(ctx, 0));
  INLAY_RETURN_IF_ERROR(CheckDims(ctx, 2, IndexedDims(ctx, 0, depth), "one slice of x an index tuple"));
  if (ctx.arg(2).dtype != ctx.arg(0).dtype) return absl::InvalidArgumentError("updates and x differ in dtype");
  return Type(ctx.arg(0));
}

const std::vector<std::string> kReductions = {"none", "add", "mul", "max", "min"};

INLAY_REGISTER_OP(Schema("gather", 2, 2, {WithDefault("axis", AttrKind::kInt, int64_t{0})}, OpPattern::kInjective,
                         InferGather));
INLAY_REGISTER_OP(Schema("gather_elements", 2, 2, {WithDefault("axis", AttrKind::kInt, int64_t{0})},
                         OpPattern::kInjective, InferGatherElements));
INLAY_REGISTER_OP(Schema("gather_nd", 2, 2, {WithDefault("batch_dims", AttrKind::kInt, int64_t{0})},
                         OpPattern::kInjective, InferGatherNd));
INLAY_REGISTER_OP(Schema("scatter_elements", 3, 3,
                         {WithDefault("axis", AttrKind::kInt, int64_t{0}), Choice("reduction", "none", kReductions)},
                         OpPattern::kOpaque, InferScatterElements));
INLAY_REGISTER_OP(Schema("scatter_nd", 3, 3, {Choice("reduction", "none", kReductions)}, OpPattern::kOpaque,
                         InferScatterNd));

}  // namespace
}  // namespace inlay::ir::ops
