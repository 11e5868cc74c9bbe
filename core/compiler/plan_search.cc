#include "core/compiler/plan_search.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/compiler/search_report.h"

namespace inlay::compiler {

absl::StatusOr<proto::PlanRecord> SearchByEstimate(const SearchInput& input) {
  const target::CompilationConfig& config = input.module.config();
  const bool compares = config.search_mode != target::SearchMode::kNone;  // preferences are no times to add up
  const collage::CostModel model = input.model();
  const std::unique_ptr<collage::CostEstimator> estimator =
      compares ? collage::AnalyticEstimator(config, &model) : collage::PreferenceEstimator();
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
  if (record.plans_size() > 0) record.mutable_plans(static_cast<int>(best))->set_chosen(true);
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
