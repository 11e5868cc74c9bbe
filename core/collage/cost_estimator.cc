#include "core/collage/cost_estimator.h"

#include <algorithm>
#include <string>

#include "core/collage/operator_kind.h"
#include "core/collage/outline.h"

namespace inlay::collage {
namespace {

int NumCalls(const DataflowGraph& graph, const Candidate& candidate) {
  int calls = 0;
  for (int position : candidate.positions) calls += graph.needs_cover(position);
  return calls;
}

// Only the order matters: k calls by a library cost 10 + k, by native code (which takes any call) 100 each.
class Preference : public CostEstimator {
 public:
  double EstimateMicros(const DataflowGraph& graph, const Candidate& candidate) const override {
    const int calls = NumCalls(graph, candidate);
    return candidate.backend->is_fallback() ? 100.0 * calls : 10.0 + calls;
  }
  double TransitionMicros(const backend::Backend&, const ir::TensorType&) const override { return 0; }
  double CallMicros(const backend::Backend&) const override { return 0; }
};

class Analytic : public CostEstimator {
 public:
  Analytic(const target::Target& target, const CostModel* model) : target_(target), model_(*model) {}

  double EstimateMicros(const DataflowGraph& graph, const Candidate& candidate) const override {
    Outlined outlined = Outline(graph, candidate.positions);
    double micros = candidate.backend->EstimateMicros(outlined.function, target_);
    const std::string name = candidate.backend->name();
    if (micros < 0) {
      micros = preference_.EstimateMicros(graph, candidate);
    } else if (model_.fit().num_samples() > 0) {
      micros *= model_.Scale(name, OperatorKind(outlined.function));
    }
    return std::max(micros + model_.CallMicros(name), model_.LeastMicros(name));
  }
  double TransitionMicros(const backend::Backend& backend, const ir::TensorType& tensor) const override {
    return model_.TransitionMicros(backend, tensor, target_);
  }
  double CallMicros(const backend::Backend& backend) const override { return model_.LeastMicros(backend.name()); }

 private:
  const target::Target target_;
  const CostModel& model_;
  Preference preference_;
};

}  // namespace

std::unique_ptr<CostEstimator> PreferenceEstimator() { return std::make_unique<Preference>(); }

std::unique_ptr<CostEstimator> AnalyticEstimator(const target::Target& target, const CostModel* model) {
  return std::make_unique<Analytic>(target, model);
}

}  // namespace inlay::collage
