// The cheapest cover: every call in exactly one candidate.
#ifndef INLAY_CORE_COLLAGE_SEARCH_H_
#define INLAY_CORE_COLLAGE_SEARCH_H_

#include <vector>

#include "absl/status/statusor.h"
#include "core/collage/candidate.h"
#include "core/collage/dataflow_graph.h"

namespace inlay::collage {

struct SearchLimits {
  int beam = 64;  // covers kept at each frontier
};

// Shortest path over sets of covered positions. Each step takes a candidate that contains the first position not yet
// covered, so a chain has one state a position and only branches multiply them; the beam bounds that.
//
// The cover's partitions can be put in an order (no cycles among them). Deterministic: of equal costs the candidate
// that was listed first. UNIMPLEMENTED names the calls that no candidate covers.
absl::StatusOr<std::vector<Candidate>> CheapestCover(const DataflowGraph& graph, std::vector<Candidate> candidates,
                                                     const SearchLimits& limits = {});

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_SEARCH_H_
