// Extents that follow from another one: what shape inference derives when a model is compiled (core/ir/ops), and
// executor vm when it runs (core/runtime/open_shapes.h). One definition for both; no dependency, for it goes into
// exported libraries.
#ifndef INLAY_CORE_BASE_EXTENTS_H_
#define INLAY_CORE_BASE_EXTENTS_H_

#include <algorithm>
#include <cstdint>

namespace inlay {

// floor(a / divisor), divisor > 0.
inline int64_t FloorDivExtent(int64_t a, int64_t divisor) {
  const int64_t q = a / divisor;
  return a % divisor < 0 ? q - 1 : q;
}

// NumPy's slice of an axis with `extent` >= 0 elements, step != 0: how many it takes. *begin and *end become clamped
// positions (with a negative step, an end of -1: through the first).
inline int64_t SliceExtent(int64_t extent, int64_t* begin, int64_t* end, int64_t step) {
  auto clamp = [&](int64_t v) {
    if (v < 0) v = v < -extent ? -1 : v + extent;  // no overflow for INT64_MIN
    return std::max<int64_t>(step > 0 ? 0 : -1, std::min(v, step > 0 ? extent : extent - 1));
  };
  *begin = clamp(*begin);
  *end = clamp(*end);
  if (step > 0) return *end > *begin ? (*end - *begin - 1) / step + 1 : 0;
  const uint64_t magnitude = 0 - static_cast<uint64_t>(step);
  return *begin > *end ? static_cast<int64_t>((*begin - *end - 1) / magnitude) + 1 : 0;
}

// Of a pooling in ceil mode: how many windows there are in `in` elements between pads; one that would start in the end
// padding is none. `window` is what one spans, dilation included; -1 where `in` does not hold one. Arguments of 0 to
// 2^48.
inline int64_t CeilPoolExtent(int64_t in, int64_t window, int64_t stride, int64_t pad_begin, int64_t pad_end) {
  const int64_t room = in + pad_begin + pad_end - window;
  if (room < 0) return -1;
  const int64_t out = room / stride + 1;
  return room % stride != 0 && out * stride < in + pad_begin ? out + 1 : out;
}

}  // namespace inlay

#endif  // INLAY_CORE_BASE_EXTENTS_H_
