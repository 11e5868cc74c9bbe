// The light half: what XNNPACK claims and what it would cost. Links no XNNPACK, but looks whether it is there.
#include "core/backend/backend.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/backends/xnnpack/cost.h"
#include "core/backends/xnnpack/layouts.h"
#include "core/backends/xnnpack/lowering.h"
#include "core/backends/xnnpack/patterns.h"
#include "core/backends/xnnpack/runtime/loaded_library.h"

namespace inlay::xnnpack {
namespace {

class XnnpackBackend : public backend::Backend {
 public:
  std::string name() const override { return "xnnpack"; }

  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override {
    if (target.kind != "llvm") {
      return absl::FailedPreconditionError(
          absl::StrCat("xnnpack serves CPUs, not targets of kind '", target.kind, "'"));
    }
    const std::string triple = target.attr("mtriple");
    if (!absl::StartsWith(triple, "x86_64") || !absl::StrContains(triple, "linux")) {
      return absl::FailedPreconditionError(
          absl::StrCat("xnnpack's runtime is built for x86_64 Linux, not for '", triple, "'"));
    }
    if (absl::Status s = CheckAttrs(codegen_target); !s.ok()) return s;
    // The programs that would measure and run it are this machine's.
    if (const std::string& missing = LoadLibrary(); !missing.empty()) return absl::FailedPreconditionError(missing);
    return absl::OkStatus();
  }

  const std::vector<target::AttrSpec>& attrs() const override { return attrs_; }
  const std::vector<backend::PatternRule>& rules() const override { return rules_; }
  bool merges_regions() const override { return true; }
  backend::ChannelsLast PrefersChannelsLast(const ir::Function& partition, const target::Target&) const override {
    return xnnpack::PrefersChannelsLast(partition);
  }

  // Images have their channels last inside a partition, so a border transposes them: read and written once, with the
  // scattered side (55 KB in 1.5 us, 1.1 MB in 35, 4.6 MB in 550, a machine's measured transitions; cost.cc's scale).
  // Matrices stay as they are.
  double TransitionMicros(const ir::TensorType& tensor, const target::Target&) const override {
    if (tensor.rank() < 3 || tensor.rank() > 4 || !tensor.is_static()) return 0;
    return 0.3 + 2.0 * static_cast<double>(tensor.NumBytes()) / 25e3;
  }

  double EstimateMicros(const ir::Function& partition, const target::Target& target) const override {
    auto lowered = Lower(partition);
    return lowered.ok() ? xnnpack::EstimateMicros(*lowered, target) : -1;
  }

 private:
  const std::vector<target::AttrSpec> attrs_ = {
      {kSplitMacsAttr,
       target::AttrSpec::Type::kInt,
       std::to_string(kDefaultSplitMacs),
       "multiply-adds that a thread's part of a convolution or matrix product has at least",
       {},
       1,
       int64_t{1} << 40}};
  const std::vector<backend::PatternRule> rules_ = MakeRules();
};

INLAY_REGISTER_BACKEND(XnnpackBackend);

}  // namespace
}  // namespace inlay::xnnpack
