#include "core/passes/dead_code.h"
#include "core/passes/lift_transform_params.h"
#include "core/passes/pass_manager.h"

namespace inlay::passes {

PassManager BuildNormalisePipeline(const target::CompilationConfig& config) {
  PassManager passes;
  passes.Add(DeadCode());
  passes.Add(LiftTransformParams());
  return passes;
}

}  // namespace inlay::passes
