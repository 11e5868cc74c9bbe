#include "core/compiler/site_costs.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/compiler/build_executable.h"
#include "core/compiler/cost_rows.h"
#include "core/ir/op_registry.h"

namespace inlay::compiler {
namespace {

// Of the runs of one alternative.
constexpr double kBudgetMs = 40;
constexpr int kMaxRounds = 60;
// Sites are compiled and measured in batches, so that a budget that runs out leaves the costliest ones measured.
constexpr size_t kBatch = 32;
constexpr uint64_t kSeed = 20;

}  // namespace

proto::MeasureAction NewMeasurement(const target::CompilationConfig& config) {
  proto::MeasureAction action;
  action.set_reference(0);
  action.set_rtol(backend::Tolerance().rtol);
  action.set_atol(backend::Tolerance().atol);
  action.set_num_threads(config.num_threads);
  action.set_seed(kSeed);
  return action;
}

bool IsOfTheSubject(const proto::MeasureResult::Timing& timing) {
  switch (static_cast<absl::StatusCode>(timing.code())) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDeadlineExceeded:
      return true;
    default:
      return false;
  }
}

backend::Tolerance ToleranceOf(const collage::Cover& cover, const ir::IRModule& module) {
  const std::vector<ir::Binding>& bindings = module.functions.at("main").body.bindings;
  const backend::Tolerance usual;
  backend::Tolerance loosest;
  double contractions = 0;  // that are off by more than usual
  for (const collage::Group& group : cover.functions.at("main")) {
    if (group.backend == nullptr) continue;
    const backend::Tolerance promised = group.backend->tolerance(module.config().CodegenTarget(group.backend->name()));
    if (promised.rtol <= usual.rtol && promised.atol <= usual.atol) continue;
    loosest = {std::max(loosest.rtol, promised.rtol), std::max(loosest.atol, promised.atol)};
    for (int position : group.positions) {
      contractions += ir::IsContraction(bindings[position]);
    }
  }
  const double factor = std::sqrt(std::max(1.0, contractions));
  return {loosest.rtol * factor, loosest.atol * factor};
}

absl::StatusOr<CompiledActions> CompileAll(const std::vector<Action>& actions, const MeasuringContext& context) {
  CompiledActions compiled = CompileEachAction(actions, context.compiler, context.token, context.progress);
  INLAY_RETURN_IF_ERROR(context.token->status());
  for (const auto& part : compiled) *context.actions_run += part.ok() && part->ran_here;
  return compiled;
}

void DistinctActions::Add(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (index_of_.emplace(action.key.digest, static_cast<int>(actions_.size())).second) actions_.push_back(action);
  }
}

absl::StatusOr<proto::MeasureAction::Subject> DistinctActions::SubjectOf(const collage::Partitioned& partitioned,
                                                                         const std::vector<Action>& own,
                                                                         const CompiledActions& compiled) const {
  std::vector<CompiledPartition> parts;
  for (const Action& action : own) {
    const absl::StatusOr<CompiledPartition>& part = compiled[index_of_.at(action.key.digest)];
    INLAY_RETURN_IF_ERROR(part.status());
    parts.push_back(*part);
  }
  INLAY_ASSIGN_OR_RETURN(proto::Executable executable, BuildExecutable(partitioned, parts));
  proto::MeasureAction::Subject subject;
  subject.set_plan_json(executable.plan_json());
  subject.mutable_params()->Swap(executable.mutable_params());
  std::set<Digest> seen;
  for (const CompiledPartition& part : parts) {
    if (seen.insert(part.library_digest).second) *subject.add_libraries() = *part.library;
  }
  return subject;
}

// One alternative of a site on its way through compiler and measurer.
struct SiteCosts::Trial {
  const Site* site;
  int index;  // of the alternative
  collage::Partitioned partitioned;
  std::vector<Action> actions;
  Digest key;
  backend::Tolerance tolerance;
  absl::Status failed;  // it could not be compiled
  proto::MeasureAction::Subject subject;
};

const SiteCosts::Timing* SiteCosts::Find(const Site& site, int alternative) const {
  auto found = timings_.find({&site, alternative});
  return found == timings_.end() ? nullptr : &found->second;
}

// What a time depends on besides the subject's own actions: the reference it was checked against and how closely, the
// device.
Digest SiteCosts::CostKey(const Trial& trial, const Trial& reference) const {
  Hasher hasher;
  hasher.UpdateField("inlay cost/2").UpdateField(context_.measurer->device());
  hasher.UpdateField(absl::StrCat(trial.tolerance.rtol, " ", trial.tolerance.atol));
  hasher.UpdateField(absl::StrCat(config_.num_threads)).UpdateField(trial.site->structure.bytes());
  for (const Trial* part : {&trial, &reference}) {
    for (const Action& action : part->actions) hasher.UpdateField(action.key.digest.bytes());
    hasher.UpdateField("/");
  }
  return hasher.Finish();
}

absl::StatusOr<std::vector<SiteCosts::Trial>> SiteCosts::TrialsOf(const Site& site) const {
  std::vector<Trial> trials;
  for (int i = 0; i < static_cast<int>(site.alternatives.size()); ++i) {
    Trial& trial = trials.emplace_back();
    trial.site = &site;
    trial.index = i;
    trial.partitioned = collage::CutAlong(site.module, site.alternatives[i].cover);
    INLAY_ASSIGN_OR_RETURN(trial.actions, MakeActions(trial.partitioned, context_.compiler->compiler()));
    trial.tolerance = ToleranceOf(site.alternatives[i].cover, site.module);
    trial.key = CostKey(trial, trials[0]);
  }
  return trials;
}

absl::Status SiteCosts::Measure(absl::Span<const Site> sites, absl::Time deadline) {
  for (size_t begin = 0; begin < sites.size() && absl::Now() < deadline; begin += kBatch) {
    INLAY_RETURN_IF_ERROR(MeasureBatch(sites.subspan(begin, kBatch), deadline));
  }
  return absl::OkStatus();
}

absl::Status SiteCosts::MeasureBatch(absl::Span<const Site> sites, absl::Time deadline) {
  std::vector<std::vector<Trial>> unknown;  // by site
  for (const Site& site : sites) {
    INLAY_ASSIGN_OR_RETURN(std::vector<Trial> trials, TrialsOf(site));
    bool all_known = true;
    for (const Trial& trial : trials) {
      if (const auto known = FindRow<Timing>(trial.key, context_.costs)) {
        timings_[{&site, trial.index}] = *known;
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
    if (context_.progress) context_.progress({"measure", ++done, static_cast<int>(unknown.size()), ""});
    INLAY_RETURN_IF_ERROR(context_.token->status());
    if (absl::Now() > deadline) break;
    INLAY_RETURN_IF_ERROR(MeasureSite(&trials));
  }
  return absl::OkStatus();
}

absl::Status SiteCosts::CompileTrials(std::vector<std::vector<Trial>>* sites) const {
  DistinctActions distinct;
  for (const std::vector<Trial>& trials : *sites) {
    for (const Trial& trial : trials) distinct.Add(trial.actions);
  }
  INLAY_ASSIGN_OR_RETURN(const CompiledActions compiled, CompileAll(distinct.actions(), context_));
  for (std::vector<Trial>& trials : *sites) {
    for (Trial& trial : trials) {
      absl::StatusOr<proto::MeasureAction::Subject> subject =
          distinct.SubjectOf(trial.partitioned, trial.actions, compiled);
      trial.failed = subject.status();
      if (!subject.ok()) continue;
      trial.subject = *std::move(subject);
      trial.subject.set_name(trial.site->alternatives[trial.index].backend->name());
      trial.subject.set_rtol(trial.tolerance.rtol);
      trial.subject.set_atol(trial.tolerance.atol);
    }
  }
  return absl::OkStatus();
}

absl::Status SiteCosts::MeasureSite(std::vector<Trial>* trials) {
  proto::MeasureAction action = NewMeasurement(config_);
  action.set_budget_ms(kBudgetMs * trials->size());
  action.set_max_rounds(kMaxRounds);
  std::vector<const Trial*> measured;
  for (Trial& trial : *trials) {
    if (trial.failed.ok()) {
      action.add_subjects()->Swap(&trial.subject);
      measured.push_back(&trial);
    } else {
      Timing& timing = timings_[{trial.site, trial.index}];  // not kept: the next compile may succeed
      timing.set_code(static_cast<int>(trial.failed.code()));
      timing.set_message(std::string(trial.failed.message()));
    }
  }
  // Without the fallback's results nobody else's can be trusted.
  if (!trials->front().failed.ok()) return absl::OkStatus();
  const absl::Time start = absl::Now();
  absl::StatusOr<proto::MeasureResult> result = context_.measurer->Measure(action, context_.token);
  measure_ms_ += absl::ToDoubleMilliseconds(absl::Now() - start);
  INLAY_RETURN_IF_ERROR(context_.token->status());
  if (!result.ok()) {
    // Estimates decide here; where nothing at all can be measured, the whole models say so.
    failures_.push_back(std::string(result.status().message()));
    return absl::OkStatus();
  }
  if (!result->note().empty()) notes_.insert(result->note());
  for (size_t i = 0; i < measured.size(); ++i) {
    const Timing& timing = result->timings(static_cast<int>(i));
    timings_[{measured[i]->site, measured[i]->index}] = timing;
    if (!IsOfTheSubject(timing)) {
      failures_.push_back(timing.message());
      continue;
    }
    KeepRow(measured[i]->key, timing, context_.costs);
  }
  return absl::OkStatus();
}

bool SiteCosts::TiedWithFallback(const Site& site, const Timing& timing) const {
  const Timing* fallback = Find(site, 0);
  if (fallback == nullptr || fallback->code() != 0 || timing.min_us() >= fallback->min_us()) return false;
  auto doubt = [](const Timing& t) { return t.spread_us() / std::sqrt(std::max(1, t.rounds())); };
  return fallback->min_us() - timing.min_us() < doubt(timing) + doubt(*fallback);
}

}  // namespace inlay::compiler
