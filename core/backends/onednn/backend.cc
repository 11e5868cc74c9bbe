// The light half: what oneDNN claims and what it would cost. Links no oneDNN.
#include "core/backend/backend.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/backends/onednn/cost.h"
#include "core/backends/onednn/layouts.h"
#include "core/backends/onednn/lowering.h"
#include "core/backends/onednn/patterns.h"

namespace inlay::onednn {
namespace {

class OnednnBackend : public backend::Backend {
 public:
  std::string name() const override { return "onednn"; }

  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override {
    if (target.kind != "llvm") {
      return absl::FailedPreconditionError(absl::StrCat("onednn serves CPUs, not targets of kind '", target.kind, "'"));
    }
    const std::string triple = target.attr("mtriple");
    if (!absl::StartsWith(triple, "x86_64") || !absl::StrContains(triple, "linux")) {
      return absl::FailedPreconditionError(
          absl::StrCat("onednn's library (PyPI) is one for x86_64 Linux, not for '", triple, "'"));
    }
    return CheckAttrs(codegen_target);
  }

  const std::vector<target::AttrSpec>& attrs() const override { return attrs_; }

  const std::vector<backend::PatternRule>& rules() const override { return rules_; }
  bool merges_regions() const override { return true; }
  backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition, const target::Target&) const override {
    return onednn::PrefersChannelsLast(partition);
  }

  // Whatever fpmath mode this is, the factors keep 8 bits of mantissa at least (bf16's): rounded by 2^-9 each, a
  // product is off by 2^-8 at most, and the worst of a million sums of such by less than four times that of their root
  // mean square.
  backend::Tolerance tolerance(const target::Target& codegen_target) const override {
    constexpr double kBf16 = 1.0 / 64;
    return codegen_target.attr(kFpmathAttr, "strict") == "strict" ? backend::Tolerance()
                                                                  : backend::Tolerance{kBf16, kBf16};
  }

  // Feature maps are blocked by channels inside a partition, so a border reorders them: read and written once, with the
  // scattered side (55 KB in 1.8 us, 1.1 MB in 38, 4.6 MB in 370, a machine's measured transitions; cost.cc's scale).
  // Matrices stay as they are.
  double TransitionMicros(const ir::TensorType& tensor, const target::Target&) const override {
    if (tensor.rank() < 4 || !tensor.is_static()) return 0;
    return 0.5 + 2.0 * static_cast<double>(tensor.NumBytes()) / 25e3;
  }

  double EstimateMicros(const ir::Function& partition, const target::Target& target) const override {
    auto lowered = Lower(partition);
    return lowered.ok() ? onednn::EstimateMicros(*lowered, target) : -1;
  }

 private:
  const std::vector<target::AttrSpec> attrs_ = {
      {kFpmathAttr,
       target::AttrSpec::Type::kChoice,
       "strict",
       "what convolutions and matrix products may round f32 to on CPUs that are faster with it (oneDNN's fpmath mode)",
       {"strict", "bf16", "any"}}};
  const std::vector<backend::PatternRule> rules_ = MakeRules();
};

INLAY_REGISTER_BACKEND(OnednnBackend);

}  // namespace
}  // namespace inlay::onednn
