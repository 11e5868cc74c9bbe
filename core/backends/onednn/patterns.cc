// Elementwise operators are claimed only behind a contraction or beside one in a region: alone, native code fuses them
// better than a primitive of their own could.
#include "core/backends/onednn/patterns.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backends/onednn/support.h"

namespace inlay::onednn {
namespace {

using backend::PatternRule;
using ir::Any;
using ir::Op;
using ir::OpOf;
using ir::Or;
using ir::PatternPtr;

absl::Status CheckMatch(const ir::PatternMatch& match, const target::Target&) {
  for (const ir::Binding* binding : match.bindings) {
    absl::Status status = CheckCall(*binding);
    if (!status.ok()) return absl::Status(status.code(), absl::StrCat(ir::Describe(*binding), ": ", status.message()));
  }
  return absl::OkStatus();
}

// One more elementwise operator on `x`: one of its own, a binary one with anything, or x times a gate of x.
PatternPtr OneMore(const PatternPtr& x) {
  return Or({OpOf({"relu", "leaky_relu", "elu", "gelu", "silu", "softplus", "hard_sigmoid", "clip", "sigmoid", "tanh",
                   "neg", "abs"},
                  {x}),
             OpOf({"add", "mul", "sub", "div", "maximum", "minimum"}, {x, Any()}),
             OpOf({"add", "mul", "sub", "maximum", "minimum"}, {Any(), x})});
}

// x·sigmoid(x), x·hard_sigmoid(x), where x is used twice; `anchor` has a name, so that both uses are of one value.
PatternPtr Gated(const PatternPtr& anchor) {
  return ir::CommutativeOp("mul", anchor, OpOf({"sigmoid", "hard_sigmoid"}, {anchor}));
}

// The anchor alone, and with 1 to `most` elementwise operators behind it. One rule a length, so that the search may cut
// a chain where another backend goes on better.
void AddChains(const std::string& name, const std::vector<std::string>& ops, int most,
               std::vector<PatternRule>* rules) {
  PatternPtr chain = OpOf(ops, {}, "anchor");
  rules->push_back({absl::StrCat("onednn.", name), chain, CheckMatch, 10});
  rules->push_back({absl::StrCat("onednn.", name, "_gated"), Gated(chain), CheckMatch, 12});
  PatternPtr biased = ir::CommutativeOp("add", chain, Any(), "biased");
  rules->push_back({absl::StrCat("onednn.", name, "_add_gated"), Gated(biased), CheckMatch, 13});
  for (int length = 1; length <= most; ++length) {
    chain = OneMore(chain);
    rules->push_back({absl::StrCat("onednn.", name, "_eltwise", length), chain, CheckMatch, 10 + length});
  }
}

}  // namespace

std::vector<PatternRule> MakeRules() {
  std::vector<PatternRule> rules;
  AddChains("conv", {"conv", "conv_transpose"}, 4, &rules);
  AddChains("matmul", {"matmul"}, 4, &rules);
  rules.push_back({"onednn.pool", OpOf({"max_pool", "avg_pool", "reduce_mean"}), CheckMatch, 5});
  // The flat vector behind a global pooling: its reshape costs nothing here.
  rules.push_back(
      {"onednn.pool_flatten", Op("reshape", {OpOf({"max_pool", "avg_pool", "reduce_mean"})}), CheckMatch, 6});
  rules.push_back({"onednn.concat", Op("concat", {OneMore(OpOf({"conv"}))}), CheckMatch, 5});
  rules.push_back({"onednn.softmax", OpOf({"softmax", "log_softmax"}), CheckMatch, 5});
  rules.push_back({"onednn.layer_norm", Op("layer_norm"), CheckMatch, 5});
  rules.push_back({"onednn.batch_norm", Op("batch_norm"), CheckMatch, 5});
  return rules;
}

}  // namespace inlay::onednn
