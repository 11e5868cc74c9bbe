// WinogradPlan: a 3x3 convolution of stride 1 or 2, also of each slice of one in three dimensions, as Winograd's F(m x
// m, 3 x 3): (m + 2)^2 multiplications for m^2 results, where the direct way takes 9 m^2. Plain values, no MLIR.
//
// With input tiles d (a step of m apart) and kernels g, everything per channel:
//   y = A^T [ sum over channels of (G g G^T) . (B^T d B) ] A
// The elements of B^T d B are the tile's points. The sum is a product [tiles x c] * [c x m] for each, a contraction of
// gemm.h. A block of tiles goes through transform, products and inverse while its data stays in L2.
//
// Of stride 2, on an axis, the kernel's outer taps see the even inputs and its middle one the odd ones:
//   y_i = (g_0 d_2i + g_2 d_2i+2) + g_1 d_2i+1
// an F(m, 2) of m + 1 points and m points that are the odd inputs themselves: (2m + 1)^2 multiplications for m^2
// results. Points to which the same column of A belongs are terms of one product, longer in k: A's columns for 0 and
// infinity are those of the first and the last odd input, so there are (2m - 1)^2 products.
//
// Other strides: as the convolution of stride 1 that conv_phases.h makes of it, of as many more channels, whose kernel
// is as much narrower. 4x4/2 becomes 2x2, 7x7/2 4x4.
//
// Of five points, there is F(3x3, 3x3), for images of nine columns, or phases of three.
//
// Kernels of 2x2, 4x4 and 5x5, of stride 1, have the points and input tiles of these: F(3x3, 2x2) those of F(2x2, 3x3),
// F(5x5, 2x2), F(3x3, 4x4) and F(2x2, 5x5) those of F(4x4, 3x3): 36 multiplications for 25, 9 or 4 results, where the
// direct way takes 100 or 144.
//
// A kernel along one axis, of up to seven taps, has F(m, taps) on it, of up to eight points, whose errors are no larger
// than those of six on both axes (kernels.md): 8 multiplications for 6 results of 3 taps, where the direct way
// takes 18. A longer one is cut into chunks of four, each an F(4, 4) of seven points: a step of tiles apart, so that a
// product sums those of as many tiles that follow each other, and each tile is transformed once.
//
// Of dilation d, each d-th row and column of an image is one of d x d images, its phases, of dilation 1. The tiles of
// their columns lie side by side, those of their rows below each other, each phase with planes of its own. A dilated
// sequence (one axis alone) is an image of d columns instead, with a kernel along its columns: its last row is not
// whole, and nothing but that tells it from others.
//
// A kernel's extent in depth is part of the sum: a block's products take as many slices of transformed input as it has,
// and a slice is transformed once for all of them.
#ifndef INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PLAN_H_
#define INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/backends/native/conv_plan.h"
#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {

// The interpolation points of an axis of so many (4 to 8), of stride 1, are 0, these, of both signs, and, if
// even, infinity. Every coefficient of A and B is exact in f32; of six, the error is half of that with the usual 1 and
// 2 (kernels.md).
inline std::vector<double> WinogradPairs(int64_t points) {
  if (points == 4) return {1};
  return points == 5 ? std::vector{0.75, 2.5} : points == 6 ? std::vector{0.625, 1.5} : std::vector{0.5, 1.0, 2.0};
}
// Of stride 2's F(4, 2) they are 0, +-kStridedA, kStridedB and infinity, by the same criterion.
inline constexpr double kStridedA = 0.75, kStridedB = 2;

// Products of as many terms, which lie one after the other; and before them so many others, of so many points.
struct WinogradProducts {
  int64_t count = 0, terms = 1;
  int64_t first = 0, first_point = 0;
};

// A term of a product of so many. Its channels of tile t lie at input + t * terms * tile_channels() of the transformed
// input; its weights are the panel's `place`-th.
struct WinogradPoint {
  int64_t place = 0, input = 0, terms = 1;
};

// Of an axis: F(m, tile_taps) of a stride. Of one tap, an axis is as it is.
struct WinogradAxis {
  int64_t m = 1, taps = 1, stride = 1;
  int64_t chunks = 1;  // if several, of m taps each

  int64_t tile_taps() const { return chunks > 1 ? m : taps; }
  int64_t step() const { return m * stride; }                       // from tile to tile
  int64_t inputs() const { return step() + tile_taps() - stride; }  // of a tile
  // Of so many tiles that follow each other, with those that their last chunks see.
  int64_t inputs_of(int64_t tiles) const { return (tiles + chunks - 2) * step() + inputs(); }
  int64_t points() const { return inputs(); }
  int64_t products() const { return stride > 1 ? 2 * m - 1 : points(); }
};

struct WinogradPlan {
  ConvShape shape;
  // Where `shape` is what a strided convolution was split into (conv_phases.h): its stride and its kernel.
  Spatial split_stride{1, 1, 1}, split_kernel{1, 1, 1};
  int64_t lanes = 16;
  WinogradAxis rows, columns;
  bool folded = false;  // a sequence as an image of as many columns as its dilation

  int64_t tile_rows = 0, tile_columns = 0;    // of a slice, of all of its phases
  int64_t block_rows = 1, block_columns = 1;  // tiles of a block; rows run on through slices and images of a batch
  bool fused = false;                         // a task transforms its block itself, in its scratch
  bool panels_outer = false;                  // tasks of one panel follow each other, else those of one block
  // One panel of output channels of one product of one block, of one term; batch = panel * products() + product.
  GemmPlan gemm;
  double cycles = 0;  // of one call, estimated

  // The longest thread's, of so many.
  double CyclesWith(int64_t threads) const { return cycles / tasks() * CeilDiv(tasks(), threads); }

  // Of a group of the convolution's: input and output channels, and panels.
  int64_t group_inputs() const { return shape.c / shape.groups; }
  int64_t group_outputs() const { return shape.m / shape.groups; }
  int64_t group_panels() const { return panels() / shape.groups; }
  // A task has one group of a block, or all of them: those that fill no vectors share some.
  bool fuses_groups() const { return fused && group_inputs() % lanes == 0; }
  int64_t task_groups() const { return fuses_groups() ? 1 : shape.groups; }
  int64_t group_tasks() const { return shape.groups / task_groups(); }  // of a block

  int64_t out_rows() const { return folded ? CeilDiv(shape.out[2], shape.dilation[2]) : shape.out[1]; }
  int64_t out_columns() const { return folded ? shape.dilation[2] : shape.out[2]; }

  int64_t row_phases() const { return shape.dilation[1]; }
  int64_t column_phases() const { return folded ? 1 : shape.dilation[2]; }
  bool has_phases() const { return row_phases() > 1 || column_phases() > 1; }
  int64_t phase_rows() const { return tile_rows / row_phases(); }  // of tiles
  int64_t phase_columns() const { return row_tiles() / column_phases(); }
  int64_t plane_phase_rows() const { return rows.inputs_of(phase_rows()); }
  int64_t plane_phase_columns() const { return columns.inputs_of(phase_columns()); }

  int64_t m() const { return std::max(rows.m, columns.m); }
  bool is_line() const { return rows.taps == 1 || columns.taps == 1; }  // a kernel along one axis
  bool is_strided() const { return columns.stride > 1; }
  bool is_split() const { return split_stride != Spatial{1, 1, 1}; }
  int64_t taps() const { return rows.taps * columns.taps; }
  int64_t chunks() const { return rows.chunks * columns.chunks; }
  int64_t points() const { return rows.points() * columns.points(); }
  int64_t products() const { return rows.products() * columns.products(); }

  // In the order in which they lie: those of most terms first.
  std::vector<WinogradProducts> product_kinds() const;
  GemmPlan gemm_of(const WinogradProducts& of) const;  // batch = panel * of.count + product
  std::vector<int64_t> product_places() const;         // of product (i, j) at i * columns.products() + j
  std::vector<WinogradPoint> point_places() const;     // of point (i, j) at i * columns.points() + j

  int64_t channel_vectors() const { return CeilDiv(shape.c, lanes); }
  int64_t panels() const { return gemm.batch / products(); }

  int64_t column_blocks() const { return CeilDiv(tile_columns, block_columns); }
  int64_t row_blocks() const { return CeilDiv(shape.n * shape.out[0] * tile_rows, block_rows); }
  int64_t blocks() const { return row_blocks() * column_blocks(); }
  // Of a block: its transformed tiles, those of a row side by side, and as many of its products as there are from its
  // first tile to its last.
  int64_t block_pitch() const { return block_columns + columns.chunks - 1; }
  int64_t block_inputs() const { return (block_rows + rows.chunks - 1) * block_pitch(); }
  int64_t block_tiles() const { return (block_rows - 1) * block_pitch() + block_columns; }

  // x with its padding, [image][slice][vector of channels][row][column][lane].
  int64_t slices() const { return shape.out[0] + shape.kernel[0] - 1; }
  int64_t plane_rows() const { return row_phases() * plane_phase_rows(); }
  int64_t plane_columns() const { return folded ? out_columns() : column_phases() * plane_phase_columns(); }
  int64_t plane_elements() const { return plane_rows() * plane_columns() * lanes; }
  // What is padded at a time: a row, or a sequence.
  int64_t plane_lines() const { return folded ? 1 : plane_rows(); }
  int64_t plane_line_columns() const { return plane_rows() * plane_columns() / plane_lines(); }
  int64_t plane_line_items() const { return shape.n * slices() * channel_vectors() * plane_lines(); }
  int64_t planes_elements() const {
    const int64_t beyond = folded ? row_tiles() * lanes : 0;  // read by a row's last block where that is not whole
    return shape.n * slices() * channel_vectors() * plane_elements() + beyond;
  }

  // Transformed input, [product][tile][term][channel]: of a block (and a task's groups), or (is_deep) of an image,
  // whose blocks read each other's slices. The products' distances are odd numbers of vectors: with powers of two, all
  // of a tile's elements would fall into one set of the caches.
  bool is_deep() const { return shape.kernel[0] > 1; }
  int64_t tile_channels() const { return channel_vectors() / group_tasks() * lanes; }
  int64_t row_tiles() const { return column_blocks() * block_columns; }
  int64_t slice_tiles() const { return tile_rows * row_tiles(); }
  int64_t input_tiles() const { return is_deep() ? slices() * slice_tiles() : block_inputs(); }
  int64_t input_pitch(int64_t terms) const { return input_offset(1, terms); }
  // Of what lies behind so many products of so many points.
  int64_t input_offset(int64_t products, int64_t points) const {
    const int64_t beyond = is_deep() ? block_tiles() : 0;  // read by an image's last block where that is not whole
    return points * (input_tiles() + beyond) * tile_channels() + products * lanes;
  }
  int64_t input_elements() const { return input_offset(products(), points()); }
  int64_t inputs() const { return is_deep() ? shape.n : blocks(); }

  // Products of a block and a panel, [product][tile][channel of the panel].
  int64_t product_pitch() const { return block_tiles() * gemm.nr() + lanes; }
  int64_t product_elements() const { return products() * product_pitch(); }

  // A tile row of results, [pixel][lane], and a square of them transposed. Rows of an image that follow each other
  // there and in the result are one run; of a kernel along one axis, whose tile rows are few pixels, so are a block's.
  bool split_columns() const { return column_blocks() > 1; }
  bool rows_run_on() const { return !split_columns() && !has_phases(); }
  bool block_runs_on() const { return rows_run_on() && is_line(); }
  int64_t result_pitch() const { return rows_run_on() ? out_columns() : block_columns * columns.m; }
  int64_t result_rows() const { return (block_runs_on() ? block_rows : 1) * rows.m; }
  int64_t result_elements() const { return (result_rows() * result_pitch() + columns.m + lanes) * lanes; }

  // [panel][product][term][channel][channel of the panel]. Of a convolution without groups terms follow each other as
  // they do in the transformed input, whose vectors of channels are whole: the weights of channels beyond the last are
  // 0.
  bool terms_adjoin() const { return is_strided() && shape.groups == 1; }
  int64_t term_channels() const {
    return terms_adjoin() ? tile_channels() : group_inputs() * shape.kernel[0] * chunks();
  }
  int64_t panel_weight_elements() const { return points() * term_channels() * gemm.nr(); }
  int64_t packed_weight_elements() const { return panels() * panel_weight_elements(); }
  // A vector of channels of a block, or (is_deep) of a slice.
  int64_t transform_tiles() const { return is_deep() ? slice_tiles() : block_inputs(); }
  int64_t transform_tasks() const { return fused ? 0 : inputs() * (is_deep() ? slices() : 1) * channel_vectors(); }
  int64_t tasks() const { return fused ? blocks() * group_tasks() : blocks() * panels(); }
  // Transformed input that the tasks share.
  int64_t shared_input_elements() const { return fused ? 0 : inputs() * input_elements(); }
  int64_t scratch_bytes() const;  // of a worker
};

// Whether a convolution has the form: 3x3 in its last two axes, stride 1, or, in those axes of a kernel without extent
// in depth, stride 2 or dilations, each phase of which has results, or 2x2, 4x4, 5x5 or a kernel along one axis, of
// stride 1; its groups, if any, of several channels. f32 only.
bool IsWinogradShape(const ConvShape& shape);

// The cheapest plan of IsWinogradShape shapes; nothing where none fits. `m`: 0, or the only tile to consider.
std::optional<WinogradPlan> PlanWinograd(const Core& core, const ConvShape& shape, int64_t m = 0);

// A plan for many threads, of weights packed and planes padded as another's, which has too few tasks for them.
struct FinerWinograd {
  WinogradPlan plan;
  int64_t threads = 0;  // so many and more are clearly faster by it
};
std::optional<FinerWinograd> FinerBlocks(const WinogradPlan& plan);

// Which tile a convolution may have: kByRule, kNever, or m itself wherever the shape allows.
struct WinogradChoice {
  static constexpr int64_t kByRule = -1, kNever = 0, kMost = 7;
  int64_t m = kByRule;
};

// The plan where Winograd is estimated to be clearly faster than the direct plan, or is asked for. Where it is_split(),
// x are SplitByStride's planes.
std::optional<WinogradPlan> ChooseWinograd(const Core& core, const ConvPlan& direct, WinogradChoice choice);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PLAN_H_
