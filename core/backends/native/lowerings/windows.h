// Sliding windows over the spatial axes of [N, C, s...], as convolution and pooling attributes describe them.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WINDOWS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WINDOWS_H_

#include <cstdint>
#include <vector>

#include "core/ir/attrs.h"

namespace inlay::native {

struct Windows {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end;

  Windows(const ir::Attrs& attrs, std::vector<int64_t> kernel_extents) : kernel(std::move(kernel_extents)) {
    size_t spatial = kernel.size();
    strides = attrs.IntsOr("strides", std::vector<int64_t>(spatial, 1));
    dilations = attrs.IntsOr("dilations", std::vector<int64_t>(spatial, 1));
    std::vector<int64_t> pads = attrs.IntsOr("pads", std::vector<int64_t>(2 * spatial, 0));
    pads_begin.assign(pads.begin(), pads.begin() + spatial);
    pads_end.assign(pads.begin() + spatial, pads.end());
  }
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_WINDOWS_H_
