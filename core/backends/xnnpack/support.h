// Which calls XNNPACK's operators can express. What depends on which arguments are constant is left to the patterns and
// to Lower.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_SUPPORT_H_
#define INLAY_CORE_BACKENDS_XNNPACK_SUPPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/backends/xnnpack/description.h"
#include "core/ir/ir_module.h"

namespace inlay::xnnpack {

// UNIMPLEMENTED with the reason.
absl::Status CheckCall(const ir::Binding& call);

// relu, clip: as what is fused to an operator.
bool AsClamp(const ir::Binding& call, Clamp* clamp);

// XNNPACK's name of an elementwise operator of two arguments; "" for others.
std::string BinaryName(absl::string_view op);
// Of one argument, with the channels of no interest; "" for others (clamps too).
std::string UnaryName(absl::string_view op);

// The windows of a call on [N,C,L] or [N,C,H,W], as XNNPACK wants them: always with height and width. False: neither.
bool FillWindows(const ir::Binding& call, Step* step);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_SUPPORT_H_
