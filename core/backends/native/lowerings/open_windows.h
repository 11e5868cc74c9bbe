// Windows over images whose size is open, each channel by itself: depthwise convolutions and pools.
//
// A task is a block of a channel's results, no larger than a size that is known: it copies what they see, padded and
// split by the stride, to its scratch, computes vectors along rows from there, two rows at a time, and stores them as
// runs of pixels, which go on from row to row where the block is as wide as the image.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_WINDOWS_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_WINDOWS_H_

#include <functional>

#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/lowerings/open_planes.h"

namespace inlay::native {

// Of an image's slice and channel of results: rows [row, row + rows) and columns [column, column + columns).
struct WindowBlock {
  mlir::Value image, channel, slice, row, rows, column, columns;
};

// What is made of a window's elements, as accumulators.
struct WindowRule {
  std::function<void()> prepare;             // unless empty: emits kernels that come before
  std::function<mlir::Value(Ops&)> padding;  // what stands for elements beyond the edges
  // Emitted once a block; a tap's vectors then are taken by what it returns: (tap, pixels, what the taps before made:
  // null before the first).
  using Take = std::function<mlir::Value(int64_t tap, mlir::Value pixels, mlir::Value before)>;
  std::function<Take(Kernel&, const WindowBlock&)> begin;
  // Unless empty: of the results from (row, column) of the block on.
  std::function<mlir::Value(Kernel&, const WindowBlock&, mlir::Value row, mlir::Value column, mlir::Value taken)>
      finish;
};

// Results of channel m of n.out() are of channel m / multiplier of x. False, and nothing is emitted: a block would be
// too large.
bool EmitOpenWindows(FunctionEmitter& f, const Node& n, const GemmTypes& types, const OpenPlanes& planes,
                     const WindowRule& rule);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_WINDOWS_H_
