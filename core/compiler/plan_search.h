// PlanSearch: which cover a module is cut along, and the record of how that was decided.
#ifndef INLAY_CORE_COMPILER_PLAN_SEARCH_H_
#define INLAY_CORE_COMPILER_PLAN_SEARCH_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/cancellation.h"
#include "core/cache/key_value_table.h"
#include "core/collage/partitioner.h"
#include "core/compiler/caching_compiler.h"
#include "core/compiler/measurer.h"
#include "core/compiler/progress.h"
#include "proto/artifact.pb.h"

namespace inlay::compiler {

struct SearchInput {
  const ir::IRModule& module;  // normalised
  Digest module_hash;
  std::vector<const backend::Backend*> backends;
  // What going from one partition to the next costs on this machine; empty: not measured.
  proto::TransitionCosts transitions;
  // What the backends' estimates are off by there. Both or neither are in an estimate: the constants of the backends
  // are on a scale of their own (a core of 3 GHz), and compare with each other, but not with what was measured.
  collage::ScaleFit fit;
  collage::CostModel model() const {
    return fit.num_samples() > 0 ? collage::CostModel(transitions, fit) : collage::CostModel();
  }
};

// By the order of preference or the analytic model, as the module's configuration says.
absl::StatusOr<proto::PlanRecord> SearchByEstimate(const SearchInput& input);

struct MeasuringContext {
  CachingCompiler* compiler;
  Measurer* measurer;
  cache::KeyValueTable* costs;  // the cost table
  absl::Duration budget;        // for all of it; what is not measured by then is estimated
  CancelToken* token;
  const ProgressFn& progress;
  int* actions_run;  // counts what workers compiled for the search
};

// Measures what transitions cost, where the table has nothing. Times every site's alternatives (sites.h) in measuring
// processes, makes the cheapest cover of what was measured, then times that one, the cheapest by estimate and every
// single-backend plan whole, and takes the fastest. So the result is never slower, but for noise, than any one backend
// alone. Who crashes or computes something else than the fallback is excluded, with the reason. Times are kept in the
// cost table. A module with calls that the configuration gives to kernels of its own (PatternRule::intended) is not
// measured: the analytic model chooses for the rest of it.
absl::StatusOr<proto::PlanRecord> SearchByMeasuring(const SearchInput& input, const MeasuringContext& context);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_PLAN_SEARCH_H_
