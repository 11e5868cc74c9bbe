// Draws a cover's neighbouring partitions of one backend together, where that backend says it gains from it.
#ifndef INLAY_CORE_COLLAGE_MERGE_H_
#define INLAY_CORE_COLLAGE_MERGE_H_

#include <vector>

#include "core/collage/candidate.h"
#include "core/collage/cover.h"
#include "core/collage/dataflow_graph.h"

namespace inlay::collage {

// A region of a backend that chooses layouts inside (Backend::merges_regions) grows to at most so many candidates.
// Larger regions save reorders at their borders; smaller ones recompile less when one operator changes. 16 convolutions
// leave ResNet-50 with a handful of borders, each under 1% of its run time.
inline constexpr int kMaxRegionCandidates = 16;
// Fusion by kind (Backend::fuses_by_kind) grows a partition to at most so many calls.
inline constexpr int kMaxFusedCalls = 40;

// Groups in an order in which each comes after those it needs.
// `merge_regions`: also where Backend::merges_regions; fusion by kind is always done.
std::vector<Group> MergeCover(const DataflowGraph& graph, const std::vector<Candidate>& cover,
                              bool merge_regions = true);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_MERGE_H_
