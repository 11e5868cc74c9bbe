// The padded copy of images whose size is open: what conv_plan.h's planes are where all is known.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_PLANES_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_PLANES_H_

#include <array>
#include <cstdint>
#include <functional>

#include "core/backends/native/conv_plan.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/gemm_support.h"

namespace inlay::native {

// A plane of x with the padding in it, split by the stride: element (q, p) of a strided axis is the padded coordinate
// q * stride + p. So every tap of a row of results reads elements that follow each other.
class OpenPlanes {
 public:
  // Axes: depth, height, width; absent leading ones have extent 1.
  explicit OpenPlanes(const Node& conv);

  std::array<Extent, 3> in, out, padded;  // padded: of a phase
  Spatial kernel{1, 1, 1}, strides{1, 1, 1}, dilations{1, 1, 1}, pads{0, 0, 0}, phases{1, 1, 1};

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  Extent pixels() const { return out[0] * out[1] * out[2]; }
  // An axis of the results, where images have the size that they mostly have and what follows from it; large where that
  // can't be told.
  double NominalOut(int axis) const;
  double NominalPixels() const { return NominalOut(0) * NominalOut(1) * NominalOut(2); }
  Extent phase_elements() const { return padded[0] * padded[1] * padded[2]; }
  Extent plane_elements() const { return phase_elements() * (phases[0] * phases[1] * phases[2]); }
  // Whether all of a plane's pixels follow each other there as they do in the result.
  bool PixelsAdjoin() const;
  // Whether x itself is that.
  bool AreImages() const { return are_images_; }
  // Where the tap lies, from a pixel's place on.
  mlir::Value TapOffset(KernelBuilder& kb, mlir::Value d, mlir::Value h, mlir::Value w) const;
  // Loops over the taps of `channels` channels: step (channel * taps() + tap), and where the tap lies, from a pixel's
  // place in the first channel's plane on.
  void ForTaps(KernelBuilder& kb, mlir::Value channels,
               const std::function<void(mlir::Value step, mlir::Value offset)>& body) const;
  // Where the row of results, counted through all slices, begins.
  mlir::Value RowOffset(KernelBuilder& kb, mlir::Value row) const;

  // Makes the copy, of accumulators, `slack` elements longer than its planes: or x, if that is it.
  Buffer Emit(FunctionEmitter& f, const Tensor& x, const GemmTypes& types, int64_t lanes, int64_t slack) const;
  mlir::Type Element(Ops& o, const GemmTypes& types) const {
    return are_images_ ? types.Stored(o) : types.Accumulator(o);
  }

 private:
  bool are_images_ = true;
};

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_OPEN_PLANES_H_
