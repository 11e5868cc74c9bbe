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

ConvShape DepthAsRows(const ConvShape& s) {
  auto is_idle = [&](int axis) {
    return s.kernel[axis] == 1 && s.stride[axis] == 1 && s.input_dilation[axis] == 1 && s.pad[axis] == 0 &&
           s.in[axis] == s.out[axis];
  };
  if (s.kernel[0] == 1 || !is_idle(1) || !is_idle(2)) return s;
  ConvShape flat = s;
  const int64_t slice = s.in[1] * s.in[2];
  flat.in = {1, s.in[0], slice};
  flat.out = {1, s.out[0], slice};
  flat.kernel = {1, s.kernel[0], 1};
  flat.stride = {1, s.stride[0], 1};
  flat.dilation = {1, s.dilation[0], 1};
  flat.input_dilation = {1, s.input_dilation[0], 1};
  flat.pad = {0, s.pad[0], 0};
  return flat;
}

}  // namespace inlay::native
