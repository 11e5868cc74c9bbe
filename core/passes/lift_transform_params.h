// lift_transform_params: moves what depends on weights alone out of main, into a function that runs once at load.
//
//   fn @main(%x) {                             fn @transform_params() {
//     %0 = mul(@w, @scale)                       %0 = mul(@w, @scale)
//     %1 = conv(%x, %0)               ->         return %0
//     return %1                                }
//   }                                          fn @main(%x, %0) {        // attrs: num_lifted_params = 1
//                                                %1 = conv(%x, %0)
//                                                return %1
//                                              }
// No weight's value is looked at, so a module keeps its structure when its weights change.
#ifndef INLAY_CORE_PASSES_LIFT_TRANSFORM_PARAMS_H_
#define INLAY_CORE_PASSES_LIFT_TRANSFORM_PARAMS_H_

#include "core/passes/pass.h"

namespace inlay::passes {

PassPtr LiftTransformParams();

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_LIFT_TRANSFORM_PARAMS_H_
