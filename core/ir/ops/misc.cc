// Operators that make tensors or resample them: full, iota, resize, grid_sample, reverse_sequence (OPS.md, "Moving
// data").
#include <cmath>

#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

absl::StatusOr<Type> InferFull(const InferContext& ctx) {
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, ShapeAttr(ctx, nullptr));
  const DType dtype = ctx.attrs.GetDType("dtype");
  if (IsFloat(dtype)) {
    ctx.attrs.Set("value", ctx.attrs.Float("value"));
  } else {
    const AttrValue& value = ctx.attrs.values().find("value")->second;
    if (auto* f = std::get_if<double>(&value)) {
      if (!(std::fabs(*f) < 9e18) || *f != std::floor(*f)) {
        return absl::InvalidArgumentError(absl::StrCat("value ", *f, " is no ", Name(dtype)));
      }
      ctx.attrs.Set("value", static_cast<int64_t>(*f));
    }
  }
  return Type(TensorType{dtype, std::move(dims)});
}

absl::StatusOr<Type> InferIota(const InferContext& ctx) {
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, ShapeAttr(ctx, nullptr));
  INLAY_RETURN_IF_ERROR(CanonicalAxis(ctx, "axis", static_cast<int>(dims.size())).status());
  const DType dtype = ctx.attrs.GetDType("dtype");
  if (!Contains(DTypes::kN, dtype)) return absl::InvalidArgumentError("iota makes numbers, not bool");
  return Type(TensorType{dtype, std::move(dims)});
}

// What a scale of 0 stands for, the quotient of the extents, where that is known; else 0.
double KnownScale(const Dim& from, const Dim& to) {
  if (from.is_static() && to.is_static()) {
    return from.value() > 0 ? static_cast<double>(to.value()) / static_cast<double>(from.value()) : 1;
  }
  if (auto times = ExactDivDims(to, from); times.ok() && times->is_static()) {
    return static_cast<double>(times->value());
  }
  if (auto parts = ExactDivDims(from, to); parts.ok() && parts->is_static()) {
    return 1 / static_cast<double>(parts->value());
  }
  return 0;
}

absl::StatusOr<Type> InferResize(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, ctx.attrs.String("mode") == "nearest" ? DTypes::kA : DTypes::kF));
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, ShapeAttr(ctx, nullptr, "sizes"));
  std::vector<double> scales = ctx.attrs.Floats("scales");
  if (static_cast<int>(dims.size()) != x.rank() || static_cast<int>(scales.size()) != x.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'sizes' has ", dims.size(), " and 'scales' ", scales.size(), " elements; x has rank ", x.rank()));
  }
  for (int i = 0; i < x.rank(); ++i) {
    if (!(scales[i] >= 0) || !std::isfinite(scales[i]) || (x.dims[i] == Dim(0) && dims[i] != Dim(0))) {
      return absl::InvalidArgumentError(absl::StrCat("axis ", i, " can't go from ", x.dims[i].ToString(), " to ",
                                                     dims[i].ToString(), " by the scale ", scales[i]));
    }
    if (scales[i] == 0) scales[i] = KnownScale(x.dims[i], dims[i]);
  }
  ctx.attrs.Set("scales", std::move(scales));
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferGridSample(const InferContext& ctx) {
  const TensorType &x = ctx.arg(0), &grid = ctx.arg(1);
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
  INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
  const int axes = x.rank() - 2;
  if (axes < 1 || axes > 3) {
    return absl::InvalidArgumentError(absl::StrCat("x is ", x.ToString(), "; it must have 1 to 3 spatial axes"));
  }
  if (grid.rank() < 2 || grid.dims[0] != x.dims[0] || grid.dims.back() != Dim(axes)) {
    return absl::InvalidArgumentError(absl::StrCat("the grid is ", grid.ToString(), "; for ", x.ToString(),
                                                   " it must be [", x.dims[0].ToString(), ", ..., ", axes, "]"));
  }
  for (int axis = 1; axis <= axes; ++axis) {
    if (x.dims[axis] == Dim(0)) return absl::InvalidArgumentError(absl::StrCat(x.ToString(), " has no pixels"));
  }
  std::vector<Dim> dims(grid.dims.begin(), grid.dims.end() - 1);
  dims.push_back(x.dims.back());
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferReverseSequence(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  INLAY_ASSIGN_OR_RETURN(int batch, CanonicalAxis(ctx, "batch_axis", x.rank()));
  INLAY_ASSIGN_OR_RETURN(int time, CanonicalAxis(ctx, "time_axis", x.rank()));
  if (batch == time) return absl::InvalidArgumentError("batch_axis and time_axis are the same");
  if (ctx.arg(1).dtype != DType::kI64) return absl::InvalidArgumentError("the lengths must be i64");
  INLAY_RETURN_IF_ERROR(CheckDims(ctx, 1, {x.dims[batch]}, "one length a batch element"));
  return Type(x);
}

INLAY_REGISTER_OP(Schema("full", 0, 0,
                         {Required("shape", AttrKind::kInts), MayBeAbsent("dims", AttrKind::kStrings),
                          Required("value", AttrKind::kNumber), Required("dtype", AttrKind::kDType)},
                         OpPattern::kInjective, InferFull));
INLAY_REGISTER_OP(Schema("iota", 0, 0,
                         {Required("shape", AttrKind::kInts), MayBeAbsent("dims", AttrKind::kStrings),
                          Required("axis", AttrKind::kInt), Required("dtype", AttrKind::kDType)},
                         OpPattern::kInjective, InferIota));
INLAY_REGISTER_OP(Schema(
    "resize", 1, 1,
    {Required("sizes", AttrKind::kInts), MayBeAbsent("dims", AttrKind::kStrings), Required("scales", AttrKind::kFloats),
     RequiredChoice("mode", {"nearest", "linear", "cubic"}),
     RequiredChoice("coordinate",
                    {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}),
     Choice("nearest_mode", "round_prefer_floor", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}),
     WithDefault("cubic_coeff", AttrKind::kFloat, -0.75), WithDefault("exclude_outside", AttrKind::kBool, false)},
    OpPattern::kOpaque, InferResize));
INLAY_REGISTER_OP(Schema("grid_sample", 2, 2,
                         {Choice("mode", "linear", {"linear", "nearest"}),
                          Choice("coordinate", "half_pixel", {"half_pixel", "align_corners", "pixel"}),
                          Choice("padding", "zeros", {"zeros", "border", "reflection"})},
                         OpPattern::kOpaque, InferGridSample));
INLAY_REGISTER_OP(Schema("reverse_sequence", 2, 2,
                         {WithDefault("batch_axis", AttrKind::kInt, int64_t{1}),
                          WithDefault("time_axis", AttrKind::kInt, int64_t{0})},
                         OpPattern::kInjective, InferReverseSequence));

}  // namespace
}  // namespace inlay::ir::ops
