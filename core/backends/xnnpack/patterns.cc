// Contractions with constant weights, because XNNPACK packs them when an operator is made. Elementwise operators are
// claimed only behind a contraction or beside one in a region: alone, native code fuses them better.
#include "core/backends/xnnpack/patterns.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/backends/xnnpack/support.h"

namespace inlay::xnnpack {
namespace {

using backend::PatternRule;
using ir::Any;
using ir::IsConstant;
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

// A convolution whose weights, and bias if it has one, are constant.
PatternPtr Conv(const std::string& op) {
  auto has_no_bias = [](const ir::Binding& call) { return call.args.size() == 2; };
  return Or({Op(op, {Any(), IsConstant(), IsConstant()}, "anchor"),
             ir::If(Op(op, {Any(), IsConstant()}, "anchor"), has_no_bias)});
}

PatternPtr OneMore(const PatternPtr& x) {
  return Or({OpOf({"relu", "clip", "leaky_relu", "elu", "sigmoid", "silu", "hard_sigmoid", "abs", "neg"}, {x}),
             OpOf({"add", "mul", "sub", "div", "maximum", "minimum"}, {x, Any()}),
             OpOf({"add", "mul", "sub", "maximum", "minimum"}, {Any(), x})});
}

// x·sigmoid(x), x·hard_sigmoid(x), where x is used twice; `x` has a name, so that both uses are of one value.
PatternPtr Gated(const PatternPtr& x) { return ir::CommutativeOp("mul", x, OpOf({"sigmoid", "hard_sigmoid"}, {x})); }

// The anchor alone, and with 1 to `most` elementwise operators behind it. One rule a length, so that the search may cut
// a chain where another backend goes on better.
void AddChains(const std::string& name, PatternPtr chain, int most, std::vector<PatternRule>* rules) {
  rules->push_back({absl::StrCat("xnnpack.", name), chain, CheckMatch, 10});
  rules->push_back({absl::StrCat("xnnpack.", name, "_gated"), Gated(chain), CheckMatch, 12});
  const PatternPtr biased = ir::CommutativeOp("add", chain, Any(), "biased");
  rules->push_back({absl::StrCat("xnnpack.", name, "_add_gated"), Gated(biased), CheckMatch, 13});
  for (int length = 1; length <= most; ++length) {
    chain = OneMore(chain);
    rules->push_back({absl::StrCat("xnnpack.", name, "_eltwise", length), chain, CheckMatch, 10 + length});
  }
}

}  // namespace

std::vector<PatternRule> MakeRules() {
  std::vector<PatternRule> rules;
  AddChains("conv", Conv("conv"), 3, &rules);
  AddChains("conv_transpose", Conv("conv_transpose"), 2, &rules);
  AddChains("matmul", Op("matmul", {Any(), IsConstant()}, "anchor"), 3, &rules);
  const PatternPtr pool = OpOf({"max_pool", "avg_pool", "reduce_mean"});
  rules.push_back({"xnnpack.pool", pool, CheckMatch, 5});
  // The flat vector behind a global pooling: its reshape costs nothing here.
  rules.push_back({"xnnpack.pool_flatten", Op("reshape", {pool}), CheckMatch, 6});
  rules.push_back({"xnnpack.concat", Op("concat", {OneMore(Conv("conv"))}), CheckMatch, 5});
  rules.push_back({"xnnpack.softmax", Op("softmax"), CheckMatch, 5});
  return rules;
}

}  // namespace inlay::xnnpack
