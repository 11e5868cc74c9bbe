// Pooling: OPS.md, "Pooling".
#include "core/ir/ops/windows.h"

namespace inlay::ir::ops {
namespace {

OpSchema Pool(std::string name, DTypes dtypes, std::vector<AttrSpec> more) {
  std::vector<AttrSpec> attrs = {Required("kernel", AttrKind::kInts), MayBeAbsent("strides", AttrKind::kInts),
                                 MayBeAbsent("dilations", AttrKind::kInts), MayBeAbsent("pads", AttrKind::kInts),
                                 WithDefault("ceil_mode", AttrKind::kBool, false)};
  attrs.insert(attrs.end(), more.begin(), more.end());
  return Schema(
      std::move(name), 1, 1, std::move(attrs), OpPattern::kReduction,
      [dtypes](const InferContext& ctx) -> absl::StatusOr<Type> {
        INLAY_RETURN_IF_ERROR(CheckDType(ctx, 0, dtypes));
        INLAY_RETURN_IF_ERROR(CheckImage(ctx, 0));
        const TensorType& x = ctx.arg(0);
        const std::vector<int64_t>& kernel = ctx.attrs.Ints("kernel");
        if (static_cast<int>(kernel.size()) != x.rank() - 2) {
          return absl::InvalidArgumentError(absl::StrCat("attribute 'kernel' has ", kernel.size(), " elements; x has ",
                                                         x.rank() - 2, " spatial axes"));
        }
        INLAY_ASSIGN_OR_RETURN(Windows windows, GetWindows(ctx, kernel));
        std::vector<Dim> dims = {x.dims[0], x.dims[1]};
        for (size_t i = 0; i < kernel.size(); ++i) {
          // A window that holds padding only has no maximum and no mean.
          if (windows.pads_begin[i] >= windows.Extent(i) || windows.pads_end[i] >= windows.Extent(i)) {
            return absl::InvalidArgumentError(absl::StrCat(
                "the pads of spatial axis ", i, " must be smaller than the window, which spans ", windows.Extent(i)));
          }
          INLAY_ASSIGN_OR_RETURN(Dim out, WindowedExtent(x.dims[i + 2], windows, i, ctx.attrs.Bool("ceil_mode")));
          dims.push_back(out);
        }
        return Type(TensorType{x.dtype, std::move(dims)});
      });
}

INLAY_REGISTER_OP(Pool("max_pool", DTypes::kN, {}));
INLAY_REGISTER_OP(Pool("avg_pool", DTypes::kF, {WithDefault("count_include_pad", AttrKind::kBool, false)}));

}  // namespace
}  // namespace inlay::ir::ops
