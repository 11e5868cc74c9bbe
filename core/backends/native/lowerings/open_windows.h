// Windows over images whose size is open, each channel by itself: depthwise convolutions and pools.
//
// A task is a block of a channel's results, no larger than a size that is known: it copies what they see, padded and
// split by the stride, to its scratch, and computes vectors along rows from there, some rows at a time. Rows shorter
// than a vector are gathered, and stored as runs of pixels.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_WINDOWS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_WINDOWS_H_

#include <functional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/open_planes.h"

namespace inlay::native {

// Whose results a task computes.
struct WindowBlock {
  mlir::Value image, channel, slice;
};

// What is made of a window's elements, as accumulators.
struct WindowRule {
  std::function<void()> prepare;                                    // unless empty: emits kernels that come before
  std::function<mlir::Value(Ops&)> padding;                         // what stands for elements beyond the edges
  std::function<mlir::Value(Ops&, mlir::Value, mlir::Value)> join;  // of what two parts of a window gave
  // Emitted once a block; a tap's vectors then are taken by what it returns: (tap, pixels, what was taken before, at
  // first the padding).
  using Take = std::function<mlir::Value(int64_t tap, mlir::Value pixels, mlir::Value before)>;
  std::function<Take(Kernel&, const WindowBlock&)> begin;
  // Unless empty: of the results of a row from `column` on.
  std::function<mlir::Value(Kernel&, const WindowBlock&, mlir::Value row, mlir::Value column, mlir::Value taken)>
      finish;
};

// Results of channel m of n.out() are of channel m / multiplier of x. False, and nothing is emitted: a block would be
// too large, or the stride is.
bool EmitOpenWindows(FunctionEmitter& f, const Node& n, const GemmTypes& types, const OpenPlanes& planes,
                     const WindowRule& rule);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_WINDOWS_H_
