// The passes. Each is in the file of its name, whose head comment shows IR before and after.
#ifndef INLAY_CORE_PASSES_PASSES_H_
#define INLAY_CORE_PASSES_PASSES_H_

#include <memory>

#include "core/passes/pass.h"

namespace inlay::passes {

std::unique_ptr<Pass> InferTypes();
std::unique_ptr<Pass> InlineFunctions();
std::unique_ptr<Pass> OutlineControlFlow();  // after inline_functions
std::unique_ptr<Pass> RequireStaticShapes();
std::unique_ptr<Pass> Canonicalise();
std::unique_ptr<Pass> FoldConstants();
std::unique_ptr<Pass> Simplify();
std::unique_ptr<Pass> RecogniseAssignment();
std::unique_ptr<Pass> FoldPads();
std::unique_ptr<Pass> TrimKernels();
std::unique_ptr<Pass> SinkReshapes();
std::unique_ptr<Pass> GroupHeads();
std::unique_ptr<Pass> RecogniseComposites();
std::unique_ptr<Pass> RecogniseGatherMatmul();
std::unique_ptr<Pass> RecognisePointwiseConv();
std::unique_ptr<Pass> ExpandBatchNorm();
std::unique_ptr<Pass> ExpandConvTranspose();
std::unique_ptr<Pass> FoldRequantisation();
std::unique_ptr<Pass> MoveQuantised();
std::unique_ptr<Pass> FoldScaleBias();
std::unique_ptr<Pass> MergeParallelLinear();
std::unique_ptr<Pass> ToMixedPrecision();
std::unique_ptr<Pass> WidenAtReaders();
std::unique_ptr<Pass> CommonSubexpression();
std::unique_ptr<Pass> DeadCode();
std::unique_ptr<Pass> LiftTransformParams();

}  // namespace inlay::passes

#endif  // INLAY_CORE_PASSES_PASSES_H_
