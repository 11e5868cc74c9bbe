// What a partition costs, by arithmetic.
#ifndef INLAY_CORE_BACKENDS_ONEDNN_COST_H_
#define INLAY_CORE_BACKENDS_ONEDNN_COST_H_

#include "core/backends/onednn/lowering.h"
#include "core/target/target.h"

namespace inlay::onednn {

// Microseconds of one call on one core.
double EstimateMicros(const Lowered& lowered, const target::Target& target);

}  // namespace inlay::onednn

#endif  // INLAY_CORE_BACKENDS_ONEDNN_COST_H_
