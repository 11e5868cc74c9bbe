// Target: what code is generated for. Plain value.
//
// String form: "llvm -mcpu=znver4 -mattr=+avx512f -num-cores=2": a kind, then -name=value, words with blanks quoted as
// in a shell. JSON form: {"kind": "llvm", "mcpu": "znver4", ...}. Both read back to an equal Target. Which kinds there
// are, with which attributes: target_kinds.h.
#ifndef INLAY_CORE_TARGET_TARGET_H_
#define INLAY_CORE_TARGET_TARGET_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace inlay::target {

class Target {
 public:
  std::string kind = "llvm";
  std::map<std::string, std::string> attrs;

  // INVALID_ARGUMENT names the word that can't be read, the attribute that the kind does not have, and those it has.
  static absl::StatusOr<Target> Parse(absl::string_view text);
  std::string ToString() const;
  std::string ToJson() const;  // one line
  std::string attr(absl::string_view name, absl::string_view fallback = "") const;

  // What the code needs, complete: mtriple, mcpu and the full list of mattr that follow from them ("native" is refused:
  // only a client knows whose machine it means). Idempotent. Without LLVM: the CPU table is core/target/x86_cpus.
  absl::StatusOr<Target> Completed() const;
  bool HasFeature(absl::string_view feature) const;  // of a completed llvm target: "avx512f"

  bool operator==(const Target& other) const { return kind == other.kind && attrs == other.attrs; }
};

// This machine as a Target (by CPUID), which is what "native" means where it is resolved.
Target HostTarget();

}  // namespace inlay::target

#endif  // INLAY_CORE_TARGET_TARGET_H_
