#include "core/backends/native/conv_shape.h"

#include <algorithm>

#include "core/backends/native/lowerings/windows.h"

namespace inlay::native {
namespace {

// One to three spatial axes, behind the first `skip`, as three: the missing ones in front.
Spatial ThreeAxes(const std::vector<int64_t>& values, int skip, int64_t absent) {
  Spatial result = {absent, absent, absent};
  std::copy(values.begin() + skip, values.end(), result.end() - (values.size() - skip));
  return result;
}

}  // namespace

ConvShape ConvShapeOf(const ir::Attrs& attrs, const std::vector<int64_t>& x, const std::vector<int64_t>& w,
                      const std::vector<int64_t>& out, bool transposed) {
  const Windows windows(attrs, {w.begin() + 2, w.end()});
  const int64_t groups = attrs.IntOr("groups", 1);
  const Spatial in = ThreeAxes(x, 2, 1), taps = ThreeAxes(w, 2, 1), pixels = ThreeAxes(out, 1, 1);
  const Spatial strides = ThreeAxes(windows.strides, 0, 1), dilations = ThreeAxes(windows.dilations, 0, 1);
  const Spatial pads = ThreeAxes(windows.pads_begin, 0, 0);
  if (transposed) {
    return TransposedConvShape(x[0], x[1], out[0], groups, in, taps, strides, dilations, pads, pixels);
  }
  return {x[0], x[1], out[0], groups, in, taps, strides, dilations, pads, pixels, {1, 1, 1}};
}

}  // namespace inlay::native
