#include "core/ir/ops/windows.h"

#include "core/base/extents.h"

namespace inlay::ir::ops {
namespace {

// No real model comes near; keeps every sum and product of these far from overflow.
constexpr int64_t kMaxWindow = int64_t{1} << 24;

}  // namespace

absl::StatusOr<Windows> GetWindows(const InferContext& ctx, const std::vector<int64_t>& kernel) {
  const int n = static_cast<int>(kernel.size());
  Windows w;
  w.kernel = kernel;
  for (int64_t k : kernel) {
    if (k < 1 || k > kMaxWindow) {
      return absl::InvalidArgumentError(absl::StrCat("a kernel extent of ", k, "; it must be 1 to ", kMaxWindow));
    }
  }
  INLAY_ASSIGN_OR_RETURN(w.strides, CompleteInts(ctx, "strides", n, 1, 1, kMaxWindow));
  INLAY_ASSIGN_OR_RETURN(w.dilations, CompleteInts(ctx, "dilations", n, 1, 1, kMaxWindow));
  INLAY_ASSIGN_OR_RETURN(std::vector<int64_t> pads, CompleteInts(ctx, "pads", 2 * n, 0, 0, kMaxWindow));
  w.pads_begin.assign(pads.begin(), pads.begin() + n);
  w.pads_end.assign(pads.begin() + n, pads.end());
  return w;
}

absl::Status CheckImage(const InferContext& ctx, int arg) {
  const TensorType& x = ctx.arg(arg);
  if (x.rank() >= 3 && x.rank() <= 5) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("argument ", arg, " is ", x.ToString(),
                                                 "; it must be [N,C,s...] with 1 to 3 spatial axes (rank 3 to 5)"));
}

absl::StatusOr<Dim> WindowedExtent(const Dim& in, const Windows& w, int i, bool ceil_mode) {
  const int64_t stride = w.strides[i];
  INLAY_ASSIGN_OR_RETURN(Dim room, AddDims(in, w.pads_begin[i] + w.pads_end[i] - w.Extent(i)));
  if (!room.is_static()) {
    // Rounded up, the last window stays if it starts before the pads at the end: where it reaches over these and a step
    // more it always does, else its fate depends on the number.
    if (!ceil_mode || stride == 1 || w.pads_end[i] + stride <= w.Extent(i)) {
      if (ceil_mode) {
        INLAY_ASSIGN_OR_RETURN(room, AddDims(room, stride - 1));
      }
      INLAY_ASSIGN_OR_RETURN(Dim steps, FloorDivDims(room, stride));
      return AddDims(steps, 1);
    }
    return OpaqueDim("pool", {in.symbol(), absl::StrCat(w.Extent(i)), absl::StrCat(stride),
                              absl::StrCat(w.pads_begin[i]), absl::StrCat(w.pads_end[i])});
  }
  if (room.value() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the window spans ", w.Extent(i), " elements, spatial axis ", i,
                                                   " has ", in.value(), " and pads ", w.pads_begin[i], " + ",
                                                   w.pads_end[i]));
  }
  if (ceil_mode) return Dim(CeilPoolExtent(in.value(), w.Extent(i), stride, w.pads_begin[i], w.pads_end[i]));
  return Dim(room.value() / stride + 1);
}

}  // namespace inlay::ir::ops
