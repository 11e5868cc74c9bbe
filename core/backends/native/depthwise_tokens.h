// A depthwise convolution of an image whose channels lie last: transposed to channels first, convolved, and transposed
// back, with reshapes where the pixels are a row of tokens (the MLPs of PVT v2 and SegFormer). One kernel computes all
// of it where it lies (lowerings/depthwise_tokens.cc). For both halves; no MLIR.
#ifndef INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_TOKENS_H_
#define INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_TOKENS_H_

#include "absl/status/status.h"
#include "core/ir/pattern.h"

namespace inlay::native {

// Rooted at the second transpose; "to_first" is the other, "conv" what is between.
const ir::PatternPtr& DepthwiseTokens();

absl::Status CheckDepthwiseTokens(const ir::PatternMatch& match);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_DEPTHWISE_TOKENS_H_
