// How a search explains itself: the parts of a PlanRecord that are not the cover.
#ifndef INLAY_CORE_COMPILER_SEARCH_REPORT_H_
#define INLAY_CORE_COMPILER_SEARCH_REPORT_H_

#include <vector>

#include "core/collage/partitioner.h"
#include "proto/artifact.pb.h"

namespace inlay::compiler {

// Null where the module has no main.
const collage::FunctionSpace* MainOf(const collage::SearchSpace& space);

// Operators and the model's nodes.
void DescribeCalls(const collage::DataflowGraph& graph, const std::vector<int>& positions,
                   proto::CandidateReport* report);

// Whether the cover's main gives all of `positions` to one partition of the backend.
bool IsChosen(const collage::Cover& cover, const backend::Backend* backend, const std::vector<int>& positions);

proto::PlanReport ReportPlan(const collage::Cover& cover);

// The search space's estimates, each distinct candidate once: many are the same of another layer.
void ReportCandidates(const collage::FunctionSpace& main, const collage::Cover& chosen, proto::PlanRecord* record);
// What backends were asked about and refused.
void ReportRefusals(const collage::SearchSpace& space, proto::PlanRecord* record);

}  // namespace inlay::compiler

#endif  // INLAY_CORE_COMPILER_SEARCH_REPORT_H_
