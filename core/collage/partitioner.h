// Partitioner: cuts a normalised module into partitions (core/README.md, points 1 and 2).
#ifndef INLAY_CORE_COLLAGE_PARTITIONER_H_
#define INLAY_CORE_COLLAGE_PARTITIONER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend/backend.h"
#include "core/collage/candidate.h"
#include "core/collage/cost_estimator.h"
#include "core/collage/cover.h"
#include "core/collage/dataflow_graph.h"
#include "core/collage/layouts.h"
#include "core/ir/ir_module.h"

namespace inlay::collage {

// One partition function of the result.
struct PartitionInfo {
  std::string function;        // its name in the module, and its symbol
  std::string backend;         // or a variant of one, "native#2"
  std::string codegen_target;  // of it, where it has attributes
  std::vector<std::string> ops;
  std::vector<std::string> locations;   // of its first call site
  backend::ChannelsLast channels_last;  // at its borders
  std::string why;
  double cost_us = 0;
  int call_sites = 0;  // how often the plan calls it
};

struct Partitioned {
  ir::IRModule module;
  std::vector<PartitionInfo> partitions;  // in order of first call
  bool has_micro_batches = false;
};

// What a search chooses from. The module it was made of must outlive it.
struct FunctionSpace {
  std::string name;
  std::unique_ptr<DataflowGraph> graph;
  std::vector<Candidate> candidates;  // with the estimator's costs
  bool is_main() const { return name == "main"; }
};
struct SearchSpace {
  std::vector<FunctionSpace> functions;
  std::vector<Refusal> refusals;  // of main, for explanations
};

class Partitioner {
 public:
  // `backends`: those that the configuration allows and that serve its target, at least one of which should be a
  // fallback. `estimator` outlives the Partitioner.
  Partitioner(std::vector<const backend::Backend*> backends, const CostEstimator* estimator);

  // Deterministic, all three. UNIMPLEMENTED names what no backend compiles.
  SearchSpace Propose(const ir::IRModule& module) const;
  // The cover with the least sum of estimates; then, for each of the first `num_favourites` backends that can take
  // anything, the one that gives it whatever it can take ("single-backend plan").
  absl::StatusOr<std::vector<Cover>> Covers(const SearchSpace& space, int num_favourites) const;
  absl::StatusOr<Cover> BestByEstimate(const SearchSpace& space, const target::CompilationConfig& config) const;

  const std::vector<const backend::Backend*>& backends() const { return backends_; }

 private:
  absl::StatusOr<std::vector<Group>> Cheapest(const FunctionSpace& function) const;
  void Price(const FunctionSpace& function, Cover* cover) const;
  absl::StatusOr<std::vector<Group>> Favouring(const FunctionSpace& function, const backend::Backend& favourite) const;

  std::vector<const backend::Backend*> backends_;
  const CostEstimator* estimator_;
};

// The index of the cover whose estimate, margins included, is lowest.
size_t CheapestByEstimate(const std::vector<Cover>& covers);

// The module with each group a call of a partition function, of a few rows of the batch where that pays
// (micro_batches.h); structurally equal ones of one backend are one function. `cover` fits the module.
Partitioned CutAlong(const ir::IRModule& module, const Cover& cover, Borders borders = Borders::kAgreed);

// A backend that the configuration would let compete, but that can't serve its target at all.
struct UnusableBackend {
  std::string backend;  // or a variant of one
  std::string reason;
  bool named = false;  // by the configuration, in search.backends or as a codegen target
};

// The backends of the registry that a configuration may use, with their variants, in the order of its list (all: by
// name). NOT_FOUND for a name that is not there, saying which are; FAILED_PRECONDITION where none can serve the target,
// with each one's reason, or a hidden one that the configuration names cannot; INVALID_ARGUMENT for attributes of a
// codegen target that its backend does not take. `unusable` (may be null): those that were left out, and why; without a
// list in the configuration also hidden ones, which nobody could ask for here.
absl::StatusOr<std::vector<const backend::Backend*>> SelectBackends(const target::CompilationConfig& config,
                                                                    std::vector<UnusableBackend>* unusable = nullptr);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_PARTITIONER_H_
