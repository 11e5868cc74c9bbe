#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/compiler/build_executable.h"
#include "core/compiler/cost_samples.h"
#include "core/compiler/finalists.h"
#include "core/compiler/measured_covers.h"
#include "core/compiler/plan_search.h"
#include "core/compiler/search_report.h"
#include "core/compiler/site_costs.h"
#include "core/compiler/sites.h"
#include "core/compiler/transition_costs.h"
#include "core/compiler/whole_models.h"

namespace inlay::compiler {
namespace {

// The part of the budget that is kept for runs of whole models.
constexpr double kFinalShare = 0.4;
// Where time is short, a plan whose parts, as measured, take so much longer together than another's is not timed whole.
constexpr double kHopeless = 1.15;
// All rows of a batch at once ship where they are faster by so much, and by more than both spreads.
constexpr double kSureGain = 1.03;
// A search that has less does not measure transitions.
constexpr absl::Duration kLeastBudget = absl::Seconds(1);

class MeasuredSearch {
 public:
  MeasuredSearch(const SearchInput& input, const MeasuringContext& context)
      : input_(input),
        context_(context),
        config_(input.module.config()),
        deadline_(absl::Now() + context.budget),
        sites_deadline_(absl::Now() + (1 - kFinalShare) * context.budget),
        model_(input.model()),
        transitions_(input.transitions),
        estimator_(collage::AnalyticEstimator(config_, &model_)),
        partitioner_(input.backends, estimator_.get()),
        space_(partitioner_.Propose(input.module)),
        costs_(config_, context),
        whole_models_(input, context, deadline_) {}

  // What a configuration asks for in so many words ships whatever it costs and computes: there is nothing to check the
  // whole model against, and code of a client's is not run here.
  bool HasIntended() const {
    for (const collage::FunctionSpace& function : space_.functions) {
      for (const collage::Candidate& candidate : function.candidates) {
        if (candidate.intended) return true;
      }
    }
    return false;
  }

  // `failure`: of a measurement before it, if it is to be reported.
  absl::StatusOr<proto::PlanRecord> Run(const std::string& failure) {
    if (!failure.empty()) failures_.push_back(failure);
    const collage::FunctionSpace* main = MainOf(space_);
    if (main == nullptr) return absl::InvalidArgumentError("the module has no function 'main'");
    INLAY_ASSIGN_OR_RETURN(covers_, partitioner_.Covers(space_, input_.backends.size()));
    covers_[0].name = "cheapest by estimate";
    INLAY_ASSIGN_OR_RETURN(sites_, FindSites(input_.module, partitioner_, estimator_.get(), space_, covers_));
    // Where the most time goes first.
    std::stable_sort(sites_.begin(), sites_.end(), [](const Site& a, const Site& b) {
      return a.alternatives[0].estimate_us * a.occurrences.size() >
             b.alternatives[0].estimate_us * b.occurrences.size();
    });
    for (const Site& site : sites_) {
      for (const Occurrence& occurrence : site.occurrences) site_at_[occurrence.positions] = &site;
    }
    INLAY_RETURN_IF_ERROR(costs_.Measure(sites_, sites_deadline_));
    INLAY_RETURN_IF_ERROR(AddMeasuredCovers(*main));
    INLAY_RETURN_IF_ERROR(TimeWholeModels());
    KeepSamplesOfSites();
    INLAY_ASSIGN_OR_RETURN(int best, Best());
    INLAY_ASSIGN_OR_RETURN(best, WithTheBetterBatch(best));
    return Record(*main, best);
  }

 private:
  absl::Status AddMeasuredCovers(const collage::FunctionSpace& main) {
    const auto transitions = collage::AnalyticEstimator(config_, &transitions_);
    INLAY_ASSIGN_OR_RETURN(std::vector<collage::Cover> covers,
                           CheapestAsMeasured({main, sites_, site_at_, costs_, *transitions}, covers_[0]));
    std::move(covers.begin(), covers.end(), std::back_inserter(covers_));
    return absl::OkStatus();
  }

  // The fallback alone comes first: it is the reference.
  absl::Status TimeWholeModels() {
    std::vector<collage::Cover> different;
    for (bool reference : {true, false}) {
      for (const collage::Cover& cover : covers_) {
        if (IsFallbackAlone(cover) != reference) continue;
        const bool repeats = std::any_of(different.begin(), different.end(),
                                         [&](const collage::Cover& other) { return other.SameCuts(cover); });
        if (!repeats) different.push_back(cover);
      }
    }
    covers_ = std::move(different);
    for (const collage::Cover& cover : covers_) plans_.push_back(ReportPlan(cover));
    DropHopeless();
    std::vector<int> plans;
    for (size_t i = 0; i < covers_.size(); ++i) {
      if (plans_[i].excluded().empty()) plans.push_back(static_cast<int>(i));
    }
    INLAY_RETURN_IF_ERROR(CompileWholeModels(plans));
    const std::vector<int>& measured = whole_models_.plans();
    if (measured.size() < 2) return absl::OkStatus();
    if (context_.progress) context_.progress({"measure the whole model", 0, static_cast<int>(measured.size()), ""});
    INLAY_ASSIGN_OR_RETURN(const WholeModels::Timings timings, whole_models_.Measure());
    for (size_t i = 0; i < measured.size(); ++i) {
      ReportTiming(timings[i], &plans_[measured[i]]);
    }
    return absl::OkStatus();
  }

  // A plan that can't be compiled is excluded; the reference has to be.
  absl::Status CompileWholeModels(const std::vector<int>& plans) {
    std::map<int, collage::Partitioned> partitioned;
    std::map<int, std::vector<Action>> actions;
    DistinctActions distinct;
    for (int i : plans) {
      partitioned[i] = collage::CutAlong(input_.module, covers_[i]);
      if (partitioned[i].has_micro_batches) has_micro_batches_.insert(i);
      INLAY_ASSIGN_OR_RETURN(actions[i], MakeActions(partitioned[i], context_.compiler->compiler()));
      distinct.Add(actions[i]);
    }
    INLAY_ASSIGN_OR_RETURN(const CompiledActions compiled, CompileAll(distinct.actions(), context_));
    for (int i : plans) {
      absl::StatusOr<proto::MeasureAction::Subject> subject = distinct.SubjectOf(partitioned[i], actions[i], compiled);
      if (!subject.ok()) {
        if (i == 0) return subject.status();
        plans_[i].set_excluded(std::string(subject.status().message()));
        continue;
      }
      const backend::Tolerance tolerance = ToleranceOf(covers_[i], input_.module);
      subject->set_rtol(tolerance.rtol);
      subject->set_atol(tolerance.atol);
      subject->set_name(covers_[i].name);
      whole_models_.Add(i, actions[i], *std::move(subject));
    }
    return absl::OkStatus();
  }

  void ReportTiming(const SiteCosts::Timing& timing, proto::PlanReport* plan) {
    if (timing.code() != 0) plan->set_excluded(timing.message().empty() ? "failed" : timing.message());
    if (!IsOfTheSubject(timing)) failures_.push_back(timing.message());
    plan->set_note(timing.note());
    plan->set_measured_us(timing.median_us());
    plan->set_spread_us(timing.spread_us());
  }

  // Where the winner takes a few rows of the batch at a time, itself with all at once is timed beside it, and ships
  // where it is faster by more than a measurement may be off.
  absl::StatusOr<int> WithTheBetterBatch(int winner) {
    if (has_micro_batches_.count(winner) == 0) return winner;
    const int other = static_cast<int>(covers_.size());
    covers_.push_back(covers_[winner]);
    covers_[other].whole_batch = true;
    covers_[other].name += ", all rows of the batch at once";
    plans_.push_back(ReportPlan(covers_[other]));
    INLAY_RETURN_IF_ERROR(CompileWholeModels({other}));
    if (!plans_[other].excluded().empty()) return winner;
    INLAY_ASSIGN_OR_RETURN(const WholeModels::Timings timings, whole_models_.MeasureBeside(winner, other));
    if (timings.empty()) {
      plans_[other].set_excluded("not timed: the search's budget is over");
      return winner;
    }
    ReportTiming(timings[1], &plans_[other]);
    if (plans_[winner].measured_us() == 0) ReportTiming(timings[0], &plans_[winner]);  // it had no rival
    if (timings[0].code() != 0 || timings[1].code() != 0) return winner;
    const double scatter = timings[0].spread_us() + timings[1].spread_us();
    plans_[other].set_note(
        absl::StrFormat("beside it in turns, a few rows at a time took %.0f us", timings[0].median_us()));
    return timings[0].median_us() > std::max(kSureGain * timings[1].median_us(), timings[1].median_us() + scatter)
               ? other
               : winner;
  }

  // Where timing every plan whole would take longer than its budget: leaves out those that cannot win. Not the
  // reference, and nothing that has a part without a time.
  void DropHopeless() {
    double best = std::numeric_limits<double>::infinity(), total = 0;
    std::vector<double> sums(covers_.size());
    for (size_t i = 0; i < covers_.size(); ++i) {
      sums[i] = SumOfParts(covers_[i]);
      total += sums[i];
      if (sums[i] > 0) best = std::min(best, sums[i]);
    }
    constexpr int kRuns = WholeModels::kRunsBesideRounds + WholeModels::kMinRounds;
    if (total / 1000 * kRuns < WholeModels::kBudgetMs) return;
    for (size_t i = 1; i < covers_.size(); ++i) {
      if (sums[i] <= kHopeless * best) continue;
      plans_[i].set_excluded(absl::StrFormat(
          "not timed whole: its parts, as measured, take %.0f us together, those of another plan %.0f us", sums[i],
          best));
    }
  }

  // Microseconds; 0 where a part was not measured.
  double SumOfParts(const collage::Cover& cover) const {
    double sum = 0;
    for (const collage::Group& group : cover.functions.at("main")) {
      if (group.backend == nullptr) continue;
      const Site* site = SiteAt(site_at_, group.positions);
      if (site == nullptr) return 0;
      const SiteCosts::Timing* timing = nullptr;
      for (size_t i = 0; i < site->alternatives.size(); ++i) {
        if (site->alternatives[i].backend == group.backend) timing = costs_.Find(*site, static_cast<int>(i));
      }
      if (timing == nullptr || timing->code() != 0) return 0;
      sum += timing->min_us();
    }
    return sum;
  }

  static bool IsFallbackAlone(const collage::Cover& cover) {
    const auto& groups = cover.functions.at("main");
    return std::all_of(groups.begin(), groups.end(), [](const collage::Group& group) {
      return group.backend == nullptr || group.backend->is_fallback();
    });
  }

  // Where nothing was measured because only one plan is possible, that one.
  absl::StatusOr<int> Best() {
    std::vector<Finalist> finalists;
    std::vector<int> plan_of;
    for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
      const proto::PlanReport& plan = plans_[i];
      if (!plan.excluded().empty()) continue;
      Finalist& finalist = finalists.emplace_back(Finalist{plan.name(), plan.measured_us(), plan.spread_us()});
      for (const collage::Group& group : covers_[i].functions.at("main")) {
        finalist.partitions += group.backend != nullptr;
        finalist.foreign += group.backend != nullptr && !group.backend->is_fallback();
      }
      plan_of.push_back(i);
    }
    if (finalists.empty()) return absl::InternalError("no plan of the whole model gives the right results");
    int measurements = 0;
    auto again = [&](const std::vector<int>& tied) {
      std::vector<int> plans;
      for (int i : tied) plans.push_back(plan_of[i]);
      return whole_models_.MeasureTie(plans, measurements++);
    };
    INLAY_ASSIGN_OR_RETURN(const FinalDecision decision, DecideFinal(finalists, again));
    const int best = plan_of[decision.winner];
    if (!decision.note.empty()) {
      plans_[best].set_note(plans_[best].note().empty() ? decision.note
                                                        : absl::StrCat(plans_[best].note(), "; ", decision.note));
    }
    return best;
  }

  proto::PlanRecord Record(const collage::FunctionSpace& main, int best) {
    proto::PlanRecord record;
    plans_[best].set_chosen(true);
    for (proto::PlanReport& plan : plans_) *record.add_plans() = std::move(plan);
    *record.mutable_cover() = collage::ToProto(covers_[best], input_.module_hash);
    record.set_measure_ms(costs_.measure_ms() + whole_models_.measure_ms());
    *record.mutable_transitions() = input_.transitions;
    AddNotes(&record);
    const collage::CostModel constants;
    const auto unfitted = collage::AnalyticEstimator(config_, &constants);
    for (const Site& site : sites_) {
      for (int i = 0; i < static_cast<int>(site.alternatives.size()); ++i) {
        const Alternative& alternative = site.alternatives[i];
        proto::CandidateReport* report = record.add_candidates();
        report->set_backend(alternative.backend->name());
        report->set_rule(alternative.rule);
        DescribeCalls(*main.graph, site.occurrences[0].positions, report);
        report->set_occurrences(static_cast<int>(site.occurrences.size()));
        report->set_estimate_us(EstimateOf(site, alternative, *estimator_));
        report->set_unfitted_us(EstimateOf(site, alternative, *unfitted));
        report->set_cost_us(alternative.estimate_us);
        if (const SiteCosts::Timing* timing = costs_.Find(site, i); timing != nullptr) {
          report->set_measured(timing->code() == 0);
          if (timing->code() != 0) report->set_excluded(timing->message());
          report->set_note(timing->note());
          if (i > 0 && timing->code() == 0 && costs_.TiedWithFallback(site, *timing)) {
            report->set_note(absl::StrCat(timing->note().empty() ? "" : timing->note() + "; ", "a tie with ",
                                          site.alternatives[0].backend->name(), ", which comes first"));
          }
          report->set_cost_us(timing->min_us());
          report->set_spread_us(timing->spread_us());
        }
        for (const Occurrence& occurrence : site.occurrences) {
          if (IsChosen(covers_[best], alternative.backend, occurrence.positions)) report->set_chosen(true);
        }
      }
    }
    ReportRefusals(space_, &record);
    return record;
  }

  void KeepSamplesOfSites() const {
    proto::CostSamples samples;
    for (const Site& site : sites_) {
      proto::CostSamples::Site of_site;
      for (int i = 0; i < static_cast<int>(site.alternatives.size()); ++i) {
        const SiteCosts::Timing* timing = costs_.Find(site, i);
        if (timing == nullptr || timing->code() != 0) continue;
        const std::string name = target::BackendOfVariant(site.alternatives[i].backend->name());
        const absl::StatusOr<std::string> version = context_.compiler->compiler()->BackendVersion(name);
        if (version.ok()) AddSample(site, site.alternatives[i], transitions_, *version, timing->min_us(), &of_site);
      }
      if (!of_site.samples().empty()) *samples.add_sites() = std::move(of_site);
    }
    KeepSamples(SamplesKey(config_, context_.measurer->device()), context_.costs, samples);
  }

  void AddNotes(proto::PlanRecord* record) const {
    std::set<std::string> notes = whole_models_.notes();
    notes.insert(costs_.notes().begin(), costs_.notes().end());
    for (const std::string& note : notes) record->add_notes(note);
    std::map<std::string, int> failures;
    for (const auto* list : {&costs_.failures(), &failures_}) {
      for (const std::string& failure : *list) ++failures[failure];
    }
    record->set_provisional(!failures.empty());
    for (const auto& [failure, count] : failures) {
      record->add_notes(absl::StrCat(count, count == 1 ? " measurement" : " measurements",
                                     " failed, tried again, for a reason that is not the candidate's (the plan is not "
                                     "kept, the next compile measures anew): ",
                                     failure));
    }
  }

  const SearchInput& input_;
  const MeasuringContext& context_;
  const target::CompilationConfig& config_;
  const absl::Time deadline_, sites_deadline_;
  const collage::CostModel model_, transitions_;  // of estimates, and beside what was measured
  std::unique_ptr<collage::CostEstimator> estimator_;
  collage::Partitioner partitioner_;
  collage::SearchSpace space_;
  std::vector<collage::Cover> covers_;
  std::vector<Site> sites_;
  SitesByPositions site_at_;
  SiteCosts costs_;
  std::vector<proto::PlanReport> plans_;  // of covers_
  std::set<int> has_micro_batches_;       // of plans_
  WholeModels whole_models_;              // of plans_
  std::vector<std::string> failures_;
};

}  // namespace

absl::StatusOr<proto::PlanRecord> SearchByMeasuring(const SearchInput& input, const MeasuringContext& context) {
  if (!MeasuredSearch(input, context).HasIntended()) {
    std::string failure;
    SearchInput informed = input;
    const absl::Time start = absl::Now();
    if (context.budget > kLeastBudget) {
      INLAY_ASSIGN_OR_RETURN(informed.transitions,
                             MeasureTransitions(input.module.config(), input.backends, context, &failure));
      const Digest samples = SamplesKey(input.module.config(), context.measurer->device());
      informed.fit = collage::ScaleFit(KnownSamples(samples, context.costs));
    }
    MeasuringContext rest = context;
    rest.budget -= absl::Now() - start;
    MeasuredSearch search(informed, rest);
    return search.Run(failure);
  }
  INLAY_ASSIGN_OR_RETURN(proto::PlanRecord record, SearchByEstimate(input));
  record.mutable_cover()->mutable_name()->append(" (not measured: it holds kernels of the configuration's own)");
  return record;
}

}  // namespace inlay::compiler
