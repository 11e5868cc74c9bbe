// The daemon's half: what csource claims, and what a configuration's own kernels claim.
#include "core/backend/backend.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/backends/csource/cost.h"
#include "core/backends/csource/op.h"
#include "core/backends/csource/options.h"

namespace inlay::csource {
namespace {

class CSourceBackend : public backend::Backend {
 public:
  std::string name() const override { return "csource"; }

  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override {
    if (target.kind == "c") {
      if (codegen_target.attrs.empty()) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("the codegen target csource has the attribute '", codegen_target.attrs.begin()->first,
                       "', and the device target is of kind 'c': its sources are compiled by whoever builds them"));
    }
    if (target.kind != "llvm") {
      return absl::FailedPreconditionError(
          absl::StrCat("csource serves CPUs, not targets of kind '", target.kind, "'"));
    }
    if (!absl::StartsWith(target.attr("mtriple"), "x86_64")) {
      return absl::FailedPreconditionError(
          absl::StrCat("csource calls compilers for x86_64, not for '", target.attr("mtriple"), "'"));
    }
    return ParseOptions(target, codegen_target).status();
  }

  const std::vector<target::AttrSpec>& attrs() const override { return Attrs(); }
  const std::vector<backend::PatternRule>& rules() const override {
    // On first use: when this object is made, not all operators need have registered themselves.
    static const auto* rules = new std::vector<backend::PatternRule>(MakeRules());
    return *rules;
  }

  std::vector<backend::PatternRule> ConfiguredRules(const target::Target& target,
                                                    const target::Target& codegen_target) const override {
    std::vector<backend::PatternRule> rules;
    if (target.kind == "c") return rules;
    auto options = ParseOptions(target, codegen_target);
    if (!options.ok()) return rules;
    for (const UserKernel& kernel : options->kernels) {
      backend::PatternRule rule;
      rule.name = absl::StrCat("csource.kernel.", kernel.symbol);
      rule.pattern = ir::Op(kernel.op);
      rule.check = [kernel](const ir::PatternMatch& match, const target::Target&) {
        return CheckMatch(kernel, *match.bindings.back());
      };
      rule.priority = 10;
      rule.intended = true;
      rules.push_back(std::move(rule));
    }
    return rules;
  }

  bool fuses_by_kind() const override { return true; }
  bool is_hidden(const target::Target& device) const override { return device.kind != "c"; }

  double EstimateMicros(const ir::Function& partition, const target::Target& target) const override {
    return csource::EstimateMicros(partition, target);
  }

 private:
  static std::vector<backend::PatternRule> MakeRules() {
    std::vector<backend::PatternRule> rules;
    for (const auto& [name, op] : Ops()) {
      rules.push_back(
          {absl::StrCat("csource.", name), ir::Op(name),
           [](const ir::PatternMatch& match, const target::Target&) { return CheckCall(*match.bindings.back()); }, 0});
    }
    return rules;
  }
};

INLAY_REGISTER_BACKEND(CSourceBackend);

}  // namespace
}  // namespace inlay::csource
