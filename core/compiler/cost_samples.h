// CostSamples: what the analytic model is fitted to (core/collage/scale_fit.h): a row of the cost table for each
// device, number of threads and target, to which each measured search adds its sites.
#ifndef INLAY_CORE_COMPILER_COST_SAMPLES_H_
#define INLAY_CORE_COMPILER_COST_SAMPLES_H_

#include <string>
#include <vector>

#include "core/cache/key_value_table.h"
#include "core/collage/cost_estimator.h"
#include "core/compiler/sites.h"
#include "core/target/compilation_config.h"
#include "proto/cost_table.pb.h"

namespace inlay::compiler {

Digest SamplesKey(const target::CompilationConfig& config, const std::string& device);
proto::CostSamples KnownSamples(const Digest& key, cache::KeyValueTable* costs);
// Two that write at once may lose samples; a later search brings them again.
void KeepSamples(const Digest& key, cache::KeyValueTable* costs, const proto::CostSamples& more);

// What an alternative takes by the estimator, its borders included, as a measurement includes them.
double EstimateOf(const Site& site, const Alternative& alternative, const collage::CostEstimator& estimator);

// Adds to the site's samples what `measured_us` says of the alternative: what is left of it without its borders and the
// call, over the backend's estimate of the rest. Nothing where it is several partitions (which of them took the time?)
// or its backend has no estimate. `transitions`: a model without a fit. `version`: of the backend.
void AddSample(const Site& site, const Alternative& alternative, const collage::CostModel& transitions,
               const std::string& version, double measured_us, proto::CostSamples::Site* samples);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_COST_SAMPLES_H_
