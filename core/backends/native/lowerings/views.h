// Views: tensors that are read through another's memory with strides (a transpose of heads, one part of a split, a
// slice), so that a contraction can take them where they lie.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_VIEWS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_VIEWS_H_

#include <cstdint>
#include <vector>

#include "core/backends/native/graph.h"

namespace inlay::native {

// Element i of the tensor is element offset + sum_d i[d] * strides[d] of `base`, which has memory.
struct View {
  const Tensor* base = nullptr;
  Extent offset;
  Shape strides;
};

// Of a reshape: whether it is read through its argument instead of being another name of the argument's memory. So
// where dimensions of extent 1 come and go; and where dimensions are split of what is no memory itself, such as heads
// of one part of a split.
bool IsReadThrough(const Node& reshape);

// Before fusion has decided what has memory: whether the tensor will be memory or a view of it, if its consumer does
// not ask for memory.
bool CanBeView(const Tensor& tensor);

// Afterwards. False: it has to be computed.
bool ResolveView(const Tensor& tensor, View* view);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_VIEWS_H_
