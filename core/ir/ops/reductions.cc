// Reductions and scans: OPS.md, "Reductions and scans".
#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

OpSchema Reduce(std::string name, DTypes dtypes) {
  return Schema(
      std::move(name), 1, 1,
      {WithDefault("axes", AttrKind::kInts, std::vector<int64_t>{}), WithDefault("keepdims", AttrKind::kBool, false)},
      OpPattern::kReduction, [dtypes](const InferContext& ctx) -> absl::StatusOr<Type> {
        INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, dtypes));
        const TensorType& x = ctx.arg(0);
        INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> axes, CanonicalAxes(ctx, "axes", x.rank()));
        std::vector<Dim> dims;
        for (int i = 0, next = 0; i < x.rank(); ++i) {
          const bool reduced = next < static_cast<int>(axes.size()) && axes[next] == i;
          if (reduced) ++next;
          if (!reduced) {
            dims.push_back(x.dims[i]);
          } else if (ctx.attrs.Bool("keepdims")) {
            dims.push_back(1);
          }
        }
        return Type(TensorType{x.dtype, std::move(dims)});
      });
}

absl::StatusOr<Type> InferArg(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kN));
  INLAY_ASSIGN_OR_RETURN(int axis, CanonicalAxis(ctx, "axis", ctx.arg(0).rank()));
  std::vector<Dim> dims = ctx.arg(0).dims;
  if (dims[axis] == Dim(0)) return absl::InvalidArgumentError("the axis has no element to choose from");
  if (ctx.attrs.Bool("keepdims")) {
    dims[axis] = 1;
  } else {
    dims.erase(dims.begin() + axis);
  }
  return Type(TensorType{DType::kI64, std::move(dims)});
}

OpSchema ArgReduce(std::string name) {
  return Schema(std::move(name), 1, 1,
                {WithDefault("axis", AttrKind::kInt, int64_t{0}), WithDefault("keepdims", AttrKind::kBool, false),
                 WithDefault("select_last", AttrKind::kBool, false)},
                OpPattern::kReduction, InferArg);
}

OpSchema AlongAxis(std::string name, DTypes dtypes, std::vector<AttrSpec> attrs, OpPattern pattern) {
  return Schema(std::move(name), 1, 1, std::move(attrs), pattern,
                [dtypes](const InferContext& ctx) -> absl::StatusOr<Type> {
                  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, dtypes));
                  INLAY_RETURN_IF_ERROR(CanonicalAxis(ctx, "axis", ctx.arg(0).rank()).status());
                  return Type(ctx.arg(0));
                });
}

// The values, and where along the axis they were.
Type WithPlaces(DType dtype, const std::vector<Dim>& dims) {
  return TupleType{{TensorType{dtype, dims}, TensorType{DType::kI64, dims}}};
}

absl::StatusOr<Type> InferCumulativeExtreme(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kN));
  INLAY_RETURN_IF_ERROR(CanonicalAxis(ctx, "axis", ctx.arg(0).rank()).status());
  return WithPlaces(ctx.arg(0).dtype, ctx.arg(0).dims);
}

// Of an open axis a run is asked whether it has k elements (required_extents.h).
absl::StatusOr<Type> InferTopK(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  INLAY_ASSIGN_OR_RETURN(const int axis, CanonicalAxis(ctx, "axis", x.rank()));
  INLAY_ASSIGN_OR_RETURN(const Dim k, ExtentAttr(ctx, "k"));
  INLAY_ASSIGN_OR_RETURN(Dim left, MulDims(k, -1));
  INLAY_ASSIGN_OR_RETURN(left, AddDims(left, x.dims[axis]));
  if (left.is_static() && left.value() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("k is ", k.ToString(), "; axis ", axis, " has ", x.dims[axis].ToString(), " elements"));
  }
  std::vector<Dim> dims = x.dims;
  dims[axis] = k;
  return WithPlaces(x.dtype, dims);
}

INLAY_REGISTER_OP(Reduce("reduce_sum", DTypes::kN));
INLAY_REGISTER_OP(Reduce("reduce_mean", DTypes::kN));
INLAY_REGISTER_OP(Reduce("reduce_prod", DTypes::kN));
INLAY_REGISTER_OP(Reduce("reduce_max", DTypes::kNB));
INLAY_REGISTER_OP(Reduce("reduce_min", DTypes::kNB));
INLAY_REGISTER_OP(ArgReduce("argmax"));
INLAY_REGISTER_OP(ArgReduce("argmin"));
INLAY_REGISTER_OP(AlongAxis("cumsum", DTypes::kN,
                            {Required("axis", AttrKind::kInt), WithDefault("exclusive", AttrKind::kBool, false),
                             WithDefault("reverse", AttrKind::kBool, false)},
                            OpPattern::kOpaque));
INLAY_REGISTER_OP(AlongAxis("cumprod", DTypes::kN,
                            {Required("axis", AttrKind::kInt), WithDefault("exclusive", AttrKind::kBool, false),
                             WithDefault("reverse", AttrKind::kBool, false)},
                            OpPattern::kOpaque));
INLAY_REGISTER_OP(AlongAxis("logcumsumexp", DTypes::kF, {Required("axis", AttrKind::kInt)}, OpPattern::kOpaque));
INLAY_REGISTER_OP(Schema("cummax", 1, 1, {Required("axis", AttrKind::kInt)}, OpPattern::kOpaque,
                         InferCumulativeExtreme));
INLAY_REGISTER_OP(Schema("cummin", 1, 1, {Required("axis", AttrKind::kInt)}, OpPattern::kOpaque,
                         InferCumulativeExtreme));
// Reductions with their epilogue: what makes their input may be fused into them, elementwise users onto them.
INLAY_REGISTER_OP(AlongAxis("softmax", DTypes::kF, {WithDefault("axis", AttrKind::kInt, int64_t{-1})},
                            OpPattern::kReduction));
INLAY_REGISTER_OP(AlongAxis("log_softmax", DTypes::kF, {WithDefault("axis", AttrKind::kInt, int64_t{-1})},
                            OpPattern::kReduction));
INLAY_REGISTER_OP(Schema("topk", 1, 1,
                         {Required("k", AttrKind::kInt), MayBeAbsent("dims", AttrKind::kStrings),
                          WithDefault("axis", AttrKind::kInt, int64_t{-1}),
                          WithDefault("largest", AttrKind::kBool, true), WithDefault("sorted", AttrKind::kBool, true)},
                         OpPattern::kOpaque, InferTopK));

}  // namespace
}  // namespace inlay::ir::ops
