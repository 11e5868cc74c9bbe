// DepthwiseBlockPlan: a pointwise convolution and the depthwise one that reads its result, as one pass. A task computes
// some channels of some rows of the first, the expanded image, into its scratch, where the caches hold it, and the
// second from there. Plain values, no MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_BLOCK_PLAN_H_
#define INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_BLOCK_PLAN_H_

#include <optional>

#include "core/backends/native/conv_plan.h"
#include "core/backends/native/rounding.h"

namespace inlay::native {

struct DepthwiseBlockPlan {
  ConvShape expand, depthwise;  // of all
  int64_t channels = 0;         // of a task
  int64_t rows = 0;             // of the depthwise convolution's output, of a task; the last ones are computed again
                                // where they do not come out even
  int64_t in_rows = 0;          // of the expanded image, that these see
  // Of a plane of the expanded image in scratch, those at its end unused: a task at the image's edge computes as many
  // rows as the others, shifted by the padding, whose rows it then sets to zero. In front of the first plane there are
  // `edge_rows` more.
  int64_t plane_rows = 0, edge_rows = 0;
  GemmPlan gemm;    // of a task: P the weights, Q the pixels of in_rows rows where they lie
  ConvPlan planes;  // of a task: the depthwise convolution of its planes
  double cycles = 0;

  // A task computes whole planes: no shifts, no rows of zeros.
  bool is_whole() const { return rows == depthwise.out[1]; }
  int64_t bands() const { return CeilDiv(depthwise.out[1], rows); }
  int64_t blocks() const { return depthwise.c / channels; }
  // Bands of an image one after the other, blocks of channels fastest: threads that split tasks in two each have their
  // part of the image, as they do in pointwise convolutions before and after.
  int64_t tasks() const { return depthwise.n * bands() * blocks(); }
  int64_t plane_elements() const { return plane_rows * depthwise.in[2]; }
  int64_t edge_elements() const;      // rounded up to a vector
  int64_t expanded_elements() const;  // with the edge, rounded up
  int64_t scratch_bytes() const;
  // Of a block of channels.
  int64_t packed_expand_elements() const { return RoundUp(channels, gemm.mr) * gemm.k; }
};

// Which pairs become one: kByRule, kNever, or all that can, by so many bands or the next fewer that there can be.
struct DepthwiseBlockChoice {
  static constexpr int64_t kByRule = -1, kNever = 0;
  int64_t bands = kByRule;
};

// None where the two are no such pair, or are estimated to be faster one by one.
std::optional<DepthwiseBlockPlan> PlanDepthwiseBlock(const Core& core, const ConvShape& expand,
                                                     const ConvShape& depthwise, DepthwiseBlockChoice choice = {});

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_BLOCK_PLAN_H_
