// How much workspace a partition's manifest asks for.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_WORKSPACE_H_
#define INLAY_CORE_BACKENDS_ONEDNN_WORKSPACE_H_

#include "core/backends/onednn/description.h"

namespace inlay::onednn {

// An estimate from above: layouts and scratchpads are chosen on the machine that runs, which a compile action does not
// know. Where it is too small the shim keeps memory of its own (Program), so a wrong guess costs memory, not
// correctness.
int64_t EstimateWorkspace(const Description& description);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_WORKSPACE_H_
