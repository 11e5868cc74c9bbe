// The windows of convolutions and pooling, from an operator's attributes.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_WINDOWS_H_
#define INLAY_CORE_BACKENDS_CSOURCE_WINDOWS_H_

#include "core/backends/csource/graph.h"

namespace inlay::csource {

struct Windows {
  Shape kernel, strides, dilations, pads;  // pads at the beginnings
  Shape pads_end;
  int rank() const { return static_cast<int>(kernel.size()); }
  int64_t taps() const { return Product(kernel, 0, rank()); }
};

inline Windows WindowsOf(const ir::Attrs& attrs, Shape kernel) {
  Windows w;
  const size_t n = kernel.size();
  w.kernel = std::move(kernel);
  w.strides = attrs.IntsOr("strides", Shape(n, 1));
  w.dilations = attrs.IntsOr("dilations", Shape(n, 1));
  const Shape pads = attrs.IntsOr("pads", Shape(2 * n, 0));
  w.pads.assign(pads.begin(), pads.begin() + static_cast<int64_t>(n));
  w.pads_end.assign(pads.begin() + static_cast<int64_t>(n), pads.end());
  return w;
}

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_WINDOWS_H_
