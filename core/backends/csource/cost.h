// What a partition costs, estimated. Any thread.
#ifndef INLAY_CORE_BACKENDS_CSOURCE_COST_H_
#define INLAY_CORE_BACKENDS_CSOURCE_COST_H_

#include "core/ir/ir_module.h"
#include "core/target/target.h"

namespace inlay::csource {

// Arithmetic operations of all calls; a transcendental function counts as 20.
double CountFlops(const ir::Function& partition);
// A roofline at the rates that csource's code was measured at, which are lower than native code's: where nothing is
// measured, csource takes only what a configuration gives it (by preference, or as a kernel of its own).
double EstimateMicros(const ir::Function& partition, const target::Target& target);

}  // namespace inlay::csource

#endif  // INLAY_CORE_BACKENDS_CSOURCE_COST_H_
