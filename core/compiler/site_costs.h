// SiteCosts: what the alternatives of sites (sites.h) take, from the cost table or by compiling and measuring them.
#ifndef INLAY_CORE_COMPILER_SITE_COSTS_H_
#define INLAY_CORE_COMPILER_SITE_COSTS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/compiler/plan_search.h"
#include "core/compiler/sites.h"
#include "core/target/compilation_config.h"
#include "proto/worker.pb.h"

namespace inlay::compiler {

// A measurement as every search asks for one: the first subject is the reference.
proto::MeasureAction NewMeasurement(const target::CompilationConfig& config);

// Whether it is what came of the subject itself, and so will come again: a time, wrong results, a crash, a hang. Other
// codes speak of the machine that measured (a library or memory that it had not).
bool IsOfTheSubject(const proto::MeasureResult::Timing& timing);

// What the results of a cover may be off by, as the backends of its contractions promise.
backend::Tolerance ToleranceOf(const collage::Cover& cover, const ir::IRModule& module);

// All of them, those that fail too; an error only where the compile was cancelled.
using CompiledActions = std::vector<absl::StatusOr<CompiledPartition>>;
absl::StatusOr<CompiledActions> CompileAll(const std::vector<Action>& actions, const MeasuringContext& context);

// Actions of several partitioned modules, each once.
class DistinctActions {
 public:
  void Add(const std::vector<Action>& actions);
  const std::vector<Action>& actions() const { return actions_; }
  // The partitioned module, of its own actions in order, as the measurer runs it.
  absl::StatusOr<proto::MeasureAction::Subject> SubjectOf(const collage::Partitioned& partitioned,
                                                          const std::vector<Action>& own,
                                                          const CompiledActions& compiled) const;

 private:
  std::vector<Action> actions_;
  std::map<Digest, int> index_of_;
};

class SiteCosts {
 public:
  using Timing = proto::MeasureResult::Timing;

  // The arguments outlive it.
  SiteCosts(const target::CompilationConfig& config, const MeasuringContext& context)
      : config_(config), context_(context) {}

  // In their order, until `deadline`: those after it have no timings. Keeps pointers to the sites.
  absl::Status Measure(absl::Span<const Site> sites, absl::Time deadline);

  // Null: not measured. Its code says whether it has a time.
  const Timing* Find(const Site& site, int alternative) const;

  // Whether an alternative of that time is faster than the fallback by less than the measurements are sure of (the
  // spread of a median falls with the root of the rounds). It costs the same then, and a search takes what is listed
  // first, which is the fallback.
  bool TiedWithFallback(const Site& site, const Timing& timing) const;

  double measure_ms() const { return measure_ms_; }
  // Measurements that failed for a reason that is no candidate's: estimates decide there, and another time they may
  // not.
  const std::vector<std::string>& failures() const { return failures_; }
  // What was said of measurements as a whole, each once.
  const std::set<std::string>& notes() const { return notes_; }

 private:
  struct Trial;
  Digest CostKey(const Trial& trial, const Trial& reference) const;
  absl::StatusOr<std::vector<Trial>> TrialsOf(const Site& site) const;
  absl::Status MeasureBatch(absl::Span<const Site> sites, absl::Time deadline);
  absl::Status CompileTrials(std::vector<std::vector<Trial>>* sites) const;
  absl::Status MeasureSite(std::vector<Trial>* trials);

  const target::CompilationConfig& config_;
  const MeasuringContext& context_;
  std::map<std::pair<const Site*, int>, Timing> timings_;
  double measure_ms_ = 0;
  std::vector<std::string> failures_;
  std::set<std::string> notes_;
};

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_SITE_COSTS_H_
