// The light half, which the daemon links: what the backend claims and what that would cost. No LLVM, no library.
#include "core/backend/backend.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/backends/null/partition.h"

namespace inlay::null {
namespace {

class NullBackend : public backend::Backend {
 public:
  std::string name() const override { return "null"; }

  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override {
    if (target.kind != "llvm") {
      return absl::FailedPreconditionError(absl::StrCat("null serves CPUs, not targets of kind '", target.kind, "'"));
    }
    return CheckAttrs(codegen_target);
  }

  const std::vector<target::AttrSpec>& attrs() const override { return attrs_; }

  const std::vector<backend::PatternRule>& rules() const override { return rules_; }

  // Only where a configuration names it. A real backend leaves this out.
  bool is_hidden(const target::Target&) const override { return true; }

  double EstimateMicros(const ir::Function& partition, const target::Target&) const override {
    auto bytes = BytesToCopy(partition);
    constexpr double kBytesPerMicro = 20e3;  // a core's copy out of L2
    return bytes.ok() ? 0.1 + static_cast<double>(*bytes) / kBytesPerMicro : -1;
  }

 private:
  static absl::Status Check(const ir::PatternMatch& match, const target::Target&) {
    return CheckCall(*match.bindings.back());
  }

  const std::vector<target::AttrSpec> attrs_ = {
      {"block", target::AttrSpec::Type::kInt, "0", "bytes that are copied at a time; 0: all", {}, 0, 1 << 30}};
  const std::vector<backend::PatternRule> rules_ = {{"null.copy", ir::Op("reshape", {ir::Any()}), Check, 0}};
};

INLAY_REGISTER_BACKEND(NullBackend);

}  // namespace
}  // namespace inlay::null
