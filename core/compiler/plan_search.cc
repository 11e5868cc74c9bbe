#include "core/compiler/plan_search.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/compiler/search_report.h"

namespace inlay::compiler {
namespace {

// Who names backends without the fallback among them wants those: no margin in the fallback's favour.
double MarginFor(const target::CompilationConfig& config, const std::vector<const backend::Backend*>& backends,
                 const collage::CostModel& model) {
  const auto& named = config.backends;
  const bool fallback_competes =
      named.empty() || std::any_of(backends.begin(), backends.end(), [&](const backend::Backend* backend) {
        return backend->is_fallback() && std::find(named.begin(), named.end(), backend->name()) != named.end();
      });
  return fallback_competes ? model.Margin() : 1;
}

// Why a plan with a lower estimate than that of the chosen one is not it.
void NoteMargin(double margin, size_t best, proto::PlanRecord* record) {
  for (proto::PlanReport& plan : *record->mutable_plans()) {
    if (plan.estimated_us() >= record->plans(static_cast<int>(best)).estimated_us()) continue;
    plan.set_note(absl::StrFormat("faster by less than the %.0f%% that estimates of different backends may be off by",
                                  100 * (margin - 1)));
  }
}

}  // namespace

absl::StatusOr<proto::PlanRecord> SearchByEstimate(const SearchInput& input) {
  const target::CompilationConfig& config = input.module.config();
  const bool compares = config.search_mode != target::SearchMode::kNone;  // preferences are no times to add up
  const collage::CostModel model = input.model();
  const double margin = MarginFor(config, input.backends, model);
  const std::unique_ptr<collage::CostEstimator> estimator =
      compares ? collage::AnalyticEstimator(config, &model, margin) : collage::PreferenceEstimator(config.target());
  const collage::Partitioner partitioner(input.backends, estimator.get());
  const collage::SearchSpace space = partitioner.Propose(input.module);
  INLAY_ASSIGN_OR_RETURN(std::vector<collage::Cover> covers,
                         partitioner.Covers(space, compares ? static_cast<int>(input.backends.size()) : 0));
  const size_t best = collage::CheapestByEstimate(covers);
  proto::PlanRecord record;
  if (compares) *record.mutable_transitions() = input.transitions;
  for (const collage::Cover& cover : covers) {
    if (cover.functions.count("main") > 0) *record.add_plans() = ReportPlan(cover);
  }
  if (record.plans_size() > 0) {
    record.mutable_plans(static_cast<int>(best))->set_chosen(true);
    if (compares) NoteMargin(margin, best, &record);
  }
  covers[best].name += compares ? " by the analytic model" : " by the order of preference";
  if (const int samples = model.fit().num_samples(); compares && samples > 0) {
    absl::StrAppend(&covers[best].name, " (fitted to ", samples, " measurements)");
  }
  *record.mutable_cover() = collage::ToProto(covers[best], input.module_hash);
  if (const collage::FunctionSpace* main = MainOf(space); main != nullptr) {
    ReportCandidates(*main, covers[best], &record);
    ReportRefusals(space, &record);
  }
  return record;
}

}  // namespace inlay::compiler
