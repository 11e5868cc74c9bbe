// User kernels: C functions that a configuration brings along for operators (the attribute `kernels` of the codegen
// target; README.md says how to write one). What they are is checked here; whether they are right is their author's.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_USER_KERNEL_H_
#define INLAY_CORE_BACKENDS_CSOURCE_USER_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ir/ir_module.h"

namespace inlay::csource {

struct UserKernel {
  std::string op;      // of core/ir/OPS.md
  std::string symbol;  // of the C function
  std::string source;
  // Of the inputs; a single one stands for them all.
  std::vector<ir::DType> dtypes = {ir::DType::kF32};
  // Those that the call must have; others must have their defaults.
  ir::Attrs attrs;
  // Of the inputs, -1 for any extent; empty: any shapes.
  std::vector<std::vector<int64_t>> shapes;
};

// From the JSON text of the attribute: a list of objects {op, symbol, source, dtypes?, attrs?, shapes?}.
// INVALID_ARGUMENT names the kernel and what is wrong with it.
absl::StatusOr<std::vector<UserKernel>> ParseUserKernels(const std::string& json);

// OK, or why the kernel does not implement this call.
absl::Status CheckMatch(const UserKernel& kernel, const ir::Binding& call);
// The first that implements it, or nullptr.
const UserKernel* FindUserKernel(const std::vector<UserKernel>& kernels, const ir::Binding& call);

// The C types of the function's parameters: for each input, then each output, `T *data, const int64_t *dims, int32_t
// rank` (inputs const). f16 and bf16 are uint16_t, bool is uint8_t.
std::string SignatureOf(const ir::Binding& call);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_USER_KERNEL_H_
