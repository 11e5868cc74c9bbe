// CostEstimator: what a candidate costs, in microseconds of one call.
//
// The search only compares. Implementations: here by the backends' order of preference and by their analytic models;
// server/measuring_estimator will run the compiled code.
#ifndef INLAY_CORE_COLLAGE_COST_ESTIMATOR_H_
#define INLAY_CORE_COLLAGE_COST_ESTIMATOR_H_

#include <memory>

#include "core/collage/candidate.h"
#include "core/collage/dataflow_graph.h"
#include "core/target/compilation_config.h"

namespace inlay::collage {

class CostEstimator {
 public:
  virtual ~CostEstimator() = default;
  virtual double EstimateMicros(const DataflowGraph& graph, const Candidate& candidate) const = 0;
};

// --search=none: a library's match before native code, the bigger match before the smaller.
std::unique_ptr<CostEstimator> PreferenceEstimator();

// --search=analytic: Backend::EstimateMicros of the candidate as a partition, plus the dispatch of one call; where a
// backend has no estimate, its preference decides.
std::unique_ptr<CostEstimator> AnalyticEstimator(const target::Target& target);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_COST_ESTIMATOR_H_
