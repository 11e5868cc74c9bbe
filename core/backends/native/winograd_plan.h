// WinogradPlan: a 3x3 convolution of stride 1, also of each slice of one in three dimensions, as Winograd's F(m x m, 3
// x 3): (m + 2)^2 multiplications for m^2 results, where the direct way takes 9 m^2. Plain values, no MLIR.
//
// With input tiles d of n x n (n = m + 2, a step of m apart) and kernels g, everything per channel:
//   y = A^T [ sum over channels of (G g G^T) . (B^T d B) ] A
// The sum is n^2 products [tiles x c] * [c x m], each a contraction of gemm.h. A block of tiles goes through transform,
// products and inverse while its data stays in L2.
//
// A kernel's extent in depth is part of the sum: a block's products take as many slices of transformed input as it has,
// and a slice is transformed once for all of them.
#ifndef INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PLAN_H_
#define INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PLAN_H_

#include <cstdint>
#include <optional>

#include "core/backends/native/conv_plan.h"
#include "core/backends/native/gemm_plan.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {

// The finite interpolation points of F(4x4) are 0, +-kWinogradA, +-kWinogradB: every coefficient of A and B is exact in
// f32, and the error is half of that with the usual 1 and 2 (kernels.md).
inline constexpr double kWinogradA = 0.625, kWinogradB = 1.5;

struct WinogradPlan {
  ConvShape shape;
  int64_t lanes = 16;
  int64_t m = 4;  // rows and columns of an output tile: 2 or 4

  int64_t tile_rows = 0, tile_columns = 0;    // of a slice
  int64_t block_rows = 1, block_columns = 1;  // tiles of a block; rows run on through slices and images of a batch
  bool fused = false;                         // a task transforms its block itself, in its scratch
  bool panels_outer = false;                  // tasks of one panel follow each other, else those of one block
  // One panel of output channels of one product of one block; batch = panel * products() + product.
  GemmPlan gemm;
  double cycles = 0;  // of one call, estimated

  // The longest thread's, of so many.
  double CyclesWith(int64_t threads) const { return cycles / tasks() * CeilDiv(tasks(), threads); }

  int64_t n() const { return m + 2; }
  int64_t products() const { return n() * n(); }
  int64_t channel_groups() const { return CeilDiv(shape.c, lanes); }
  int64_t panels() const { return gemm.batch / products(); }

  int64_t column_blocks() const { return CeilDiv(tile_columns, block_columns); }
  int64_t row_blocks() const { return CeilDiv(shape.n * shape.out[0] * tile_rows, block_rows); }
  int64_t blocks() const { return row_blocks() * column_blocks(); }
  int64_t block_tiles() const { return block_rows * block_columns; }

  // x with its padding, [image][slice][channel group][row][column][lane].
  int64_t slices() const { return shape.out[0] + shape.kernel[0] - 1; }
  int64_t plane_rows() const { return tile_rows * m + 2; }
  int64_t plane_columns() const { return column_blocks() * block_columns * m + 2; }
  int64_t plane_elements() const { return plane_rows() * plane_columns() * lanes; }
  int64_t plane_row_items() const { return shape.n * slices() * channel_groups() * plane_rows(); }
  int64_t planes_elements() const { return shape.n * slices() * channel_groups() * plane_elements(); }

  // Transformed input, [product][tile][channel]: of a block, or (is_deep) of an image, whose blocks read each other's
  // slices. The products' distances are odd numbers of vectors: with powers of two, all of a tile's elements would fall
  // into one set of the caches.
  bool is_deep() const { return shape.kernel[0] > 1; }
  int64_t tile_channels() const { return channel_groups() * lanes; }
  int64_t row_tiles() const { return column_blocks() * block_columns; }
  int64_t slice_tiles() const { return tile_rows * row_tiles(); }
  int64_t input_tiles() const { return is_deep() ? slices() * slice_tiles() : block_tiles(); }
  int64_t input_pitch() const {
    const int64_t beyond = is_deep() ? block_tiles() : 0;  // read by an image's last block where that is not whole
    return (input_tiles() + beyond) * tile_channels() + lanes;
  }
  int64_t input_elements() const { return products() * input_pitch(); }
  int64_t inputs() const { return is_deep() ? shape.n : blocks(); }

  // Products of a block and a panel, [product][tile][channel of the panel].
  int64_t product_pitch() const { return block_tiles() * gemm.nr() + lanes; }
  int64_t product_elements() const { return products() * product_pitch(); }

  // A tile row of results, [pixel][lane], and a square of them transposed.
  bool split_columns() const { return column_blocks() > 1; }
  int64_t result_pitch() const { return split_columns() ? block_columns * m : shape.out[2]; }
  int64_t result_elements() const { return (m * result_pitch() + m + lanes) * lanes; }

  int64_t packed_weight_elements() const { return gemm.batch * gemm.k * gemm.nr(); }
  // A group of channels of a block, or (is_deep) of a slice.
  int64_t transform_tiles() const { return is_deep() ? slice_tiles() : block_tiles(); }
  int64_t transform_tasks() const { return fused ? 0 : inputs() * (is_deep() ? slices() : 1) * channel_groups(); }
  int64_t tasks() const { return fused ? blocks() : blocks() * panels(); }
  // Transformed input that the tasks share.
  int64_t shared_input_elements() const { return fused ? 0 : inputs() * input_elements(); }
  int64_t scratch_bytes() const;  // of a worker
};

// Whether a convolution has the form: 3x3 in its last two axes, stride, dilation and groups 1. f32 only.
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
  static constexpr int64_t kByRule = -1, kNever = 0;
  int64_t m = kByRule;
};

// The plan where Winograd is estimated to be clearly faster than the direct plan, or is asked for.
std::optional<WinogradPlan> ChooseWinograd(const Core& core, const ConvPlan& direct, WinogradChoice choice);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_PLAN_H_
