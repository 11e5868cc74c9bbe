// Operators that move data without looking at it: OPS.md, "Moving data".
#include <algorithm>

#include "absl/strings/str_join.h"
#include "core/base/extents.h"
#include "core/ir/ops/common.h"

namespace inlay::ir::ops {
namespace {

absl::StatusOr<Dim> Product(const std::vector<Dim>& dims) {
  Dim product = 1;
  for (const Dim& d : dims) {
    INLAY_ASSIGN_OR_RETURN(product, MulDims(product, d));
  }
  return product;
}

absl::StatusOr<Type> InferReshape(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  std::vector<int64_t> shape = ctx.attrs.Ints("shape");
  std::vector<Dim> dims;
  int open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < -1 || (shape[i] == -1 && open >= 0)) {
      return absl::InvalidArgumentError(absl::StrCat("attribute 'shape' is [", absl::StrJoin(shape, ", "),
                                                     "]; its elements are extents, and one may be -1"));
    }
    if (shape[i] == -1) open = static_cast<int>(i);
    dims.push_back(shape[i] == -1 ? 1 : shape[i]);
  }
  INLAY_ASSIGN_OR_RETURN(Dim from, Product(x.dims));
  INLAY_ASSIGN_OR_RETURN(Dim to, Product(dims));
  const absl::Status misfit = absl::InvalidArgumentError(absl::StrCat(x.ToString(), " has ", from.ToString(),
                                                                      " elements; they don't fill the shape [",
                                                                      absl::StrJoin(shape, ", "), "]"));
  if (open < 0) {
    if (from != to) return misfit;
    return Type(TensorType{x.dtype, std::move(dims)});
  }
  if (to == Dim(0)) return absl::InvalidArgumentError("-1 in a shape of no elements is ambiguous");
  absl::StatusOr<Dim> rest = ExactDivDims(from, to);
  if (!rest.ok()) return misfit;
  dims[open] = *rest;
  if (rest->is_static()) {
    shape[open] = rest->value();
    ctx.attrs.Set("shape", shape);
  }
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferTranspose(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  std::vector<int64_t> perm = ctx.attrs.Ints("perm");
  std::vector<bool> seen(x.rank());
  std::vector<Dim> dims;
  for (int64_t& p : perm) {
    if (p < 0) p += x.rank();
    if (p < 0 || p >= x.rank() || seen[p]) break;
    seen[p] = true;
    dims.push_back(x.dims[p]);
  }
  if (static_cast<int>(perm.size()) != x.rank() || dims.size() != perm.size()) {
    return absl::InvalidArgumentError(absl::StrCat("attribute 'perm' is [", absl::StrJoin(perm, ", "),
                                                   "]; it must be a permutation of the ", x.rank(), " axes of ",
                                                   x.ToString()));
  }
  ctx.attrs.Set("perm", std::move(perm));
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferConcat(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
  INLAY_ASSIGN_OR_RETURN(int axis, CanonicalAxis(ctx, "axis", ctx.arg(0).rank()));
  std::vector<Dim> dims = ctx.arg(0).dims;
  for (size_t i = 1; i < ctx.args.size(); ++i) {
    const TensorType& x = ctx.arg(static_cast<int>(i));
    bool fits = x.rank() == static_cast<int>(dims.size());
    for (int d = 0; fits && d < x.rank(); ++d) fits = d == axis || x.dims[d] == dims[d];
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", i, " is ", x.ToString(), "; it must equal ",
                                                     ctx.arg(0).ToString(), " but for axis ", axis));
    }
    INLAY_ASSIGN_OR_RETURN(dims[axis], AddDims(dims[axis], x.dims[axis]));
  }
  return Type(TensorType{ctx.arg(0).dtype, std::move(dims)});
}

absl::StatusOr<Type> InferSplit(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  INLAY_ASSIGN_OR_RETURN(int axis, CanonicalAxis(ctx, "axis", x.rank()));
  INLAY_ASSIGN_OR_RETURN(int64_t extent, StaticExtent(x, axis, "split"));
  TupleType tuple;
  int64_t sum = 0;
  bool fits = true;
  for (int64_t size : ctx.attrs.Ints("sizes")) {
    fits = fits && size >= 0 && !__builtin_add_overflow(sum, size, &sum);
    TensorType part = x;
    part.dims[axis] = size;
    tuple.fields.push_back(std::move(part));
  }
  if (!fits || sum != extent || tuple.fields.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the sizes [", absl::StrJoin(ctx.attrs.Ints("sizes"), ", "),
                                                   "] don't add up to the ", extent, " elements along axis ", axis));
  }
  return Type(std::move(tuple));
}

absl::StatusOr<Type> InferSlice(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> begins, CompleteInts(ctx, "begins", x.rank(), 0, INT64_MIN));
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> ends, CompleteInts(ctx, "ends", x.rank(), INT64_MAX, INT64_MIN));
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> steps, CompleteInts(ctx, "steps", x.rank(), 1, INT64_MIN));
  std::vector<Dim> dims;
  for (int i = 0; i < x.rank(); ++i) {
    if (steps[i] == 0) return absl::InvalidArgumentError(absl::StrCat("the step of axis ", i, " is 0"));
    if (x.dims[i].is_static()) {
      int64_t extent = SliceExtent(x.dims[i].value(), &begins[i], &ends[i], steps[i]);
      if (extent == 0) begins[i] = ends[i] = 0;
      if (ends[i] < 0) ends[i] = INT64_MIN;  // -1 would count from the back
      dims.push_back(extent);
    } else if (begins[i] == 0 && ends[i] == INT64_MAX && steps[i] == 1) {
      dims.push_back(x.dims[i]);
    } else {
      dims.push_back(OpaqueDim(
          "slice", {x.dims[i].symbol(), absl::StrCat(begins[i]), absl::StrCat(ends[i]), absl::StrCat(steps[i])}));
    }
  }
  ctx.attrs.Set("begins", std::move(begins));
  ctx.attrs.Set("ends", std::move(ends));
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferExpand(const InferContext& ctx) {
  std::vector<Dim> wanted;
  for (int64_t extent : ctx.attrs.Ints("shape")) {
    if (extent < 0) return absl::InvalidArgumentError(absl::StrCat("attribute 'shape' holds ", extent));
    wanted.push_back(extent);
  }
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(ctx.arg(0).dims, wanted));
  TensorType result{ctx.arg(0).dtype, std::move(dims)};
  if (result.is_static()) ctx.attrs.Set("shape", result.Shape());
  return Type(std::move(result));
}

absl::StatusOr<Type> InferPad(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  const int rank = x.rank();
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> pads,
                         CompleteInts(ctx, "pads", 2 * rank, 0, -kMaxTensorBytes, kMaxTensorBytes));
  const std::string& mode = ctx.attrs.String("mode");
  std::vector<Dim> dims;
  for (int i = 0; i < rank; ++i) {
    const int64_t before = pads[i], after = pads[i + rank];
    INLAY_ASSIGN_OR_RETURN(Dim out, AddDims(x.dims[i], before + after));
    if (out.is_static() && out.value() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("the pads crop more than all of axis ", i));
    }
    // What is copied in must exist: reflect and wrap reach into the tensor, edge needs one element.
    if (mode != "constant" && (before > 0 || after > 0)) {
      INLAY_ASSIGN_OR_RETURN(int64_t extent, StaticExtent(x, i, absl::StrCat("pad in mode ", mode)));
      const int64_t most = mode == "edge" ? (extent > 0 ? kMaxTensorBytes : 0) : mode == "wrap" ? extent : extent - 1;
      if (before > most || after > most) {
        return absl::InvalidArgumentError(absl::StrCat("mode ", mode, " can pad axis ", i, " of ", x.ToString(),
                                                       " by at most ", std::max<int64_t>(most, 0)));
      }
    }
    dims.push_back(out);
  }
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferTile(const InferContext& ctx) {
  const TensorType& x = ctx.arg(0);
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> repeats, CompleteInts(ctx, "repeats", x.rank(), 1, 0));
  std::vector<Dim> dims;
  for (int i = 0; i < x.rank(); ++i) {
    INLAY_ASSIGN_OR_RETURN(Dim dim, MulDims(x.dims[i], repeats[i]));
    dims.push_back(dim);
  }
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferTrilu(const InferContext& ctx) {
  if (ctx.arg(0).rank() < 2) return absl::InvalidArgumentError("trilu works on the last two axes; the rank is below 2");
  return Type(ctx.arg(0));
}

INLAY_REGISTER_OP(Schema("reshape", 1, 1, {Required("shape", AttrKind::kInts)}, OpPattern::kInjective, InferReshape));
INLAY_REGISTER_OP(Schema("transpose", 1, 1, {Required("perm", AttrKind::kInts)}, OpPattern::kInjective,
                         InferTranspose));
INLAY_REGISTER_OP(Schema("concat", 1, -1, {Required("axis", AttrKind::kInt)}, OpPattern::kInjective, InferConcat));
INLAY_REGISTER_OP(Schema("split", 1, 1, {Required("axis", AttrKind::kInt), Required("sizes", AttrKind::kInts)},
                         OpPattern::kInjective, InferSplit));
INLAY_REGISTER_OP(Schema("slice", 1, 1,
                         {Required("begins", AttrKind::kInts), Required("ends", AttrKind::kInts),
                          MayBeAbsent("steps", AttrKind::kInts)},
                         OpPattern::kInjective, InferSlice));
INLAY_REGISTER_OP(Schema("expand", 1, 1, {Required("shape", AttrKind::kInts)}, OpPattern::kBroadcast, InferExpand));
INLAY_REGISTER_OP(Schema("pad", 1, 1,
                         {Required("pads", AttrKind::kInts),
                          Choice("mode", "constant", {"constant", "reflect", "edge", "wrap"}),
                          WithDefault("value", AttrKind::kNumber, 0.0)},
                         OpPattern::kInjective, InferPad));
INLAY_REGISTER_OP(Schema("tile", 1, 1, {Required("repeats", AttrKind::kInts)}, OpPattern::kInjective, InferTile));
INLAY_REGISTER_OP(Schema("trilu", 1, 1,
                         {WithDefault("upper", AttrKind::kBool, true), WithDefault("k", AttrKind::kInt, int64_t{0})},
                         OpPattern::kInjective, InferTrilu));

}  // namespace
}  // namespace inlay::ir::ops
