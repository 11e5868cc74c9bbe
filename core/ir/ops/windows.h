// Extents of sliding windows: what convolutions and pooling share. Private to core/ir/ops.
#ifndef INLAY_CORE_IR_OPS_WINDOWS_H_
#define INLAY_CORE_IR_OPS_WINDOWS_H_

#include "core/ir/ops/common.h"

namespace inlay::ir::ops {

// strides, dilations (ones) and pads (zeros) of x's spatial axes, completed in the attributes and checked.
struct Windows {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end;

  int64_t Extent(int i) const { return (kernel[i] - 1) * dilations[i] + 1; }  // checked not to overflow
};
absl::StatusOr<Windows> GetWindows(const InferContext& ctx, const std::vector<int64_t>& kernel);

// x is [N,C,s...] with 1 to 3 spatial axes.
absl::Status CheckImage(const InferContext& ctx, int arg);

// floor((in + pads - extent) / stride) + 1, or its ceil_mode.
absl::StatusOr<Dim> WindowedExtent(const Dim& in, const Windows& windows, int i, bool ceil_mode);

}  // namespace inlay::ir::ops

#endif  // INLAY_CORE_IR_OPS_WINDOWS_H_
