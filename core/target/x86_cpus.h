// x86-64 CPUs by LLVM's names and the instruction sets that follow from them, without LLVM. Read-only tables; any
// thread.
#ifndef INLAY_CORE_TARGET_X86_CPUS_H_
#define INLAY_CORE_TARGET_X86_CPUS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace inlay::target {

using Features = std::set<std::string>;

// nullptr: no such CPU.
const Features* X86CpuFeatures(absl::string_view cpu);
std::vector<std::string> X86CpuNames();
std::vector<std::string> X86FeatureNames();

// Data caches of a core, a core's part of those that several share; multiply-adds a cycle of 512 bits; whether L2 gives
// less than two multiply-adds a cycle want, and L3 lies across a mesh (Intel's servers); whether a few accumulators
// less begin sooner (Zen 3).
struct X86Core {
  int64_t l1_bytes, l2_bytes;
  int64_t wide_multiply_adds = 2;
  bool far_caches = false;
  bool slow_starts = false;
};
// Of a CPU that is not known: small caches.
X86Core X86CpuCore(absl::string_view cpu);

// LLVM's name for what CPUID calls `vendor`, `family` and `model`. A hypervisor may give another CPU's numbers, and a
// newer CPU's are in no table: where the features say that it can't be that one, the CPU that they tell of, and else
// the highest x86-64 level whose features are all there.
std::string X86CpuOf(absl::string_view vendor, uint32_t family, uint32_t model, const Features& features);

bool IsX86Feature(absl::string_view feature);
// LLVM knows it, but no generated code uses it (sgx, pku, ...): accepted and dropped.
bool IsX86SystemFeature(absl::string_view feature);

// With all that it implies (avx2 brings avx, sse4.2, ...).
void EnableX86Feature(absl::string_view feature, Features* features);
// With all that implies it (without avx2 there is no avx512f).
void DisableX86Feature(absl::string_view feature, Features* features);

}  // namespace inlay::target

#endif  // INLAY_CORE_TARGET_X86_CPUS_H_
