// A StaticLibrary whose code is calls of a runtime shim (shim_object.h): what the codegen hooks of such backends share.
// Links LLVM. Any thread.
#ifndef INLAY_CORE_BACKENDS_COMMON_SHIM_CODEGEN_H_
#define INLAY_CORE_BACKENDS_COMMON_SHIM_CODEGEN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend/backend.h"

namespace inlay::backends {

struct ShimPartition {
  std::string description;  // any bytes, for the shim's _init
  int64_t workspace_bytes = 0;
  double flops = 0;
  // Inputs that only _init reads; none given: whatever is constant is copied or packed by it.
  std::optional<std::vector<int>> init_only_inputs;
};

using DescribeFn = std::function<absl::StatusOr<ShimPartition>(const ir::Function& partition)>;

// Every function of the request's module, described and signed, in one object that calls the shim of the component
// named like the codegen. Runs on any x86-64 and needs that component; what else it needs, the caller adds to the
// manifest. describe's error, naming the codegen and the partition; FillSignature's.
absl::StatusOr<proto::StaticLibrary> GenerateShimCalls(const backend::BackendCodegen& codegen,
                                                       const backend::CodegenRequest& request,
                                                       const DescribeFn& describe);

}  // namespace inlay::backends

#endif  // INLAY_CORE_BACKENDS_COMMON_SHIM_CODEGEN_H_
