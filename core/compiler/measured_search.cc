#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/proto_bytes.h"
#include "core/base/status_macros.h"
#include "core/collage/merge.h"
#include "core/collage/search.h"
#include "core/compiler/build_executable.h"
#include "core/compiler/plan_search.h"
#include "core/compiler/search_report.h"
#include "core/compiler/sites.h"

namespace inlay::compiler {
namespace {

using Timing = proto::MeasureResult::Timing;

// A site's runs, and a whole model's.
constexpr double kSiteBudgetMs = 40;
constexpr int kMaxSiteRounds = 60;
constexpr double kFinalBudgetMs = 6000;
constexpr int kMinFinalRounds = 5, kMaxFinalRounds = 60;
// The part of the budget that is kept for the whole models.
constexpr double kFinalShare = 0.4;
// Sites are compiled and measured in batches, so that a budget that runs out leaves the costliest ones measured.
constexpr size_t kBatch = 32;
// Against the reference: a sum in another order, a Winograd transform; see MeasureAction.
constexpr double kRtol = 1e-3, kAtol = 1e-3;
constexpr uint64_t kSeed = 20;
// An estimate beside measured costs is trusted less, so that it wins only where nothing was measured.
constexpr double kEstimateFactor = 2;

class MeasuredSearch {
 public:
  MeasuredSearch(const SearchInput& input, const MeasuringContext& context)
      : input_(input),
        context_(context),
        config_(input.module.config()),
        deadline_(absl::Now() + context.budget),
        sites_deadline_(absl::Now() + (1 - kFinalShare) * context.budget),
        estimator_(collage::AnalyticEstimator(config_.target())),
        partitioner_(input.backends, estimator_.get()),
        space_(partitioner_.Propose(input.module)) {}

  absl::StatusOr<proto::PlanRecord> Run() {
    const collage::FunctionSpace* main = MainOf(space_);
    if (main == nullptr) return absl::InvalidArgumentError("the module has no function 'main'");
    INLAY_ASSIGN_OR_RETURN(covers_, partitioner_.Covers(space_, config_.target(), input_.backends.size()));
    covers_[0].name = "cheapest by estimate";
    INLAY_ASSIGN_OR_RETURN(sites_, FindSites(input_.module, partitioner_, estimator_.get(), space_, covers_));
    // Where the most time goes first.
    std::stable_sort(sites_.begin(), sites_.end(), [](const Site& a, const Site& b) {
      return a.alternatives[0].estimate_us * a.occurrences.size() >
             b.alternatives[0].estimate_us * b.occurrences.size();
    });
    for (size_t begin = 0; begin < sites_.size() && absl::Now() < sites_deadline_; begin += kBatch) {
      INLAY_RETURN_IF_ERROR(MeasureSites(begin, std::min(begin + kBatch, sites_.size())));
    }
    INLAY_RETURN_IF_ERROR(AddMeasuredCovers(*main));
    INLAY_RETURN_IF_ERROR(TimeWholeModels());
    INLAY_ASSIGN_OR_RETURN(const int best, Fastest());
    return Record(*main, best);
  }

 private:
  // One alternative of a site on its way through compiler and measurer.
  struct Trial {
    Site* site;
    int index;  // of the alternative
    collage::Partitioned partitioned;
    std::vector<Action> actions;
    Digest key;
    absl::Status failed;  // it could not be compiled
    proto::MeasureAction::Subject subject;
  };

  // What a time depends on besides the subject's own actions: the reference it was checked against, the device.
  Digest CostKey(const Trial& trial, const Trial& reference) const {
    Hasher hasher;
    hasher.UpdateField("inlay cost/1").UpdateField(context_.measurer->device());
    hasher.UpdateField(absl::StrCat(config_.num_threads)).UpdateField(trial.site->structure.bytes());
    for (const Trial* part : {&trial, &reference}) {
      for (const Action& action : part->actions) hasher.UpdateField(action.key.digest.bytes());
      hasher.UpdateField("/");
    }
    return hasher.Finish();
  }

  static std::pair<const Site*, int> TimingKey(const Trial& trial) { return {trial.site, trial.index}; }

  absl::Status MeasureSites(size_t begin, size_t end) {
    std::vector<std::vector<Trial>> unknown;  // by site
    for (size_t i = begin; i < end; ++i) {
      INLAY_ASSIGN_OR_RETURN(std::vector<Trial> trials, TrialsOf(&sites_[i]));
      bool all_known = true;
      for (Trial& trial : trials) {
        trial.key = CostKey(trial, trials[0]);
        absl::StatusOr<std::string> known = context_.costs->Get(trial.key);
        Timing timing;
        if (known.ok() && timing.ParseFromString(*known)) {
          timings_[TimingKey(trial)] = timing;
        } else {
          all_known = false;
        }
      }
      if (!all_known) unknown.push_back(std::move(trials));
    }
    if (unknown.empty()) return absl::OkStatus();
    INLAY_RETURN_IF_ERROR(CompileTrials(&unknown));
    int done = 0;
    for (std::vector<Trial>& trials : unknown) {
      INLAY_RETURN_IF_ERROR(Report("measure", ++done, static_cast<int>(unknown.size())));
      if (absl::Now() > sites_deadline_) break;
      INLAY_RETURN_IF_ERROR(MeasureSite(&trials));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Trial>> TrialsOf(Site* site) {
    std::vector<Trial> trials;
    for (int i = 0; i < static_cast<int>(site->alternatives.size()); ++i) {
      Trial& trial = trials.emplace_back();
      trial.site = site;
      trial.index = i;
      trial.partitioned = collage::CutAlong(site->module, site->alternatives[i].cover);
      INLAY_ASSIGN_OR_RETURN(trial.actions, MakeActions(trial.partitioned, context_.compiler->compiler()));
    }
    return trials;
  }

  using Compiled = std::vector<absl::StatusOr<CompiledPartition>>;
  absl::StatusOr<Compiled> Compile(const std::vector<Action>& actions) {
    Compiled compiled = CompileEachAction(actions, context_.compiler, context_.token, context_.progress);
    INLAY_RETURN_IF_ERROR(context_.token->status());
    for (const auto& part : compiled) *context_.actions_run += part.ok() && part->ran_here;
    return compiled;
  }

  // Every action of the trials once, then each trial's subject.
  absl::Status CompileTrials(std::vector<std::vector<Trial>>* sites) {
    std::vector<Action> actions;
    std::map<Digest, int> index_of;
    for (const std::vector<Trial>& trials : *sites) {
      for (const Trial& trial : trials) {
        for (const Action& action : trial.actions) {
          if (index_of.emplace(action.key.digest, static_cast<int>(actions.size())).second) actions.push_back(action);
        }
      }
    }
    INLAY_ASSIGN_OR_RETURN(const Compiled compiled, Compile(actions));
    for (std::vector<Trial>& trials : *sites) {
      for (Trial& trial : trials) {
        std::vector<CompiledPartition> parts;
        for (const Action& action : trial.actions) {
          const auto& part = compiled[index_of.at(action.key.digest)];
          if (!part.ok()) trial.failed = part.status();
          if (part.ok()) parts.push_back(*part);
        }
        if (!trial.failed.ok()) continue;
        absl::StatusOr<proto::MeasureAction::Subject> subject = SubjectOf(trial.partitioned, parts);
        trial.failed = subject.status();
        if (subject.ok()) trial.subject = *std::move(subject);
        trial.subject.set_name(trial.site->alternatives[trial.index].backend->name());
      }
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<proto::MeasureAction::Subject> SubjectOf(const collage::Partitioned& partitioned,
                                                                 const std::vector<CompiledPartition>& compiled) {
    INLAY_ASSIGN_OR_RETURN(proto::Executable executable, BuildExecutable(partitioned, compiled));
    proto::MeasureAction::Subject subject;
    subject.set_plan_json(executable.plan_json());
    subject.mutable_params()->Swap(executable.mutable_params());
    std::set<Digest> seen;
    for (const CompiledPartition& partition : compiled) {
      if (seen.insert(partition.library_digest).second) *subject.add_libraries() = *partition.library;
    }
    return subject;
  }

  proto::MeasureAction NewMeasurement() const {
    proto::MeasureAction action;
    action.set_reference(0);
    action.set_rtol(kRtol);
    action.set_atol(kAtol);
    action.set_num_threads(config_.num_threads);
    action.set_seed(kSeed);
    return action;
  }

  absl::Status MeasureSite(std::vector<Trial>* trials) {
    proto::MeasureAction action = NewMeasurement();
    action.set_budget_ms(kSiteBudgetMs * trials->size());
    action.set_max_rounds(kMaxSiteRounds);
    if (!trials->front().failed.ok()) action.set_reference(-1);
    std::vector<Trial*> measured;
    for (Trial& trial : *trials) {
      if (!trial.failed.ok()) {
        Timing& timing = timings_[TimingKey(trial)];  // not kept: the next compile may succeed
        timing.set_code(static_cast<int>(trial.failed.code()));
        timing.set_message(std::string(trial.failed.message()));
      } else {
        action.add_subjects()->Swap(&trial.subject);
        measured.push_back(&trial);
      }
    }
    // Without the fallback's results nobody else's can be trusted: its own time is of use all the same.
    if (action.reference() < 0 || measured.empty()) return absl::OkStatus();
    const absl::Time start = absl::Now();
    absl::StatusOr<proto::MeasureResult> result = context_.measurer->Measure(action, context_.token);
    measure_ms_ += absl::ToDoubleMilliseconds(absl::Now() - start);
    INLAY_RETURN_IF_ERROR(context_.token->status());
    if (!result.ok()) {
      return absl::OkStatus();  // estimates decide here; where nothing at all can be measured, the whole models say so
    }
    for (size_t i = 0; i < measured.size(); ++i) {
      const Timing& timing = result->timings(static_cast<int>(i));
      timings_[TimingKey(*measured[i])] = timing;
      context_.costs->PutIfAbsent(measured[i]->key, DeterministicBytes(timing)).IgnoreError();  // a cache: else again
    }
    return absl::OkStatus();
  }

  const Timing* TimingOf(const Site& site, int alternative) const {
    auto found = timings_.find({&site, alternative});
    return found == timings_.end() ? nullptr : &found->second;
  }

  // The cheapest cover by what was measured, twice: as measured, and with neighbours of a library drawn together.
  absl::Status AddMeasuredCovers(const collage::FunctionSpace& main) {
    std::vector<collage::Candidate> candidates;
    std::vector<std::pair<const Site*, const Occurrence*>> origin;
    for (const Site& site : sites_) {
      for (int i = 0; i < static_cast<int>(site.alternatives.size()); ++i) {
        const Timing* timing = TimingOf(site, i);
        if (timing == nullptr || timing->code() != 0) continue;
        for (const Occurrence& occurrence : site.occurrences) {
          candidates.push_back(
              {occurrence.positions, site.alternatives[i].backend, site.alternatives[i].rule, timing->min_us()});
          origin.emplace_back(&site, &occurrence);
        }
      }
    }
    if (candidates.empty()) return absl::OkStatus();
    for (const collage::Candidate& candidate : main.candidates) {
      if (!candidate.backend->is_fallback()) continue;
      candidates.push_back(candidate);
      candidates.back().cost_us *= kEstimateFactor;
    }
    std::map<std::vector<int>, const Site*> site_at;
    for (const auto& [site, occurrence] : origin) site_at[occurrence->positions] = site;
    INLAY_ASSIGN_OR_RETURN(std::vector<collage::Candidate> cheapest,
                           collage::CheapestCover(*main.graph, std::move(candidates)));
    std::vector<collage::Candidate> parts;
    double sum = 0;
    for (const collage::Candidate& candidate : cheapest) {
      sum += candidate.cost_us;
      auto site = site_at.find(candidate.positions);
      if (!candidate.backend->is_fallback() || site == site_at.end()) {
        parts.push_back(candidate);
        continue;
      }
      // The fallback may cut its site into several partitions; those it fuses with its neighbours, where it can.
      const auto& groups = site->second->alternatives[0].cover.functions.at("main");
      for (const collage::Group& group : groups) {
        collage::Candidate part = candidate;
        part.positions.clear();
        for (int position : group.positions) part.positions.push_back(candidate.positions[position]);
        part.cost_us /= groups.size();
        parts.push_back(std::move(part));
      }
    }
    for (bool merge_regions : {false, true}) {
      collage::Cover cover = covers_[0];  // with its transform_params
      cover.name = merge_regions ? "cheapest as measured, regions merged" : "cheapest as measured";
      cover.estimated_us = sum;
      cover.functions[main.name] = collage::MergeCover(*main.graph, parts, merge_regions);
      covers_.push_back(std::move(cover));
    }
    return absl::OkStatus();
  }

  // The fallback alone comes first: it is the reference.
  absl::Status TimeWholeModels() {
    std::vector<collage::Cover> distinct;
    for (bool reference : {true, false}) {
      for (const collage::Cover& cover : covers_) {
        if (IsFallbackAlone(cover) != reference) continue;
        const bool repeats = std::any_of(distinct.begin(), distinct.end(),
                                         [&](const collage::Cover& other) { return other.SameCuts(cover); });
        if (!repeats) distinct.push_back(cover);
      }
    }
    covers_ = std::move(distinct);
    std::vector<collage::Partitioned> partitioned;
    std::vector<std::vector<Action>> actions_of;
    std::vector<Action> actions;
    std::map<Digest, int> index_of;
    for (const collage::Cover& cover : covers_) {
      plans_.push_back(ReportPlan(cover));
      partitioned.push_back(collage::CutAlong(input_.module, cover));
      INLAY_ASSIGN_OR_RETURN(std::vector<Action> mine, MakeActions(partitioned.back(), context_.compiler->compiler()));
      for (const Action& action : mine) {
        if (index_of.emplace(action.key.digest, static_cast<int>(actions.size())).second) actions.push_back(action);
      }
      actions_of.push_back(std::move(mine));
    }
    INLAY_ASSIGN_OR_RETURN(const Compiled compiled, Compile(actions));
    proto::MeasureAction measurement = NewMeasurement();
    std::vector<int> measured;
    for (int i = 0; i < static_cast<int>(covers_.size()); ++i) {
      std::vector<CompiledPartition> parts;
      absl::Status failed;
      for (const Action& action : actions_of[i]) {
        const auto& part = compiled[index_of.at(action.key.digest)];
        failed.Update(part.status());
        if (part.ok()) parts.push_back(*part);
      }
      absl::StatusOr<proto::MeasureAction::Subject> subject =
          failed.ok() ? SubjectOf(partitioned[i], parts) : absl::StatusOr<proto::MeasureAction::Subject>(failed);
      if (!subject.ok()) {
        if (i == 0) return subject.status();
        plans_[i].set_excluded(std::string(subject.status().message()));
        continue;
      }
      subject->set_name(covers_[i].name);
      measurement.add_subjects()->Swap(&*subject);
      measured.push_back(i);
    }
    if (measured.size() < 2) return absl::OkStatus();
    INLAY_RETURN_IF_ERROR(Report("measure the whole model", 0, static_cast<int>(measured.size())));
    const double left_ms = absl::ToDoubleMilliseconds(deadline_ - absl::Now());
    measurement.set_budget_ms(std::clamp(left_ms, 1.0, kFinalBudgetMs));
    measurement.set_min_rounds(kMinFinalRounds);
    measurement.set_max_rounds(kMaxFinalRounds);
    const absl::Time start = absl::Now();
    INLAY_ASSIGN_OR_RETURN(proto::MeasureResult result, context_.measurer->Measure(measurement, context_.token));
    measure_ms_ += absl::ToDoubleMilliseconds(absl::Now() - start);
    for (size_t i = 0; i < measured.size(); ++i) {
      const Timing& timing = result.timings(static_cast<int>(i));
      proto::PlanReport& plan = plans_[measured[i]];
      if (timing.code() != 0) plan.set_excluded(timing.message().empty() ? "failed" : timing.message());
      plan.set_measured_us(timing.median_us());
      plan.set_spread_us(timing.spread_us());
    }
    return absl::OkStatus();
  }

  static bool IsFallbackAlone(const collage::Cover& cover) {
    const auto& groups = cover.functions.at("main");
    return std::all_of(groups.begin(), groups.end(), [](const collage::Group& group) {
      return group.backend == nullptr || group.backend->is_fallback();
    });
  }

  // By median; where nothing was measured because only one plan is possible, that one.
  absl::StatusOr<int> Fastest() const {
    int best = -1;
    for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
      if (!plans_[i].excluded().empty()) continue;
      if (best < 0 || plans_[i].measured_us() < plans_[best].measured_us()) best = i;
    }
    if (best < 0) return absl::InternalError("no plan of the whole model gives the right results");
    return best;
  }

  proto::PlanRecord Record(const collage::FunctionSpace& main, int best) {
    proto::PlanRecord record;
    plans_[best].set_chosen(true);
    for (proto::PlanReport& plan : plans_) *record.add_plans() = std::move(plan);
    *record.mutable_cover() = collage::ToProto(covers_[best], input_.module_hash);
    record.set_measure_ms(measure_ms_);
    for (const Site& site : sites_) {
      for (int i = 0; i < static_cast<int>(site.alternatives.size()); ++i) {
        const Alternative& alternative = site.alternatives[i];
        proto::CandidateReport* report = record.add_candidates();
        report->set_backend(alternative.backend->name());
        report->set_rule(alternative.rule);
        DescribeCalls(*main.graph, site.occurrences[0].positions, report);
        report->set_occurrences(static_cast<int>(site.occurrences.size()));
        report->set_cost_us(alternative.estimate_us);
        if (const Timing* timing = TimingOf(site, i); timing != nullptr) {
          report->set_measured(timing->code() == 0);
          if (timing->code() != 0) report->set_excluded(timing->message());
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

  absl::Status Report(const char* phase, int done, int total) {
    if (context_.progress) context_.progress({phase, done, total, ""});
    return context_.token->status();
  }

  const SearchInput& input_;
  const MeasuringContext& context_;
  const target::CompilationConfig& config_;
  const absl::Time deadline_, sites_deadline_;
  std::unique_ptr<collage::CostEstimator> estimator_;
  collage::Partitioner partitioner_;
  collage::SearchSpace space_;
  std::vector<collage::Cover> covers_;
  std::vector<Site> sites_;
  std::map<std::pair<const Site*, int>, Timing> timings_;
  std::vector<proto::PlanReport> plans_;  // of covers_
  double measure_ms_ = 0;
};

}  // namespace

absl::StatusOr<proto::PlanRecord> SearchByMeasuring(const SearchInput& input, const MeasuringContext& context) {
  return MeasuredSearch(input, context).Run();
}

}  // namespace inlay::compiler
