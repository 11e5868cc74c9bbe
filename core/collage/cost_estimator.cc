#include "core/collage/cost_estimator.h"

#include <utility>

#include "core/collage/outline.h"

namespace inlay::collage {
namespace {

// One call through the executor's plan, measured at 20-50 ns, and the cold start of a kernel's loops.
constexpr double kDispatchMicros = 0.2;

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
};

class Analytic : public CostEstimator {
 public:
  explicit Analytic(const target::Target& target) : target_(target) {}

  double EstimateMicros(const DataflowGraph& graph, const Candidate& candidate) const override {
    Outlined outlined = Outline(graph, candidate.positions);
    double micros = candidate.backend->EstimateMicros(outlined.function, target_);
    if (micros < 0) micros = preference_.EstimateMicros(graph, candidate);
    return micros + kDispatchMicros;
  }

 private:
  target::Target target_;
  Preference preference_;
};

}  // namespace

std::unique_ptr<CostEstimator> PreferenceEstimator() { return std::make_unique<Preference>(); }

std::unique_ptr<CostEstimator> AnalyticEstimator(const target::Target& target) {
  return std::make_unique<Analytic>(target);
}

}  // namespace inlay::collage
