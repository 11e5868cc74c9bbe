// Loop shapes that several lowerings share.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOOPS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOOPS_H_

#include <functional>
#include <vector>

#include "core/backends/native/eval.h"

namespace inlay::native {

using Values = std::vector<mlir::Value>;

// Nested loops over `shape`, with values carried through all of them.
Values LoopNest(Ops& o, const Shape& shape, const Values& init,
                const std::function<Values(const Indices& at, const Values& carried)>& body);

// Loops over `shape` with vectors of `lanes` along its last dimension, which is at least that long (or empty). A last
// vector that would reach over the end starts earlier; `fresh` is then a mask of the lanes that were not seen before,
// else null. linear: the offset of the first lane in row-major order.
struct VectorPoint {
  Indices at;
  mlir::Value linear;
  mlir::Value fresh;
};
Values VectorLoop(Ops& o, const Shape& shape, int64_t lanes, const Values& init,
                  const std::function<Values(const VectorPoint& point, const Values& carried)>& body);

// Vectors [0, count) of a row combined: body(offset of the first lane, value before) -> value. `turns` values take
// turns, so that none waits for the one before, and are combined in the end.
mlir::Value InTurns(Ops& o, const Extent& count, int64_t lanes, int64_t turns, mlir::Value init,
                    const std::function<mlir::Value(mlir::Value offset, mlir::Value before)>& body,
                    const std::function<mlir::Value(mlir::Value, mlir::Value)>& combine);

// A mask with the last (first) `count` of `lanes` lanes set.
mlir::Value LastLanes(Ops& o, int64_t lanes, const Extent& count);
mlir::Value FirstLanes(Ops& o, int64_t lanes, int64_t count);

// The extent as a float or an i64, of the type of `like`.
mlir::Value NumberLike(Ops& o, mlir::Value like, const Extent& extent);

// What `last` makes of `values`: of the last vector, where `extent` is no multiple of `lanes`. In an open extent that
// shows when the code runs.
Values IfRest(Ops& o, const Extent& extent, int64_t lanes, const Values& values, const std::function<Values()>& last);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOOPS_H_
