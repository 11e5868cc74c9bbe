// From a partitioned module (core/README.md, stage 2) and the manifests of its StaticLibraries to an ExecutionPlan.
//
// Memory is planned here: every value of a run gets an offset in one arena by its lifetime (greedy by size, best fit),
// outputs are written in place, and what transform_params makes lives only as long as something reads it.
#ifndef INLAY_CORE_ARTIFACT_PLANNER_H_
#define INLAY_CORE_ARTIFACT_PLANNER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/ir/ir_module.h"
#include "core/runtime/plan.h"
#include "proto/artifact.pb.h"

namespace inlay::artifact {

struct BuiltPlan {
  runtime::ExecutionPlan plan;
  std::vector<ir::ConstantPtr> params;  // the weights, in the order of plan.params
};

// `partitioned`: "main", and "transform_params" where something was lifted, call partition functions. The symbol of a
// partition is its function's attribute "symbol" (string), else the function's name; each must be implemented by
// exactly one of `manifests`.
//   FAILED_PRECONDITION  a function implemented by none or by two, or with another signature; names it
//   UNIMPLEMENTED        If, call_packed, a symbolic dimension; names the node and the symbol
//   INVALID_ARGUMENT     not a partitioned module
absl::StatusOr<BuiltPlan> BuildPlan(const ir::IRModule& partitioned,
                                    absl::Span<const proto::StaticLibraryManifest> manifests);

}  // namespace inlay::artifact

#endif  // INLAY_CORE_ARTIFACT_PLANNER_H_
