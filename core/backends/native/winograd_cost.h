// What a Winograd plan takes, and the direct way that it is compared with. Measured on Zen 3 and 5 and Emerald Rapids
// (kernels.md, "Winograd").
#ifndef INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_COST_H_
#define INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_COST_H_

#include "core/backends/native/winograd_plan.h"

namespace inlay::native {

// Cycles of one call, by one thread.
double WinogradCycles(const Core& core, const WinogradPlan& plan);

// Of the direct way, as long as it takes beside what WinogradCycles says.
double CyclesBeside(const Core& core, const ConvPlan& direct);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_WINOGRAD_COST_H_
