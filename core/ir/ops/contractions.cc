// matmul and convolutions: OPS.md, "Contractions".
#include "core/ir/ops/windows.h"

namespace inlay::ir::ops {
namespace {

// Of sums of products: the arguments' own, or i32 where these are of 8 bits, each signed or not.
absl::StatusOr<DType> CheckedProducts(const InferContext& ctx, DTypes allowed, bool integer) {
  if (!integer) {
    INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, allowed));
    INLAY_RETURN_IF_ERROR(CheckSameDType(ctx));
    return ctx.arg(0).dtype;
  }
  for (int i = 0; i < 2; ++i) {
    if (ctx.arg(i).dtype != DType::kI8 && ctx.arg(i).dtype != DType::kU8) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", i, " is ", ctx.arg(i).ToString(), "; its elements must be i8 or u8"));
    }
  }
  return DType::kI32;
}

absl::StatusOr<Type> InferMatmul(const InferContext& ctx, bool integer) {
  INLAY_ASSIGN_OR_RETURN(const DType dtype, CheckedProducts(ctx, DTypes::kN, integer));
  std::vector<Dim> a = ctx.arg(0).dims, b = ctx.arg(1).dims;
  if (a.empty() || b.empty()) {
    return absl::InvalidArgumentError("a matmul argument of rank 0; the lowest rank is 1");
  }
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  if ((vector_a && ctx.attrs.Bool("transpose_a")) || (vector_b && ctx.attrs.Bool("transpose_b"))) {
    return absl::InvalidArgumentError("a vector can't be transposed");
  }
  if (vector_a) a.insert(a.begin(), 1);
  if (vector_b) b.push_back(1);
  if (ctx.attrs.Bool("transpose_a")) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (ctx.attrs.Bool("transpose_b")) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const Dim m = a[a.size() - 2], n = b.back(), k = a.back();
  if (k != b[b.size() - 2]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the contracted extents differ: ", k.ToString(), " of ", ctx.arg(0).ToString(), " against ",
        b[b.size() - 2].ToString(), " of ", ctx.arg(1).ToString(), ctx.attrs.Bool("transpose_a") ? ", transpose_a" : "",
        ctx.attrs.Bool("transpose_b") ? ", transpose_b" : ""));
  }
  a.resize(a.size() - 2, 0);
  b.resize(b.size() - 2, 0);
  INLAY_ASSIGN_OR_RETURN(std::vector<Dim> dims, Broadcast(a, b));
  if (!vector_a) dims.push_back(m);
  if (!vector_b) dims.push_back(n);
  return Type(TensorType{dtype, std::move(dims)});
}

absl::StatusOr<Type> InferMatmulNbits(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
  const TensorType &a = ctx.arg(0), &b = ctx.arg(1);
  if (a.dtype == DType::kF64) {
    return absl::InvalidArgumentError(absl::StrCat("a is ", a.ToString(), "; its elements must be f16, bf16 or f32"));
  }
  const int64_t bits = ctx.attrs.Int("bits");
  if (bits != 2 && bits != 4 && bits != 8) {
    return absl::InvalidArgumentError(absl::StrCat("bits is ", bits, "; it must be 2, 4 or 8"));
  }
  if (a.rank() == 0) return absl::InvalidArgumentError("a has rank 0; the lowest rank is 1");
  INLAY_RETURN_IF_ERROR(CheckRank(ctx, 1, 3));
  INLAY_ASSIGN_OR_RETURN(const int64_t k, StaticExtent(a, a.rank() - 1, "matmul_nbits"));
  if (b.dtype != DType::kU8 || !b.is_static()) {
    return absl::InvalidArgumentError(absl::StrCat("b is ", b.ToString(), "; it must be u8 of a known shape"));
  }
  const int64_t blocks = b.dims[1].value(), bytes = b.dims[2].value(), numbers = bytes * (8 / bits);
  if (bytes == 0 || bytes % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of b, ", b.ToString(), ", has ", bytes, " bytes; it must be a multiple of 4"));
  }
  if (blocks != k / numbers + (k % numbers != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("b, ", b.ToString(), ", has ", blocks, " blocks of ", numbers,
                                                   " numbers for the ", k, " columns of ", a.ToString()));
  }
  for (int i = 2; i < static_cast<int>(ctx.args.size()); ++i) {
    if (ctx.arg(i).dtype != a.dtype && (i == 2 || ctx.arg(i).dtype != DType::kU8)) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", i, " is ", ctx.arg(i).ToString(),
                                                     "; its elements must be ", Name(a.dtype), i == 2 ? "" : " or u8"));
    }
    INLAY_RETURN_IF_ERROR(CheckDims(ctx, i, {b.dims[0], b.dims[1]}, "one value a block"));
  }
  std::vector<Dim> dims = a.dims;
  dims.back() = b.dims[0];
  return Type(TensorType{a.dtype, std::move(dims)});
}

absl::StatusOr<Type> InferGatherMatmul(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, DTypes::kF));
  INLAY_RETURN_IF_ERROR(CheckRank(ctx, 0, 2));
  INLAY_RETURN_IF_ERROR(CheckRank(ctx, 1, 3));
  INLAY_RETURN_IF_ERROR(CheckRank(ctx, 2, 1));
  const TensorType &a = ctx.arg(0), &b = ctx.arg(1), &which = ctx.arg(2);
  if (b.dtype != a.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("b is ", b.ToString(), "; its elements must be ", Name(a.dtype), ", as a's"));
  }
  if (which.dtype != DType::kI32 && which.dtype != DType::kI64) {
    return absl::InvalidArgumentError(absl::StrCat("which is ", which.ToString(), "; its elements must be i32 or i64"));
  }
  if (!b.is_static() || b.dims[0] == Dim(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("b is ", b.ToString(), "; it must be one matrix or more, of a known shape"));
  }
  const bool transposed = ctx.attrs.Bool("transpose_b");
  const Dim k = b.dims[transposed ? 2 : 1], n = b.dims[transposed ? 1 : 2];
  if (a.dims[1] != k) {
    return absl::InvalidArgumentError(absl::StrCat("the contracted extents differ: ", a.dims[1].ToString(), " of ",
                                                   a.ToString(), " against ", k.ToString(), " of ", b.ToString(),
                                                   transposed ? ", transpose_b" : ""));
  }
  INLAY_RETURN_IF_ERROR(CheckDims(ctx, 2, {a.dims[0]}, "one value a row of a"));
  return Type(TensorType{a.dtype, {a.dims[0], n}});
}

absl::StatusOr<int64_t> GetGroups(const InferContext& ctx) {
  const int64_t groups = ctx.attrs.Int("groups");
  if (groups < 1) return absl::InvalidArgumentError(absl::StrCat("groups is ", groups, "; it must be at least 1"));
  return groups;
}

absl::StatusOr<std::vector<int64_t>> CheckedKernel(const InferContext& ctx) {
  const TensorType& w = ctx.arg(1);
  INLAY_RETURN_IF_ERROR(CheckImage(ctx, 0));
  INLAY_RETURN_IF_ERROR(CheckRank(ctx, 1, ctx.arg(0).rank()));
  if (!w.is_static()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the kernel's extent '", w.FirstSymbol(), "' is symbolic; fix its value"));
  }
  std::vector<int64_t> shape = w.Shape();
  return std::vector<int64_t>(shape.begin() + 2, shape.end());
}

absl::StatusOr<Type> InferConv(const InferContext& ctx, bool integer) {
  INLAY_ASSIGN_OR_RETURN(const DType dtype, CheckedProducts(ctx, DTypes::kF, integer));
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> kernel, CheckedKernel(ctx));
  INLAY_ASSIGN_OR_RETURN(Windows windows, GetWindows(ctx, kernel));
  INLAY_ASSIGN_OR_RETURN(int64_t groups, GetGroups(ctx));
  const TensorType &x = ctx.arg(0), &w = ctx.arg(1);
  if (integer) {
    const int64_t zero = ctx.attrs.Int("x_zero"), least = x.dtype == DType::kI8 ? -128 : 0;
    if (zero < least || zero > least + 255) {
      return absl::InvalidArgumentError(absl::StrCat("x_zero is ", zero, ", which is no element of ", x.ToString()));
    }
  }
  INLAY_ASSIGN_OR_RETURN(int64_t channels, StaticExtent(x, 1, "conv"));
  const int64_t m = w.dims[0].value(), c = w.dims[1].value();
  if (channels % groups != 0 || channels / groups != c || m % groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("x has ", channels, " channels and groups is ", groups,
                                                   "; w must be [M,C/groups,k...] with M a multiple of groups, not ",
                                                   w.ToString()));
  }
  if (ctx.args.size() == 3) INLAY_RETURN_IF_ERROR(CheckDims(ctx, 2, {m}, "one value an output channel"));
  std::vector<Dim> dims = {x.dims[0], m};
  for (size_t i = 0; i < kernel.size(); ++i) {
    INLAY_ASSIGN_OR_RETURN(Dim out, WindowedExtent(x.dims[i + 2], windows, i, false));
    dims.push_back(out);
  }
  return Type(TensorType{dtype, std::move(dims)});
}

// out = (in - 1) * stride - pads + window + output_padding
absl::StatusOr<Type> InferConvTranspose(const InferContext& ctx) {
  INLAY_RETURN_IF_ERROR(CheckedProducts(ctx, DTypes::kF, false).status());
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> kernel, CheckedKernel(ctx));
  INLAY_ASSIGN_OR_RETURN(Windows windows, GetWindows(ctx, kernel));
  INLAY_ASSIGN_OR_RETURN(int64_t groups, GetGroups(ctx));
  const int n = static_cast<int>(kernel.size());
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> extra, CompleteInts(ctx, "output_padding", n, 0, 0, 1 << 24));
  const TensorType &x = ctx.arg(0), &w = ctx.arg(1);
  INLAY_ASSIGN_OR_RETURN(int64_t channels, StaticExtent(x, 1, "conv_transpose"));
  if (channels != w.dims[0].value() || channels % groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat("x has ", channels, " channels and groups is ", groups,
                                                   "; w must be [C,M/groups,k...], not ", w.ToString()));
  }
  INLAY_ASSIGN_OR_RETURN(Dim m, MulDims(w.dims[1], groups));
  if (ctx.args.size() == 3) INLAY_RETURN_IF_ERROR(CheckDims(ctx, 2, {m}, "one value an output channel"));
  std::vector<Dim> dims = {x.dims[0], m};
  for (int i = 0; i < n; ++i) {
    INLAY_ASSIGN_OR_RETURN(Dim out, MulDims(x.dims[i + 2], windows.strides[i]));
    INLAY_ASSIGN_OR_RETURN(out, AddDims(out, windows.Extent(i) + extra[i] - windows.strides[i] - windows.pads_begin[i] -
                                                 windows.pads_end[i]));
    if (out.is_static() && (out.value() < 0 || x.dims[i + 2] == Dim(0))) {
      return absl::InvalidArgumentError(absl::StrCat("spatial axis ", i, " would have ", out.value(), " elements"));
    }
    dims.push_back(out);
  }
  return Type(TensorType{x.dtype, std::move(dims)});
}

std::vector<AttrSpec> MatmulAttrs() {
  return {WithDefault("transpose_a", AttrKind::kBool, false), WithDefault("transpose_b", AttrKind::kBool, false)};
}

std::vector<AttrSpec> ConvAttrs() {
  return {MayBeAbsent("strides", AttrKind::kInts), MayBeAbsent("dilations", AttrKind::kInts),
          MayBeAbsent("pads", AttrKind::kInts), WithDefault("groups", AttrKind::kInt, int64_t{1})};
}

std::vector<AttrSpec> ConvIntegerAttrs() {
  std::vector<AttrSpec> attrs = ConvAttrs();
  attrs.push_back(WithDefault("x_zero", AttrKind::kInt, int64_t{0}));
  return attrs;
}

INLAY_REGISTER_OP(Schema("matmul", 2, 2, MatmulAttrs(), OpPattern::kContraction,
                         [](const InferContext& ctx) { return InferMatmul(ctx, false); }));
INLAY_REGISTER_OP(Schema("matmul_integer", 2, 2, MatmulAttrs(), OpPattern::kContraction,
                         [](const InferContext& ctx) { return InferMatmul(ctx, true); }));
INLAY_REGISTER_OP(Schema("matmul_nbits", 3, 4, {Required("bits", AttrKind::kInt)}, OpPattern::kContraction,
                         InferMatmulNbits));
INLAY_REGISTER_OP(Schema("gather_matmul", 3, 3, {WithDefault("transpose_b", AttrKind::kBool, false)},
                         OpPattern::kContraction, InferGatherMatmul));
INLAY_REGISTER_OP(Schema("conv", 2, 3, ConvAttrs(), OpPattern::kContraction,
                         [](const InferContext& ctx) { return InferConv(ctx, false); }));
INLAY_REGISTER_OP(Schema("conv_integer", 2, 2, ConvIntegerAttrs(), OpPattern::kContraction,
                         [](const InferContext& ctx) { return InferConv(ctx, true); }));
INLAY_REGISTER_OP(Schema("conv_transpose", 2, 3,
                         {MayBeAbsent("strides", AttrKind::kInts), MayBeAbsent("dilations", AttrKind::kInts),
                          MayBeAbsent("pads", AttrKind::kInts), MayBeAbsent("output_padding", AttrKind::kInts),
                          WithDefault("groups", AttrKind::kInt, int64_t{1})},
                         OpPattern::kContraction, InferConvTranspose));

}  // namespace
}  // namespace inlay::ir::ops
