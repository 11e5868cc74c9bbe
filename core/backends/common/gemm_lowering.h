// What a GEMM library can take of a model, and as what: matmul (and 1x1 convolution, which is one) with the elementwise
// operators behind it. No LLVM, no library: the daemon uses it for rules and estimates, the worker for code. Any
// thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_GEMM_LOWERING_H_
#define INLAY_CORE_BACKENDS_COMMON_GEMM_LOWERING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/backend/backend.h"
#include "core/backends/common/gemm_description.h"
#include "core/ir/ir_module.h"

namespace inlay::backends {

// Whether the calls, in execution order, are a product and a chain behind it. UNIMPLEMENTED: the reason, with the call
// it is about.
absl::Status CheckGemm(const std::vector<const ir::Binding*>& calls, const std::vector<ir::DType>& dtypes);

// `options` and `workspace_bytes` are left to the caller.
//   UNIMPLEMENTED     as CheckGemm
//   INVALID_ARGUMENT  not a partition function: constant_params missing or wrong, a weight inside, other results
absl::StatusOr<GemmDescription> LowerGemm(const ir::Function& partition, const std::vector<ir::DType>& dtypes);

// "<backend>.matmul", "<backend>.matmul_eltwise1", ... "<backend>.conv1x1", ...: one rule a length, so that the search
// may cut a chain where another backend goes on better.
std::vector<backend::PatternRule> GemmRules(const std::string& backend, const std::vector<ir::DType>& dtypes);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_GEMM_LOWERING_H_
