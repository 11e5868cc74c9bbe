// Whether this CPU (and its kernel) can run code that was generated for a list of LLVM features.
#ifndef INLAY_CORE_RUNTIME_CPU_FEATURES_H_
#define INLAY_CORE_RUNTIME_CPU_FEATURES_H_

#include <string>

#include "core/runtime/status.h"

namespace inlay::runtime {

// `features`: "+avx2,+fma,-avx512f,...". FAILED_PRECONDITION: "needs avx512f, avx512bw; this CPU lacks them". Names
// that stand for no instructions (tuning: "fast-gather", "prefer-256-bit") are passed over. `triple` names the
// architecture.
Status CheckCpu(const std::string& triple, const std::string& features);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_CPU_FEATURES_H_
