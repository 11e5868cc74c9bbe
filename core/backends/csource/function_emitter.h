// A partition as one C source. For CPUs that we compile for ourselves it defines `<symbol>_run` of
// core/runtime/kernel_abi.h; for targets of kind "c" a function of plain pointers (proto/artifact.proto, SourceFile),
// and everything that it shares with others is in the header kOpsHeader.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_FUNCTION_EMITTER_H_
#define INLAY_CORE_BACKENDS_CSOURCE_FUNCTION_EMITTER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backends/csource/user_kernel.h"
#include "core/ir/ir_module.h"
#include "core/target/target.h"

namespace inlay::csource {

inline constexpr char kOpsHeader[] = "inlay_ops.h";
// Its text: the same for every partition.
std::string OpsHeader();

struct EmittedFunction {
  std::string source;
  int64_t workspace_bytes = 0;
  int64_t constant_bytes = 0;  // literals that it holds as arrays
  // Those that it calls as LinkedName(symbol, kernel), each once, with the signature that it calls them with.
  std::vector<std::pair<const UserKernel*, std::string>> user_kernels;
};

// `kernels`: those of the configuration; they outlive the result. UNIMPLEMENTED, naming the binding, for what csource
// does not claim.
absl::StatusOr<EmittedFunction> EmitFunction(const std::string& symbol, const ir::Function& function,
                                             const target::Target& target, const std::vector<UserKernel>& kernels);

// What a user kernel is called inside the partition's library, so that two partitions may hold the same one.
std::string LinkedName(const std::string& symbol, const UserKernel& kernel);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_FUNCTION_EMITTER_H_
