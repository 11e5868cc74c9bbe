// Which of the plans that were timed whole ships: the fastest; of those that a measurement cannot tell apart, one that
// does not depend on the noise.
#ifndef INLAY_CORE_COMPILER_FINALISTS_H_
#define INLAY_CORE_COMPILER_FINALISTS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"

namespace inlay::compiler {

struct Finalist {
  std::string name;
  double median_us = 0, spread_us = 0;  // spread: half of p10..p90
  int partitions = 0;
  int foreign = 0;  // of those, how many are not the fallback's
};

struct FinalDecision {
  int winner = 0;    // index
  std::string note;  // of a tie: with whom, and how it was decided; else empty
};

// Times some of the finalists against each other again, in rounds of their own. Empty: there is no time left.
using MeasureAgainFn =
    std::function<absl::StatusOr<std::vector<proto::MeasureResult::Timing>>(const std::vector<int>& finalists)>;

// Finalists are tied where their medians differ by less than both spreads together, or by 5%. The preferred of those
// tied with the fastest (fewer partitions that are not the fallback's, then fewer at all, then the first) ships, unless
// another one is ahead of it by more than 3%, in the first measurement and on average of that and three more, ahead in
// each of them, and by more than noise as large as what these gains scatter by would give in one of a hundred cases
// (Student's t). The two fastest that are so far ahead in the first are measured again.
//
// `finalists` is not empty.
absl::StatusOr<FinalDecision> DecideFinal(const std::vector<Finalist>& finalists, const MeasureAgainFn& measure_again);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_FINALISTS_H_
