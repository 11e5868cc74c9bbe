// Arithmetic on dims: how the operators' tensors look to oneDNN's primitives. Pure functions.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_VIEWS_H_
#define INLAY_CORE_BACKENDS_ONEDNN_VIEWS_H_

#include "absl/types/optional.h"
#include "core/backends/onednn/description.h"

namespace inlay::onednn {

Dims RowMajorStrides(const Dims& dims);

// Ones in front, up to `rank`.
Dims AlignRank(Dims dims, size_t rank);

// `operand` broadcasts to `own`, whose elements a step sees as `seen` (axes joined or split, ones added). The dims of
// the operand as the step sees it; nullopt: it broadcasts along a part of what was joined.
absl::optional<Dims> RegroupBroadcast(const Dims& own, const Dims& seen, const Dims& operand);

// Whether the primitives' generated kernels can broadcast an operand of these dims in a post-op: a scalar, one value a
// channel, or no broadcast. Anything else would push oneDNN to its reference kernels.
bool IsFastBroadcast(const Dims& operand, const Dims& out, bool channel_is_last);

// A matmul's arguments and result as oneDNN wants them: equal ranks of 2 or more; joined axes where that makes one big
// product of many small ones. Strides are empty where row-major.
struct MatmulViews {
  Dims a, a_strides, b, b_strides, out;
};
MatmulViews ViewsOfMatmul(Dims a, Dims b, bool transpose_a, bool transpose_b);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_VIEWS_H_
