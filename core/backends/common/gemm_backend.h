// The light half of a backend over a GEMM library: what differs between two such backends is a GemmLibrary.
// Links neither LLVM nor a library. Any thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_GEMM_BACKEND_H_
#define INLAY_CORE_BACKENDS_COMMON_GEMM_BACKEND_H_

#include <map>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/backends/common/gemm_description.h"

namespace inlay::backends {

// An attribute of the codegen target.
struct GemmOption {
  std::string name;
  int64_t default_value, min, max, multiple_of;
  std::string help;
};

struct GemmLibrary {
  std::string name;  // of the backend, the runtime component and the shim
  std::vector<ir::DType> dtypes;
  std::vector<GemmOption> options;  // besides kSplitFlops, which each has
  // What the target must have besides x86-64 Linux ("avx2"); "": nothing.
  std::string required_feature;
  // Of the peak (two fused multiply-adds a cycle) with AVX-512 and without, and of memory in bytes a microsecond.
  double efficiency_avx512, efficiency_avx2, bytes_per_micro, call_micros;
  // Whether a constant B is copied by _init, so that the executor may drop the original.
  bool packs_weights = false;
  std::string linked_package;  // Debian's, whose code is in the runtime component
  int64_t (*workspace_bytes)(const GemmDescription&);
};

// The attributes of the codegen target with defaults filled in. INVALID_ARGUMENT names an unknown one, a value that is
// no number or out of range.
absl::StatusOr<std::map<std::string, int64_t>> GemmOptions(const GemmLibrary& library,
                                                           const target::Target& codegen_target);

// Microseconds of one call on one core.
double EstimateGemmMicros(const GemmLibrary& library, const GemmDescription& gemm, const target::Target& target);

class GemmBackend : public backend::Backend {
 public:
  explicit GemmBackend(const GemmLibrary& library);
  std::string name() const override { return library_.name; }
  absl::Status CheckTarget(const target::Target& target, const target::Target& codegen_target) const override;
  const std::vector<target::AttrSpec>& attrs() const override { return attrs_; }
  const std::vector<backend::PatternRule>& rules() const override { return rules_; }
  double EstimateMicros(const ir::Function& partition, const target::Target& target) const override;

 private:
  GemmLibrary library_;
  std::vector<target::AttrSpec> attrs_;
  std::vector<backend::PatternRule> rules_;
};

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_GEMM_BACKEND_H_
