#include "core/passes/pass_manager.h"
#include "core/passes/passes.h"

namespace inlay::passes {

PassManager BuildNormalisePipeline(const target::CompilationConfig& config) {
  PassManager manager(config);
  manager.Add(InferTypes());
  manager.Add(InlineFunctions());
  manager.Add(OutlineControlFlow());
  manager.Add(RequireStaticShapes());
  // Twice: what simplify leaves behind (an expand less, a literal more) makes new cases for the other two.
  for (int round = 0; round < 2; ++round) {
    manager.Add(Canonicalise());
    manager.Add(FoldConstants());
    manager.Add(Simplify());
    manager.Add(RecogniseAssignment());
    // Before patterns: exporters compute x - mean(x) twice.
    manager.Add(CommonSubexpression());
    manager.Add(DeadCode());
  }
  manager.Add(MoveQuantised());
  manager.Add(RecogniseComposites());
  manager.Add(RecogniseGatherMatmul());
  manager.Add(RecognisePointwiseConv());
  manager.Add(FoldPads());
  manager.Add(TrimKernels());
  manager.Add(GroupHeads());
  // After composites, of which it must not tear one apart; it knows gelu, softmax and layer_norm.
  manager.Add(SinkReshapes());
  manager.Add(ExpandBatchNorm());
  manager.Add(DeadCode());
  manager.Add(FoldScaleBias());
  // Twice: branches whose sum is scaled and added to what they read (FastViT's mixers).
  for (int round = 0; round < 2; ++round) {
    manager.Add(DeadCode());  // what is left of what was folded counts as a use
    manager.Add(MergeParallelLinear());
    manager.Add(FoldScaleBias());
  }
  manager.Add(FoldRequantisation());
  manager.Add(ExpandConvTranspose());
  manager.Add(ToMixedPrecision());
  manager.Add(Canonicalise());
  manager.Add(FoldConstants());
  manager.Add(Simplify());
  manager.Add(CommonSubexpression());
  manager.Add(WidenAtReaders());
  manager.Add(DeadCode());
  manager.Add(LiftTransformParams());
  manager.Add(DeadCode());
  manager.Add(InferTypes());
  return manager;
}

}  // namespace inlay::passes
