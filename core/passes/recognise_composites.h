// The parts of recognise_composites: each looks at one binding and, where it is the root of a decomposed operator,
// gives the call that it should be. Private to core/passes.
#ifndef INLAY_CORE_PASSES_RECOGNISE_COMPOSITES_H_
#define INLAY_CORE_PASSES_RECOGNISE_COMPOSITES_H_

#include "absl/types/optional.h"
#include "core/ir/pattern.h"

namespace inlay::passes {

struct Composite {
  std::string op;
  std::vector<ir::Operand> args;
  ir::Attrs attrs;
};

// mul(mul(x, add(erf(div(x, sqrt 2)), 1)), 0.5) in any order and association, and the form with tanh.
absl::optional<Composite> RecogniseGelu(const ir::Binding& root, const ir::DefUse& def_use);
// mul(x, sigmoid(x))
absl::optional<Composite> RecogniseSilu(const ir::Binding& root, const ir::DefUse& def_use);
// div(exp(x - max), sum(exp(x - max)))
absl::optional<Composite> RecogniseSoftmax(const ir::Binding& root, const ir::DefUse& def_use);
// (x - mean) / sqrt(mean((x - mean)^2) + eps) * scale + bias
absl::optional<Composite> RecogniseLayerNorm(const ir::Binding& root, const ir::DefUse& def_use);

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_RECOGNISE_COMPOSITES_H_
