// From a partition function to the Description that its object carries. No LLVM and no XNNPACK in it: the daemon uses
// it for estimates, the worker for code.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_LOWERING_H_
#define INLAY_CORE_BACKENDS_XNNPACK_LOWERING_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/backends/xnnpack/description.h"
#include "core/ir/ir_module.h"

namespace inlay::xnnpack {

struct Lowered {
  Description description;
  std::string literals;  // their bytes, at the offsets that the description says
  double flops = 0;      // of the contractions
};

// Any connected sub-graph of calls that CheckCall accepts whose contractions have constant weights. Fuses constant
// biases and clamps into the operator that makes their argument, where nobody else needs it.
//   UNIMPLEMENTED     a call that is not supported; names it
//   INVALID_ARGUMENT  not a partition function
absl::StatusOr<Lowered> Lower(const ir::Function& partition);

// The bytes that ReadAndCheck reads.
std::string Serialize(const Lowered& lowered);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_LOWERING_H_
