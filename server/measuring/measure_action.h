// Runs a MeasureAction in this process: what a measuring process does with one.
//
// Each subject is loaded as a JIT handle would be (core/jit), run once and compared with the reference, and run again
// to warm up. Then rounds: every subject runs once a round, in an order that changes from round to round, so that a
// drift of the machine's speed touches all alike and nobody always finds the caches as the same other left them. A
// sample is one run, or as many as take a few clock ticks' worth of time where a run is too short for the clock.
// Outputs are checked again at the end.
#ifndef INLAY_SERVER_MEASURING_MEASURE_ACTION_H_
#define INLAY_SERVER_MEASURING_MEASURE_ACTION_H_

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "server/measuring/progress_page.h"

namespace inlay::server {

// One timing a subject; errors as compiler::Measurer's. `progress` (may be null) is told before every load and run.
// Crashes, hangs and memory are the caller's to look after.
absl::StatusOr<proto::MeasureResult> RunMeasureAction(const proto::MeasureAction& action, ProgressPage* progress);

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_MEASURE_ACTION_H_
