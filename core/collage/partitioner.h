// Partitioner: cuts a normalised module into partitions (core/README.md, points 1 and 2).
#ifndef INLAY_CORE_COLLAGE_PARTITIONER_H_
#define INLAY_CORE_COLLAGE_PARTITIONER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend/backend.h"
#include "core/collage/candidate.h"
#include "core/collage/cost_estimator.h"
#include "core/collage/merge.h"
#include "core/ir/ir_module.h"

namespace inlay::collage {

// One partition function of the result.
struct PartitionInfo {
  std::string function;  // its name in the module, and its symbol
  std::string backend;
  std::vector<std::string> ops;
  std::vector<std::string> locations;  // of its first call site
  std::string why;
  double cost_us = 0;
  int call_sites = 0;
};

struct Partitioned {
  ir::IRModule module;
  std::vector<PartitionInfo> partitions;  // in order of first call
  std::vector<Refusal> refusals;          // of main, for explanations
};

class Partitioner {
 public:
  // `backends`: those that the configuration allows and that serve its target, at least one of which should be a
  // fallback. `estimator` outlives the Partitioner.
  Partitioner(std::vector<const backend::Backend*> backends, const CostEstimator* estimator);

  // Every operator of `main` and `transform_params` ends in exactly one partition. Deterministic.
  absl::StatusOr<Partitioned> Run(const ir::IRModule& module) const;

 private:
  absl::StatusOr<std::vector<Group>> BestGroups(const DataflowGraph& graph, const std::vector<Candidate>& candidates,
                                                const target::Target& target) const;

  std::vector<const backend::Backend*> backends_;
  const CostEstimator* estimator_;
};

// The backends of the registry that a configuration may use, in the order of its list (all: by name). NOT_FOUND for a
// name that is not there, saying which are; FAILED_PRECONDITION where none can serve the target, with each one's
// reason.
absl::StatusOr<std::vector<const backend::Backend*>> SelectBackends(const target::CompilationConfig& config);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_PARTITIONER_H_
