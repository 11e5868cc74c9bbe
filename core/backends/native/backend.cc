// The daemon's half of the native backend: a rule for every operator, and an estimate. Links no MLIR.
#include "core/backend/backend.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/backends/native/attention_pattern.h"
#include "core/backends/native/channels_last.h"
#include "core/backends/native/cost.h"
#include "core/backends/native/cpu_features.h"
#include "core/backends/native/depthwise_pattern.h"
#include "core/backends/native/depthwise_tokens.h"
#include "core/backends/native/native_backend.h"
#include "core/backends/native/open_ops.h"
#include "core/ir/op_registry.h"
#include "core/ir/work.h"

namespace inlay::native {

const std::vector<target::AttrSpec>& Attrs() {
  static const auto* attrs =
      new std::vector<target::AttrSpec>{{kWinogradAttr, target::AttrSpec::Type::kBool, "1",
                                         "convolutions by Winograd's algorithm, where that is estimated to be faster"}};
  return *attrs;
}

absl::Status CheckNativeTarget(const target::Target& target, const target::Target& codegen_target) {
  if (target.kind != "llvm") {
    return absl::UnimplementedError(absl::StrCat("native serves targets of kind 'llvm', not '", target.kind, "'"));
  }
  const std::string triple = target.attr("mtriple", "x86_64");
  const auto is = [&](absl::string_view arch) { return absl::StartsWith(triple, arch); };
  if (!is("x86_64") && !is("aarch64") && !is("riscv64")) {
    return absl::UnimplementedError(absl::StrCat("native serves x86_64, aarch64 and riscv64, not '", triple, "'"));
  }
  if (is("riscv64") && target.HasFeature("v")) {
    // What LLVM 19 makes of casts for it ends in a fault under QEMU 7.2.
    return absl::UnimplementedError("native has no code for RISC-V's V extension that was seen to work: leave +v out");
  }
  return target::CheckAttrs(codegen_target.attrs, Attrs(), "the codegen target native");
}

double FlopsOf(const ir::Binding& binding) {
  if (binding.kind != ir::Binding::Kind::kCall || binding.args.empty()) return 0;
  const std::string& op = binding.callee;
  double out = ir::CountElements(binding.var->type);
  static const auto* defined = new std::vector<std::string>{"lstm", "gru", "rnn", "max_pool", "avg_pool"};
  if (ir::IsContraction(binding) || std::find(defined->begin(), defined->end(), op) != defined->end()) {
    return ir::CountFlops(binding);
  }
  if (op == "softmax" || op == "log_softmax") return 20 * out;
  if (op == "layer_norm") return 8 * out;
  static const auto* expensive =
      new std::vector<std::string>{"exp", "log", "tanh", "erf", "sigmoid", "gelu", "silu", "softplus", "elu"};
  if (std::find(expensive->begin(), expensive->end(), op) != expensive->end()) return 20 * out;
  // What takes some elements of a table need not read the others; a reduction reads all.
  if (ir::PatternOf(binding) <= ir::OpPattern::kInjective) return out;
  return std::max(out, ir::CountElements(binding.args[0].type()));
}

double CountFlops(const ir::Function& function) {
  double sum = 0;
  for (const ir::Binding& binding : function.body.bindings) sum += FlopsOf(binding);
  return sum;
}

namespace {

class NativeBackend : public backend::Backend {
 public:
  std::string name() const override { return kBackendName; }
  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override {
    return CheckNativeTarget(target, codegen_target);
  }
  const std::vector<target::AttrSpec>& attrs() const override { return Attrs(); }
  const std::vector<backend::PatternRule>& rules() const override {
    // On first use: when this object is made, not all operators need have registered themselves.
    static const auto* rules = new std::vector<backend::PatternRule>(MakeRules());
    return *rules;
  }
  bool fuses_by_kind() const override { return true; }
  backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition,
                                            const target::Target& target) const override {
    return native::PrefersChannelsLast(partition, FeaturesOf(target));
  }
  bool is_fallback() const override { return true; }

  double EstimateMicros(const ir::Function& partition, const target::Target& target) const override {
    return native::EstimateMicros(partition, target);
  }

 private:
  static std::vector<backend::PatternRule> MakeRules() {
    std::vector<backend::PatternRule> rules;
    for (const std::string& op : ir::OpRegistry::Global().Names()) {
      backend::PatternRule rule;
      rule.name = absl::StrCat("native.", op);
      rule.pattern = ir::Op(op);
      rule.check = [](const ir::PatternMatch& match, const target::Target&) {
        return CheckOpenDims(*match.bindings[0]);
      };
      rules.push_back(std::move(rule));
    }
    rules.push_back({"native.attention", AttentionWithViews(),
                     [](const ir::PatternMatch& match, const target::Target&) { return CheckAttention(match); }, 10});
    rules.push_back({"native.depthwise_block", DepthwiseBlock(), CheckDepthwiseBlock, 10});
    rules.push_back({"native.depthwise_tokens", DepthwiseTokens(),
                     [](const ir::PatternMatch& match, const target::Target&) { return CheckDepthwiseTokens(match); },
                     10});
    return rules;
  }
};

INLAY_REGISTER_BACKEND(NativeBackend);

}  // namespace
}  // namespace inlay::native
