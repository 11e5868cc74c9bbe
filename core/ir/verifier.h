// Verify: whether a module is well-formed. For what passes and tests build; what clients send is checked by FromProto.
#ifndef INLAY_CORE_IR_VERIFIER_H_
#define INLAY_CORE_IR_VERIFIER_H_

#include "absl/status/status.h"
#include "core/ir/ir_module.h"

namespace inlay::ir {

// There is a "main"; every Var is defined once, before its uses, in the block or one around it; operators, their
// arguments and attributes fit, and every Var has the type that inference gives; function calls form no circle and fit
// their callees; literals have the size of their type. INVALID_ARGUMENT names function and binding.
absl::Status Verify(const IRModule& module);

// The same of a function that calls no other.
absl::Status Verify(const Function& function);

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_VERIFIER_H_
