// A pointwise convolution, what is done to each of its elements, and a depthwise convolution: the first two thirds of
// an inverted residual block, which one kernel computes (lowerings/depthwise_block.h). The daemon's rule. No MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_PATTERN_H_
#define INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_PATTERN_H_

#include "absl/status/status.h"
#include "core/ir/pattern.h"
#include "core/target/target.h"

namespace inlay::native {

// An operator of one argument, on x.
ir::PatternPtr Activation(const ir::PatternPtr& x);

// Rooted at the depthwise convolution, "depthwise"; "expand" is the other.
const ir::PatternPtr& DepthwiseBlock();

// Whether code generation for `target` makes one kernel of the match: where the image between them is large.
absl::Status CheckDepthwiseBlock(const ir::PatternMatch& match, const target::Target& target);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_PATTERN_H_
