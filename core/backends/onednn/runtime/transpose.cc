#include "core/backends/onednn/runtime/transpose.h"

#include <functional>
#include <numeric>

#include "core/backends/onednn/runtime/layout.h"

namespace inlay::onednn {
namespace {

// [N,C,s...] with the channels last.
dnnl::memory::desc ChannelsLast(const Dims& dims) {
  Dims strides(dims.size());
  strides[1] = 1;
  int64_t stride = dims[1];
  for (size_t axis = dims.size() - 1; axis >= 2; --axis) {
    strides[axis] = stride;
    stride *= dims[axis];
  }
  strides[0] = stride;
  return PlainLayout(dims, strides);
}

}  // namespace

bool AsTranspose(const dnnl::memory::desc& from, const dnnl::memory::desc& to, Transpose* transpose) {
  const Dims dims = from.get_dims();
  if (dims.size() < 3 || dims.size() > 5) return false;
  const int64_t pixels = std::accumulate(dims.begin() + 2, dims.end(), int64_t{1}, std::multiplies<int64_t>());
  const auto first = PlainLayout(dims), last = ChannelsLast(dims);
  if (SamePlacement(from, first) && SamePlacement(to, last)) {
    *transpose = {dims[0], dims[1], pixels};
    return true;
  }
  *transpose = {dims[0], pixels, dims[1]};
  return SamePlacement(from, last) && SamePlacement(to, first);
}

void RunTranspose(const Transpose& t, const float* from, float* to) {
  const int64_t pieces = t.NumPieces();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < pieces; ++i) backends::TransposePieces(t, from, to, i, i + 1);
}

}  // namespace inlay::onednn
