// CostEstimator: what a candidate costs, in microseconds of one call.
//
// The search only compares. By the backends' order of preference, or by their analytic models; what was measured is
// core/compiler/measured_search.cc's.
#ifndef INLAY_CORE_COLLAGE_COST_ESTIMATOR_H_
#define INLAY_CORE_COLLAGE_COST_ESTIMATOR_H_

#include <memory>
#include <utility>

#include "core/collage/candidate.h"
#include "core/collage/cost_model.h"
#include "core/collage/dataflow_graph.h"
#include "core/target/compilation_config.h"

namespace inlay::collage {

class CostEstimator {
 public:
  explicit CostEstimator(target::Target target) : target_(std::move(target)) {}
  virtual ~CostEstimator() = default;
  // What candidates are to run on.
  const target::Target& target() const { return target_; }
  virtual double EstimateMicros(const DataflowGraph& graph, const Candidate& candidate) const = 0;
  // What a tensor costs that crosses a border of a partition of the backend's.
  virtual double TransitionMicros(const backend::Backend& backend, const ir::TensorType& tensor) const = 0;
  // What a call costs whatever it does.
  virtual double CallMicros(const backend::Backend& backend) const = 0;
  // What the backend's costs are multiplied by where they are held against the fallback's: how far apart from those
  // they may be in truth.
  virtual double Margin(const backend::Backend& backend) const { return 1; }

 private:
  const target::Target target_;
};

// --search=none: a library's match before native code, the bigger match before the smaller.
std::unique_ptr<CostEstimator> PreferenceEstimator(const target::Target& target);

// --search=analytic: Backend::EstimateMicros of the candidate as a partition, plus the dispatch of one call; where a
// backend has no estimate, its preference decides. `model` (what was measured on this machine, or an empty one)
// outlives it. `margin`: of all backends but the fallback (CostModel::Margin()); 1 where what it proposes is measured.
// Dimensions that are open count as the configuration's hints say.
std::unique_ptr<CostEstimator> AnalyticEstimator(const target::CompilationConfig& config, const CostModel* model,
                                                 double margin = 1);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_COST_ESTIMATOR_H_
