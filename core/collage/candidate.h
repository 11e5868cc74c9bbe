// Candidate: a sub-graph that one backend could take. Refusal: one that a backend was asked about and can't.
#ifndef INLAY_CORE_COLLAGE_CANDIDATE_H_
#define INLAY_CORE_COLLAGE_CANDIDATE_H_

#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace inlay::collage {

struct Candidate {
  std::vector<int> positions;  // in the block, ascending; TupleGetItems of its tuples included
  const backend::Backend* backend = nullptr;
  std::string rule;       // the rule that found it, for explanations
  double cost_us = 0;     // given by the CostEstimator
  bool intended = false;  // the configuration asks for it: PatternRule::intended
};

struct Refusal {
  int position = 0;  // the root it was asked about
  std::string backend;
  std::string rule;
  std::string reason;
};

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_CANDIDATE_H_
