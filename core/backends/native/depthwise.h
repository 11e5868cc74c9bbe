// Depthwise convolution: each input channel makes m / c output channels of its own. No contraction to speak of: what
// counts is that each vector of x that is loaded serves several sums in registers, and that vectors are full.
//
// kDepthwise: a task is a plane of x. A tile of output rows has its sums in registers while the taps of one kernel
// column after the other go over it: that column's weights in registers, each input row loaded once for all output
// rows that see it. Padding is made by masks; with strides or dilation a band of x is copied into padded phase planes.
// kDepthwiseChannels: a task is a vector of output channels of an image, whose planes it transposes into scratch and
// back. No lane is wasted on narrow images, and taps that fall into the padding are not computed.
// kDepthwiseLines: a task is a vector of output channels, of a kernel along rows: a band of a row is transposed into
// scratch, padding and all, and a square of pixels and channels has its sums in registers, where it is transposed back.
// Every load is aligned, and a tap's weights are met once for a vector of pixels.
#ifndef INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_H_
#define INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_H_

#include "core/backends/native/conv.h"

namespace inlay::native {

void EmitDepthwiseTasks(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value begin, mlir::Value end,
                        mlir::Value scratch);

// kDepthwiseChannels and kDepthwiseLines alone.
void EmitDepthwiseLineTasks(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value begin, mlir::Value end,
                            mlir::Value scratch);
void EmitDepthwiseChannelTasks(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value begin, mlir::Value end,
                               mlir::Value scratch);
// Their weights: [block of channels][tap][lane], the last block padded with zeros.
void EmitPackDepthwiseWeights(KernelBuilder& kb, const ConvPlan& plan, mlir::Value w, mlir::Type element,
                              mlir::Type packed, mlir::Value to);

// Where the planes lie that the output channels of a vector, from `first` on, see. Lanes beyond the last channel see
// what that one sees.
std::vector<mlir::Value> ChannelPlanes(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value image,
                                       mlir::Value first);

// What a row of the kernel adds to `sums`, vectors of channels of output columns from `first` on: pixels of the row at
// x (of `elements`) lie x_pitch elements apart, taps of the one at w (of the sums' type) w_pitch. Each is loaded once;
// what falls into the padding is not there.
std::vector<mlir::Value> EmitChannelRow(KernelBuilder& kb, const ConvShape& shape, const InputElements& elements,
                                        mlir::Value x, int64_t x_pitch, mlir::Value w, int64_t w_pitch, int64_t first,
                                        std::vector<mlir::Value> sums);

// The epilogue of consecutive pixels [first, first + count) of a channel, whose sums lie at `sums`.
void EmitDenseEpilogue(KernelBuilder& kb, const ConvKernel& kernel, mlir::Value batch, mlir::Value row,
                       mlir::Value first, int64_t count, mlir::Value sums);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_H_
