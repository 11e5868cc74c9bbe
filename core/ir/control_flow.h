// What control flow is in the IR, beside Binding::Kind::kIf: a *while* is a kCallFunction with the attribute "while"
// (true). Its callee takes first what it gives: a condition (a bool with one element) and any state, then what does not
// change; it is called as long as the condition holds, with its own results for its first parameters.
//
//   %r = @body(%cond, %i, %x, %w) {while}        ==>       while (cond) (cond, i, x) = body(cond, i, x, w); r = (cond,
//   i, x)
#ifndef INLAY_CORE_IR_CONTROL_FLOW_H_
#define INLAY_CORE_IR_CONTROL_FLOW_H_

#include "core/ir/ir_module.h"

namespace inlay::ir {

inline constexpr char kWhile[] = "while";

inline bool IsWhile(const Binding& binding) {
  return binding.kind == Binding::Kind::kCallFunction && binding.attrs.Has(kWhile);
}

}  // namespace inlay::ir

#endif  // INLAY_CORE_IR_CONTROL_FLOW_H_
