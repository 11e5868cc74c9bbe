// What a partition costs, by arithmetic.
#ifndef INLAY_CORE_BACKENDS_XNNPACK_COST_H_
#define INLAY_CORE_BACKENDS_XNNPACK_COST_H_

#include "core/backends/xnnpack/lowering.h"
#include "core/target/target.h"

namespace inlay::xnnpack {

// Microseconds of one call on one core, transposes at the borders left out: TransitionMicros has them.
double EstimateMicros(const Lowered& lowered, const target::Target& target);

}  // namespace inlay::xnnpack

#endif  // INLAY_CORE_BACKENDS_XNNPACK_COST_H_
