#include "core/compiler/whole_models.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/compiler/cost_rows.h"
#include "core/compiler/site_costs.h"

namespace inlay::compiler {
namespace {

constexpr int kMaxRounds = 60;
// Of each measurement that a tie is decided by. It is the loads that differ, not a load's runs.
constexpr double kTieBudgetMs = 600;
constexpr int kMinTieRounds = 2;

}  // namespace

void WholeModels::Add(int plan, const std::vector<Action>& actions, proto::MeasureAction::Subject subject) {
  Hasher hasher;
  for (const Action& action : actions) hasher.UpdateField(action.key.digest.bytes());
  plan_[plan] = {hasher.Finish(), std::move(subject)};
  plans_.push_back(plan);
}

absl::StatusOr<WholeModels::Timings> WholeModels::Measure() {
  INLAY_ASSIGN_OR_RETURN(Timings timings, Run(plans_, kBudgetMs, kMinRounds, /*reference=*/0));
  const Digest key = Key("finalists", plans_);
  if (const std::optional<Timings> earlier = Known(key, plans_.size())) {
    for (size_t i = 0; i < plans_.size(); ++i) earlier_[plans_[i]] = (*earlier)[i];
  }
  Keep(key, timings);
  return timings;
}

absl::StatusOr<WholeModels::Timings> WholeModels::MeasureTie(const std::vector<int>& plans, int measurement) {
  if (measurement == 0 && earlier_.count(plans[0]) > 0) {
    Timings timings;
    for (int plan : plans) timings.push_back(earlier_.at(plan));
    return timings;
  }
  // All gave the right results already.
  return KnownOrRun(absl::StrCat("tie ", measurement), plans, kTieBudgetMs, kMinTieRounds, /*reference=*/-1);
}

absl::StatusOr<WholeModels::Timings> WholeModels::MeasureBeside(int right, int other) {
  return KnownOrRun("beside", {right, other}, kBudgetMs, kMinRounds, /*reference=*/0);
}

absl::StatusOr<WholeModels::Timings> WholeModels::KnownOrRun(absl::string_view what, const std::vector<int>& plans,
                                                             double budget_ms, int min_rounds, int reference) {
  const Digest key = Key(what, plans);
  if (std::optional<Timings> known = Known(key, plans.size())) return *std::move(known);
  if (absl::Now() + last_run_ > deadline_) return Timings();
  INLAY_ASSIGN_OR_RETURN(Timings timings, Run(plans, budget_ms, min_rounds, reference));
  Keep(key, timings);
  return timings;
}

absl::StatusOr<WholeModels::Timings> WholeModels::Run(const std::vector<int>& plans, double budget_ms, int min_rounds,
                                                      int reference) {
  proto::MeasureAction measurement = NewMeasurement(input_.module.config());
  measurement.set_reference(reference);
  for (int plan : plans) *measurement.add_subjects() = plan_.at(plan).subject;
  const double left_ms = absl::ToDoubleMilliseconds(deadline_ - absl::Now());
  measurement.set_budget_ms(std::clamp(left_ms, 1.0, budget_ms));
  measurement.set_min_rounds(min_rounds);
  measurement.set_max_rounds(kMaxRounds);
  const absl::Time start = absl::Now();
  INLAY_ASSIGN_OR_RETURN(const proto::MeasureResult result, context_.measurer->Measure(measurement, context_.token));
  last_run_ = absl::Now() - start;
  measure_ms_ += absl::ToDoubleMilliseconds(last_run_);
  if (!result.note().empty()) notes_.insert(result.note());
  return Timings(result.timings().begin(), result.timings().end());
}

Digest WholeModels::Key(absl::string_view what, const std::vector<int>& plans) const {
  Hasher hasher;
  hasher.UpdateField("inlay whole models/1").UpdateField(what).UpdateField(context_.measurer->device());
  hasher.UpdateField(absl::StrCat(input_.module.config().num_threads)).UpdateField(input_.module_hash.bytes());
  for (int plan : plans) hasher.UpdateField(plan_.at(plan).key.bytes());
  return hasher.Finish();
}

std::optional<WholeModels::Timings> WholeModels::Known(const Digest& key, size_t plans) const {
  const auto row = FindRow<proto::MeasureResult>(key, context_.costs);
  if (!row.has_value() || static_cast<size_t>(row->timings_size()) != plans) return std::nullopt;  // or damaged
  return Timings(row->timings().begin(), row->timings().end());
}

void WholeModels::Keep(const Digest& key, const Timings& timings) const {
  if (!std::all_of(timings.begin(), timings.end(), IsOfTheSubject)) return;
  proto::MeasureResult row;
  for (const proto::MeasureResult::Timing& timing : timings) *row.add_timings() = timing;
  KeepRow(key, row, context_.costs);
}

}  // namespace inlay::compiler
