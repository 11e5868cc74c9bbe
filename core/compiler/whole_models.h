// WholeModels: the finalists of a search, timed end to end as they would ship.
//
// What a search that knows the parts' costs still measures is whole models alone. So their times are kept in the cost
// table as well: what decided a tie is not measured again, and where there is a tie that another search did not see,
// what that one measured of the same plans is its first evidence.
#ifndef INLAY_CORE_COMPILER_WHOLE_MODELS_H_
#define INLAY_CORE_COMPILER_WHOLE_MODELS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/digest.h"
#include "core/compiler/action.h"
#include "core/compiler/plan_search.h"
#include "core/target/compilation_config.h"
#include "proto/worker.pb.h"

namespace inlay::compiler {

class WholeModels {
 public:
  using Timings = std::vector<proto::MeasureResult::Timing>;

  // Of all of a search's runs of whole models; what timing a plan costs besides its rounds, in runs.
  static constexpr double kBudgetMs = 2000;
  static constexpr int kMinRounds = 4, kRunsBesideRounds = 4;

  // The arguments outlive it.
  WholeModels(const SearchInput& input, const MeasuringContext& context, absl::Time deadline)
      : input_(input), context_(context), deadline_(deadline) {}

  // Compiled of `actions`. The first is the reference for the others' results.
  void Add(int plan, const std::vector<Action>& actions, proto::MeasureAction::Subject subject);
  // In the order in which they were added.
  const std::vector<int>& plans() const { return plans_; }

  // Times all of them against each other.
  absl::StatusOr<Timings> Measure();
  // Times a plan that gives the right results and another one against each other; empty where no time is left.
  absl::StatusOr<Timings> MeasureBeside(int right, int other);
  // The `measurement`-th, from 0, by which a tie between `plans` is decided; empty where no time is left.
  absl::StatusOr<Timings> MeasureTie(const std::vector<int>& plans, int measurement);

  double measure_ms() const { return measure_ms_; }
  // What was said of measurements as a whole, each once.
  const std::set<std::string>& notes() const { return notes_; }

 private:
  struct Plan {
    Digest key;  // of its actions
    proto::MeasureAction::Subject subject;
  };
  // Empty where it is not known and no time is left.
  absl::StatusOr<Timings> KnownOrRun(absl::string_view what, const std::vector<int>& plans, double budget_ms,
                                     int min_rounds, int reference);
  absl::StatusOr<Timings> Run(const std::vector<int>& plans, double budget_ms, int min_rounds, int reference);
  Digest Key(absl::string_view what, const std::vector<int>& plans) const;
  std::optional<Timings> Known(const Digest& key, size_t plans) const;
  void Keep(const Digest& key, const Timings& timings) const;

  const SearchInput& input_;
  const MeasuringContext& context_;
  const absl::Time deadline_;
  std::vector<int> plans_;
  std::map<int, Plan> plan_;
  std::map<int, proto::MeasureResult::Timing> earlier_;  // in another search's measurement of the same plans
  std::set<std::string> notes_;
  double measure_ms_ = 0;
  absl::Duration last_run_;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_WHOLE_MODELS_H_
