// Attention as it stands in a graph: matmul(g(softmax(f(matmul(q, k)))), v), where f and g are chains of pointwise
// operators (scale, mask by addition or by where, casts). Both halves of the backend know it from here: the daemon as a
// rule, the worker to make one kernel of it. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_ATTENTION_PATTERN_H_
#define INLAY_CORE_BACKENDS_NATIVE_ATTENTION_PATTERN_H_

#include "absl/status/status.h"
#include "core/ir/pattern.h"

namespace inlay::native {

// Rooted at the second product. Names "scores" (the first product), "softmax", "context" (the root); operands "q", "k",
// "v", and "k_scale" where k itself is scaled by a literal ("k_scaled" is then that binding).
const ir::PatternPtr& AttentionCore();

// The same together with what only moves data around it: heads split off q, k and v (also out of one product), k and v
// made f32 of 16 bits, the context's heads joined. Rooted at the last of these.
const ir::PatternPtr& AttentionWithViews();

// Whether a cast between these makes f32 of 16 bits.
bool IsWidening(const ir::TensorType& from, const ir::TensorType& to);

// Whether the kernel serves this match of either (types, shapes, sizes).
absl::Status CheckAttention(const ir::PatternMatch& match);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_ATTENTION_PATTERN_H_
