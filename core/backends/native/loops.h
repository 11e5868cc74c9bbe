// Loop shapes that several lowerings share.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOOPS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOOPS_H_

#include <functional>
#include <vector>

#include "core/backends/native/eval.h"

namespace inlay::native {

using Values = std::vector<mlir::Value>;

// Nested loops over `shape`, with values carried through all of them.
Values LoopNest(Ops& o, const std::vector<int64_t>& shape, const Values& init,
                const std::function<Values(const Indices& at, const Values& carried)>& body);

// Loops over `shape` with vectors of `lanes` along its last dimension, which is at least that long (or empty). A last
// vector that would reach over the end starts earlier; `fresh` is then a constant mask of the lanes that were not seen
// before, else null. linear: the offset of the first lane in row-major order.
struct VectorPoint {
  Indices at;
  mlir::Value linear;
  mlir::Value fresh;
};
Values VectorLoop(Ops& o, const std::vector<int64_t>& shape, int64_t lanes, const Values& init,
                  const std::function<Values(const VectorPoint& point, const Values& carried)>& body);

// A mask with the last (first) `count` of `lanes` lanes set.
mlir::Value LastLanes(Ops& o, int64_t lanes, int64_t count);
mlir::Value FirstLanes(Ops& o, int64_t lanes, int64_t count);

inline int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOOPS_H_
