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
  int open;
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, ShapeAttr(ctx, &open));
  INLAY_ASSIGN_OR_RETURN(Dim from, Product(x.dims));
  INLAY_ASSIGN_OR_RETURN(Dim to, Product(dims));
  const absl::Status misfit = absl::InvalidArgumentError(absl::StrCat(x.ToString(), " has ", from.ToString(),
                                                                      " elements; they don't fill the shape ",
                                                                      TensorType{x.dtype, dims}.ToString()));
  if (open < 0) {
    if (from != to) return misfit;
    return Type(TensorType{x.dtype, std::move(dims)});
  }
  if (to == Dim(0)) return absl::InvalidArgumentError("-1 in a shape of no elements is ambiguous");
  // Extents that stay are left out: nothing is divided by "n-1".
  std::vector<Dim> left = x.dims, added;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (i == open) continue;
    const auto same = std::find(left.begin(), left.end(), dims[i]);
    if (!dims[i].is_static() && same != left.end()) {
      left.erase(same);
    } else {
      added.push_back(dims[i]);
    }
  }
  INLAY_ASSIGN_OR_RETURN(from, Product(left));
  INLAY_ASSIGN_OR_RETURN(to, Product(added));
  absl::StatusOr<Dim> rest = ExactDivDims(from, to);
  if (!rest.ok()) return misfit;
  dims[open] = *rest;
  if (rest->is_static()) {
    std::vector<int64_t> shape = ctx.attrs.Ints("shape");
    shape[open] = rest->value();
    ctx.attrs.Set("shape", std::move(shape));
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
  std::vector<std::string> names = ctx.attrs.StringsOr("dims", std::vector<std::string>(x.rank()));
  if (static_cast<int>(names.size()) != x.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute 'dims' has ", names.size(), " elements for ", x.ToString()));
  }
  std::vector<Dim> dims;
  for (int i = 0; i < x.rank(); ++i) {
    if (!names[i].empty()) {
      const Dim taken = CanonicalDim(names[i].substr(0, 1024));
      if (taken.is_static() || begins[i] < 0 || steps[i] != 1) {
        return absl::InvalidArgumentError(absl::StrCat("axis ", i, " takes '", names[i].substr(0, 64),
                                                       "' elements: only a symbol's, from a begin of 0 or more, by 1"));
      }
      INLAY_ASSIGN_OR_RETURN(Dim left, MulDims(taken, -1));
      INLAY_ASSIGN_OR_RETURN(left, AddDims(left, x.dims[i]));
      INLAY_ASSIGN_OR_RETURN(left, AddDims(left, -begins[i]));
      if (left.is_static() && left.value() < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", taken.symbol(), "' elements from ", begins[i], " are more than axis ", i, " has"));
      }
      names[i] = taken.symbol();
      ends[i] = INT64_MAX;
      dims.push_back(taken);
      continue;
    }
    if (steps[i] == 0) return absl::InvalidArgumentError(absl::StrCat("the step of axis ", i, " is 0"));
    INLAY_ASSIGN_OR_RETURN(Dim extent, SliceDim(x.dims[i], begins[i], ends[i], steps[i]));
    if (x.dims[i].is_static()) {
      SliceExtent(x.dims[i].value(), &begins[i], &ends[i], steps[i]);
      if (extent == Dim(0)) begins[i] = ends[i] = 0;
      if (ends[i] < 0) ends[i] = INT64_MIN;  // -1 would count from the back
    }
    dims.push_back(std::move(extent));
  }
  ctx.attrs.Set("begins", std::move(begins));
  ctx.attrs.Set("ends", std::move(ends));
  if (std::any_of(names.begin(), names.end(), [](const std::string& n) { return !n.empty(); })) {
    ctx.attrs.Set("dims", std::move(names));
  } else {
    ctx.attrs.Erase("dims");
  }
  return Type(TensorType{x.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferExpand(const InferContext& ctx) {
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> wanted, ShapeAttr(ctx, nullptr));
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
    // What is copied in must exist: reflect and wrap reach into the tensor, edge needs one element. Of an open extent a
    // run is asked (required_extents.h).
    if (mode != "constant" && (before > 0 || after > 0) && x.dims[i].is_static()) {
      const int64_t extent = x.dims[i].value();
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

INLAY_REGISTER_OP(Schema("reshape", 1, 1, {Required("shape", AttrKind::kInts), MayBeAbsent("dims", AttrKind::kStrings)},
                         OpPattern::kInjective, InferReshape));
INLAY_REGISTER_OP(Schema("transpose", 1, 1, {Required("perm", AttrKind::kInts)}, OpPattern::kInjective,
                         InferTranspose));
INLAY_REGISTER_OP(Schema("concat", 1, -1, {Required("axis", AttrKind::kInt)}, OpPattern::kInjective, InferConcat));
INLAY_REGISTER_OP(Schema("split", 1, 1, {Required("axis", AttrKind::kInt), Required("sizes", AttrKind::kInts)},
                         OpPattern::kInjective, InferSplit));
INLAY_REGISTER_OP(Schema("slice", 1, 1,
                         {Required("begins", AttrKind::kInts), Required("ends", AttrKind::kInts),
                          MayBeAbsent("steps", AttrKind::kInts), MayBeAbsent("dims", AttrKind::kStrings)},
                         OpPattern::kInjective, InferSlice));
INLAY_REGISTER_OP(Schema("expand", 1, 1, {Required("shape", AttrKind::kInts), MayBeAbsent("dims", AttrKind::kStrings)},
                         OpPattern::kBroadcast, InferExpand));
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
