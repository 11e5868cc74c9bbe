// What oneDNN can take: asked by the rules before a partition is made and by the lowering once more when it is
// compiled. Any thread.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_SUPPORT_H_
#define INLAY_CORE_BACKENDS_ONEDNN_SUPPORT_H_

#include "absl/status/status.h"
#include "core/backends/onednn/description.h"
#include "core/ir/ir_module.h"

namespace inlay::onednn {

// OK: a partition may contain this call. UNIMPLEMENTED: the reason (the caller names the call).
absl::Status CheckCall(const ir::Binding& call);

// The eltwise operator that a call of one argument is, as a post-op without operand; false: none.
bool AsEltwise(const ir::Binding& call, PostOp* post_op);

// oneDNN's name of a binary operator, "" where it has none.
std::string BinaryName(absl::string_view op);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_SUPPORT_H_
