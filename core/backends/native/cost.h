// What native code would cost: an estimate from shapes alone. No MLIR; any thread.
#ifndef INLAY_CORE_BACKENDS_NATIVE_COST_H_
#define INLAY_CORE_BACKENDS_NATIVE_COST_H_

#include "core/ir/ir_module.h"
#include "core/target/target.h"

namespace inlay::native {

// Microseconds of one call on one core, on the scale of all CPU backends' estimates (a core of 3 GHz).
double EstimateMicros(const ir::Function& partition, const target::Target& target);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_COST_H_
