// TransitionCosts: what a call, a copy and a change of layout cost, measured once for each device, number of threads,
// target and set of backends, and kept in the cost table beside what sites take (proto/cost_table.proto).
#ifndef INLAY_CORE_COMPILER_TRANSITION_COSTS_H_
#define INLAY_CORE_COMPILER_TRANSITION_COSTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/compiler/plan_search.h"
#include "proto/cost_table.pb.h"

namespace inlay::compiler {

// Of the row in the cost table. `device`: Measurer::device.
absl::StatusOr<Digest> TransitionKey(const target::CompilationConfig& config,
                                     const std::vector<const backend::Backend*>& backends, const std::string& device,
                                     PartitionCompiler* compiler);

// What the table has; an empty message where that is nothing.
proto::TransitionCosts KnownTransitions(const Digest& key, cache::KeyValueTable* costs);

// What the table has, else measured (some seconds) and kept. Nothing that may do better another time is kept, as little
// as in sites: then `failure` says why. An error only where the compile was cancelled.
absl::StatusOr<proto::TransitionCosts> MeasureTransitions(const target::CompilationConfig& config,
                                                          const std::vector<const backend::Backend*>& backends,
                                                          const MeasuringContext& context, std::string* failure);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_TRANSITION_COSTS_H_
