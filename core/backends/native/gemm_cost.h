// The model by which register tiles, and methods of computing a contraction, are compared: core cycles of its
// multiply-adds, loads and chains. Single-threaded, no MLIR; what it leaves out (memory that is late beyond L2) the
// plans decide by rules of their own.
#ifndef INLAY_CORE_BACKENDS_NATIVE_GEMM_COST_H_
#define INLAY_CORE_BACKENDS_NATIVE_GEMM_COST_H_

#include "core/backends/native/gemm_plan.h"

namespace inlay::native {

// Cycles of all of a plan's tiles, their loads and the latency of a chain counted.
double EstimateCycles(const GemmPlan& plan);

// The same, and what loads take of the core's power where that holds it back: what a tile is chosen by. Of one problem
// by different tiles alone, else not comparable.
double TileCost(const GemmPlan& plan);

// Of P in L2: blocks of fewer whose k is whole are not worth it.
inline constexpr int64_t kFewRows = 32;

// Whether P and two panels of a product, this one and the one that is asked for, are together more than L2 has room for
// where steps wait for it, so that both are cut into blocks.
bool BlockComesLate(const GemmPlan& plan);

// Whether results leave L2 before anyone reads them, where that takes long.
bool ResultsGoFar(const GemmPlan& plan);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_GEMM_COST_H_
