// ConvPlan: how a convolution becomes a contraction. Plain values, no MLIR.
//
// Row i = output channel, column j = output pixel (all spatial axes flattened), k = (input channel, kernel tap); a
// batch element = (image, group). A pointwise convolution reads its columns where they lie. All others first copy the
// input into planes that have the padding in them and are split by the stride (element (q, p) of a strided axis is the
// padded coordinate q * stride + p), so that every tap reads contiguous pixels. The methods differ in which operand is
// read as vectors, and in whether the columns are packed.
#ifndef INLAY_CORE_BACKENDS_NATIVE_CONV_PLAN_H_
#define INLAY_CORE_BACKENDS_NATIVE_CONV_PLAN_H_

#include <array>
#include <cstdint>
#include <optional>

#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {

using Spatial = std::array<int64_t, 3>;  // depth, height, width; absent leading axes: extent 1

struct ConvShape {
  int64_t n = 1, c = 1, m = 1, groups = 1;
  Spatial in{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0};  // pad: begin, may be < 0
  Spatial out{1, 1, 1};
  // A transposed convolution is one over an input with stride - 1 zeros between its elements, the kernel reversed.
  Spatial input_dilation{1, 1, 1};
  bool reversed = false;  // w is [c, m / groups, kernel], and its taps are taken backwards

  // Of x with the zeros between its elements.
  int64_t spread_in(int axis) const { return (in[axis] - 1) * input_dilation[axis] + 1; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t pixels() const { return out[0] * out[1] * out[2]; }
  int64_t in_elements() const { return in[0] * in[1] * in[2]; }
  // Whether each output pixel is a product of the input's at its place.
  bool is_pointwise() const {
    const Spatial ones{1, 1, 1}, zeros{0, 0, 0};
    return taps() == 1 && stride == ones && input_dilation == ones && pad == zeros && in == out;
  }
};

// The convolution that computes conv_transpose(x [n,c,in], w [c, m/groups, kernel]).
ConvShape TransposedConvShape(int64_t n, int64_t c, int64_t m, int64_t groups, const Spatial& in, const Spatial& kernel,
                              const Spatial& stride, const Spatial& dilation, const Spatial& pad, const Spatial& out);

enum class ConvMethod {
  kPointwise,  // pixels where they lie in x, or copied from there panel by panel (gemm.source)
  kPanels,
  // Rows and columns exchanged: row = pixel, read as a scalar from its plane, column = output channel, weights packed.
  // For few pixels, which would leave much of the last vector empty. Straight from x where pixels_in_place() says so.
  kPixelRows,
  kDepthwise,          // each channel by itself, vectors along image rows
  kDepthwiseChannels,  // vectors across channels: for images narrower than a vector; weights packed
  kDepthwiseLines,     // the same, of long kernels along rows, a band of a row at a time
  // Weights as P, pixels where they lie in planes that the task pads itself, a band of output rows at a time: in its
  // scratch, for which the channels of a group must be few. A column is a position in the padded rows, so that every
  // tap reads vectors that run on from one row to the next; those between the rows are computed and dropped. Of a
  // sequence, which has one row, a band is a part of it.
  kBands,
};

// What depthwise.h emits; chosen by depthwise_plan.h.
struct DepthwiseTile {
  // kDepthwise: rows x vectors of output have their sums in registers. kDepthwiseChannels: `columns` do.
  int64_t rows = 0, vectors = 1, columns = 0;
  int64_t kernel_columns = 1;  // whose weights are in registers, where direct; a multiple of the stride or all
  bool direct = false;         // kDepthwise: taps read x itself (where it is of accumulator type), not a padded copy
};

// Whose pixels a task copies for tiles: a line of each of their planes stays in L1 while all tiles take their part of
// it.
inline constexpr int64_t kTiledChannels = 16;

struct ConvPlan {
  ConvShape shape;
  ConvMethod method = ConvMethod::kPanels;
  GemmPlan gemm;            // not of depthwise ones
  Spatial phases{1, 1, 1};  // phases of an axis that are kept
  Spatial padded{1, 1, 1};  // extent of a phase plane
  int64_t lanes = 16;
  bool padded_input = false;  // the tasks read the padded copy
  // Of kPixelRows with one tap: the copy has pixels as tiles read them, [tile][k][mr].
  bool tiled_input = false;
  // kPanels, kPixelRows with a padded copy: slices and rows of the kernel are left out of which a panel or a tile of
  // pixels sees padding alone. Then k of kPanels is (kernel slice, row, input channel, kernel column), not (input
  // channel, kernel tap).
  bool skips_padding = false;
  // kDepthwise, kBands: output rows that are padded and computed at a time; kDepthwiseLines: output columns.
  int64_t band = 0;
  int64_t band_width = 0;  // kBands of a sequence: output columns of a band
  DepthwiseTile depthwise;
  double cycles = 0;  // estimated, of one call; where the input is padded, without that (depthwise: with)

  bool cuts_row() const { return band_width > 0; }
  int64_t bands() const { return CeilDiv(shape.out[1], band) * (cuts_row() ? CeilDiv(shape.out[2], band_width) : 1); }
  int64_t phase_elements() const { return padded[0] * padded[1] * padded[2]; }
  int64_t plane_elements() const { return phases[0] * phases[1] * phases[2] * phase_elements(); }
  // The padded copy of x: of all planes (kPanels, shared by the tasks) or of a band (kDepthwise, each worker's own).
  int64_t padded_elements() const;
  int64_t slack_elements() const;  // read, never used, after the last plane
  // Of making the copy: planes, or, where it is tiled, blocks of a group's channels.
  int64_t copy_tasks() const { return tiled_input ? gemm.batch * channel_runs() : shape.n * shape.c; }
  int64_t channel_runs() const { return CeilDiv(group_channels(), kTiledChannels); }
  bool is_depthwise() const { return method == ConvMethod::kDepthwise || has_channel_lanes(); }
  bool has_channel_lanes() const {
    return method == ConvMethod::kDepthwiseChannels || method == ConvMethod::kDepthwiseLines;
  }
  int64_t channel_blocks() const { return CeilDiv(shape.m, lanes); }  // has_channel_lanes()
  int64_t tasks() const;
  int64_t packed_weight_elements() const;
  // Whether packing turns f16 and bf16 into the accumulator's type.
  bool widens_weights() const { return method == ConvMethod::kPixelRows || has_channel_lanes(); }
  int64_t scratch_bytes() const;  // of a worker

  // kPixelRows without a padded copy: scalars are read with any stride, columns of padding left out of the code, rows
  // of padding skipped or read from a row of zeros, zero_row_elements() long.
  bool pixels_in_place() const { return method == ConvMethod::kPixelRows && !padded_input && shape.taps() > 1; }
  bool prefetches_pixels() const;  // in place: where the input is farther away than L2
  int64_t zero_row_elements() const { return RoundUp(shape.in[2], lanes); }
  int64_t group_channels() const { return shape.c / shape.groups; }
  // Whether most panels lie in one row each, though not all.
  bool has_panels_in_rows() const { return shape.out[2] % lanes != 0 && shape.out[2] >= 2 * gemm.nr(); }
  int64_t row_steps() const { return group_channels() * shape.kernel[2]; }  // with a row of the kernel
  int64_t band_columns() const { return (band - 1) * padded[2] + (cuts_row() ? band_width : shape.out[2]); }
  int64_t band_plane_elements() const;  // kBands: of all planes of a group's band

  void SetPadded(int64_t out_rows);
};

// Whether each tile of `mr` pixels is a part of one image row, or whole image rows.
bool IsPixelTile(const ConvShape& s, int64_t mr);

// `element_bytes`: of the accumulators. `widened`: x's elements are narrower, or its padding is not of zeros.
ConvPlan PlanConv(const Core& core, const ConvShape& shape, int64_t element_bytes, bool widened = false);

// Of one call: what copies its padded input takes, and all with it.
double PadCycles(const Core& core, const ConvPlan& plan);
double CyclesWithPadding(const Core& core, const ConvPlan& plan);

// Few tasks become more, for plans whose tasks threads share.
void CutForThreads(ConvPlan* plan);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_CONV_PLAN_H_
