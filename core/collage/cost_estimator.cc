#include "core/collage/cost_estimator.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/collage/operator_kind.h"
#include "core/collage/outline.h"
#include "core/ir/dim_expr.h"
#include "core/ir/open_symbols.h"

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
  using CostEstimator::CostEstimator;

  double EstimateMicros(const DataflowGraph& graph, const Candidate& candidate) const override {
    const int calls = NumCalls(graph, candidate);
    return candidate.backend->is_fallback() ? 100.0 * calls : 10.0 + calls;
  }
  double TransitionMicros(const backend::Backend&, const ir::TensorType&) const override { return 0; }
  double CallMicros(const backend::Backend&) const override { return 0; }
};

class Analytic : public CostEstimator {
 public:
  Analytic(const target::CompilationConfig& config, const CostModel* model, double margin)
      : CostEstimator(config.target()),
        config_(config),
        model_(*model),
        margin_(margin),
        preference_(config.target()) {}

  double EstimateMicros(const DataflowGraph& graph, const Candidate& candidate) const override {
    Outlined outlined = Outline(graph, candidate.positions);
    if (!ir::OpenSymbols(outlined.function).empty()) FixDims(&outlined.function);
    double micros = candidate.backend->EstimateMicros(outlined.function, config_.target());
    const std::string name = candidate.backend->name();
    if (micros < 0) {
      micros = preference_.EstimateMicros(graph, candidate);
    } else if (model_.fit().num_samples() > 0) {
      micros *= model_.Scale(name, OperatorKind(outlined.function));
    }
    return std::max(micros + model_.CallMicros(name), model_.LeastMicros(name));
  }
  double TransitionMicros(const backend::Backend& backend, const ir::TensorType& tensor) const override {
    return model_.TransitionMicros(backend, tensor, config_.target());
  }
  double CallMicros(const backend::Backend& backend) const override { return model_.LeastMicros(backend.name()); }
  double Margin(const backend::Backend& backend) const override { return backend.is_fallback() ? 1 : margin_; }

 private:
  // Numbers in place of symbols, in all types.
  void FixDims(ir::Function* function) const {
    std::unordered_map<const ir::Var*, ir::VarPtr> fixed;
    auto replace = [&](ir::VarPtr* var) {
      ir::VarPtr& copy = fixed[var->get()];
      if (copy == nullptr) copy = ir::MakeVar((*var)->name, Fixed((*var)->type));
      *var = copy;
    };
    for (ir::VarPtr& param : function->params) replace(&param);
    for (ir::Binding& binding : function->body.bindings) {
      for (ir::Operand& arg : binding.args) {
        if (arg.is_var()) replace(&arg.var);
      }
      replace(&binding.var);
    }
    for (ir::Operand& result : function->body.results) {
      if (result.is_var()) replace(&result.var);
    }
  }

  ir::Type Fixed(const ir::Type& type) const {
    if (type.is_tuple()) {
      ir::TupleType tuple;
      for (const ir::Type& field : type.tuple().fields) tuple.fields.push_back(Fixed(field));
      return tuple;
    }
    ir::TensorType tensor = type.tensor();
    for (ir::Dim& dim : tensor.dims) {
      if (dim.is_static()) continue;
      auto hint = [this](const std::string& name) { return config_.DimHint(name); };
      // A product of hints may be nonsense for a model; an estimate need only be a number.
      dim = std::max<int64_t>(1, std::min<int64_t>(ir::EvaluateDim(dim, hint).value_or(1), int64_t{1} << 24));
    }
    return tensor;
  }

  const target::CompilationConfig config_;
  const CostModel& model_;
  const double margin_;
  Preference preference_;
};

}  // namespace

std::unique_ptr<CostEstimator> PreferenceEstimator(const target::Target& target) {
  return std::make_unique<Preference>(target);
}

std::unique_ptr<CostEstimator> AnalyticEstimator(const target::CompilationConfig& config, const CostModel* model,
                                                 double margin) {
  return std::make_unique<Analytic>(config, model, margin);
}

}  // namespace inlay::collage
