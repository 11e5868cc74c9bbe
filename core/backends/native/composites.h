// Composites: groups of nodes that one kernel computes as a whole. Folding replaces them by one node of an operator of
// its own ("native.attention"), whose lowering is found by that name like any other; its `parts` keep the nodes that
// say what is to be computed. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_COMPOSITES_H_
#define INLAY_CORE_BACKENDS_NATIVE_COMPOSITES_H_

#include "core/backends/native/cpu_features.h"
#include "core/backends/native/graph.h"
#include "core/ir/ir_module.h"

namespace inlay::native {

// Inputs: q, k, v, then (if there is a part "k_scaled") the literal by which k is scaled, then what the pointwise
// chains read. Parts: "scores", "softmax", "context", perhaps "k_scaled", perhaps "transpose", by which the context is
// stored.
inline constexpr char kAttention[] = "native.attention";

// Elements of planes in turns along a row, as pixel shuffle and transposed convolutions end: a transpose that brings an
// axis behind the last one, a reshape that merges the two (others may be moved and merged too), perhaps a slice of what
// that gives. Input: what is transposed. Parts: "transpose", "reshape", perhaps "slice".
inline constexpr char kDepthToSpace[] = "native.depth_to_space";

// A depthwise convolution of an image whose channels lie last (depthwise_tokens.h; of integers and bf16:
// channels_last.h). Inputs: the image, the weights, perhaps the bias. Parts: "conv", "last", what comes behind it but
// for reshape and transpose, or "conv" itself.
inline constexpr char kDepthwiseTokens[] = "native.depthwise_tokens";

// A convolution of integers or bf16 whose result has its channels last, and its image too, unless that has few
// (channels_last.h). Inputs: the image, the weights, perhaps the bias. Parts: "conv".
inline constexpr char kWordPixels[] = "native.word_pixels";

// A pool of an image whose channels lie last. Input: the image. Parts: "pool".
inline constexpr char kPoolPixels[] = "native.pool_pixels";

// `graph` was built from `function`.
void FoldComposites(const ir::Function& function, const CpuFeatures& cpu, Graph* graph);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_COMPOSITES_H_
