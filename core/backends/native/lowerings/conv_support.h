// What the lowerings of convolutions share: their shape, and the epilogue that stores.
#ifndef INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_CONV_SUPPORT_H_
#define INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_CONV_SUPPORT_H_

#include <functional>
#include <vector>

#include "core/backends/native/conv.h"
#include "core/backends/native/function_emitter.h"
#include "core/backends/native/lowerings/gemm_support.h"
#include "core/backends/native/packing.h"

namespace inlay::native {

// A tensor's extents from dimension `first` on, which are known.
std::vector<int64_t> Numbers(const Tensor& t, int first);

// Of an open number of images, the shape is that of one.
ConvShape ConvShapeOf(const Node& conv, bool transposed);

// Whether every tensor of the tail numbers pixels through all spatial axes, as the kernels do; and its shapes then.
bool FlatPixels(FunctionEmitter& f, const Node& conv, ShapeMap* shapes);

// Bias, tail and store of what the kernels compute. `open_image`: which image it is, where tasks number those of one.
Epilogue StorePixels(Kernel& k, const Node& conv, int64_t groups, bool flat, mlir::Value open_image);
// Of what that reads and writes, so many bytes of an image; empty where L2 holds it, or pixels are stored one by one.
Ahead PrefetchPixels(Kernel& k, const Node& conv, const Core& core, int64_t groups, bool flat, mlir::Value open_image,
                     int64_t lanes, double bytes);

// Images in memory.
struct ConvInput {
  Buffer buffer;
  int64_t element_bytes;
  std::function<InputElements(Ops&)> elements;
};

// Weights of a convolution of open size as `pack` makes them from each group's ([tap], [channel]), `elements` of them,
// as stored or `widened`, with room for a vector behind the last: once at load where they are constant, else by every
// call.
Buffer PackGroups(FunctionEmitter& f, const Node& conv, const GemmTypes& types, int64_t elements, bool widened,
                  const std::function<void(Ops&, const StridedMatrix& from, mlir::Value to)>& pack);

// Weights in the layout of the tasks: once at load where they are constant, else by every call. `w`: of `types`.
Buffer PackedWeights(FunctionEmitter& f, const Buffer& w, bool constant, const ConvPlan& plan, const GemmTypes& types);

// Changes the kernel of a task, and emits it.
using EmitConv = std::function<void(Kernel&, ConvKernel*, const std::function<void()>& emit)>;

// Pads the input where the plan wants that, and runs its tasks, of `types`.
void EmitDirectConv(FunctionEmitter& f, const Node& conv, const ConvPlan& plan, const GemmTypes& types,
                    const ConvInput& input, const Buffer& weights, const EmitConv& around = nullptr);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_LOWERINGS_CONV_SUPPORT_H_
