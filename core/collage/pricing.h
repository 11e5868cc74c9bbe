// What the parts of a cover cost together, where that is not the sum of what they cost alone: calls that a code
// generator fuses, borders that change a layout. Any thread.
#ifndef INLAY_CORE_COLLAGE_PRICING_H_
#define INLAY_CORE_COLLAGE_PRICING_H_

#include <vector>

#include "core/collage/candidate.h"
#include "core/collage/cost_estimator.h"
#include "core/collage/cover.h"
#include "core/collage/dataflow_graph.h"
#include "core/collage/layouts.h"

namespace inlay::collage {

// Of candidates that are one call of a backend that fuses: what its call costs alone is read, computed, written and
// called; fused to its neighbours, most of that is gone. So each gets its part of what its group costs where the
// backend takes everything.
void ShareFusedCosts(const DataflowGraph& graph, const CostEstimator& estimator, std::vector<Candidate>* candidates);

// What one rule of a code generator takes whole costs less than its calls do one by one, or in a smaller whole and one
// by one, by the same: estimates are scaled by kinds of operators, which may say otherwise, and the rule is there since
// it is faster.
void CapWholeRules(const DataflowGraph& graph, std::vector<Candidate>* candidates);

// What it costs to transpose what goes in and out of the groups where it does not lie as they prefer. kRowMajor: where
// each group is timed alone.
double BorderMicros(const DataflowGraph& graph, const std::vector<Group>& groups, Borders borders,
                    const CostEstimator& estimator);

// Estimates the groups of backends that fuse anew, as they are now.
void PriceFusedGroups(const DataflowGraph& graph, const CostEstimator& estimator, std::vector<Group>* groups);

struct CoverCost {
  double us = 0;           // borders included
  double cautious_us = 0;  // the same, with CostEstimator::Margin
};
CoverCost CostWithBorders(const DataflowGraph& graph, const std::vector<Group>& groups, const CostEstimator& estimator);

// Of the cover's candidates of other backends than the fallback those that pay, in groups with their neighbours, once
// the groups' borders are counted, and CostEstimator::Margin, against the fallback's candidates for single calls.
// `candidates`: all there are.
std::vector<Candidate> WhatPays(const DataflowGraph& graph, const CostEstimator& estimator,
                                const std::vector<Candidate>& candidates, const std::vector<Candidate>& cover);

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_PRICING_H_
