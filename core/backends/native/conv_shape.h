// ConvShape of a call of conv or conv_transpose. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CONV_SHAPE_H_
#define INLAY_CORE_BACKENDS_NATIVE_CONV_SHAPE_H_

#include <vector>

#include "core/backends/native/conv_plan.h"
#include "core/ir/attrs.h"

namespace inlay::native {

// `x` and `w` as they are; `out`: the result without its images, [channels, spatial...].
ConvShape ConvShapeOf(const ir::Attrs& attrs, const std::vector<int64_t>& x, const std::vector<int64_t>& w,
                      const std::vector<int64_t>& out, bool transposed);

// The same convolution, of an image: a kernel in depth alone, as of the two halves of a (2 + 1)-dimensional one, is one
// along the columns of an image of which slices are the rows. Others as they are.
ConvShape DepthAsRows(const ConvShape& shape);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CONV_SHAPE_H_
