#include "core/collage/pricing.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "core/collage/merge.h"

namespace inlay::collage {
namespace {

bool IsOneCall(const DataflowGraph& graph, const Candidate& candidate) {
  return std::count_if(candidate.positions.begin(), candidate.positions.end(),
                       [&](int position) { return graph.needs_cover(position); }) == 1;
}

// The group of each position.
std::vector<int> GroupOf(const DataflowGraph& graph, const std::vector<Group>& groups) {
  std::vector<int> group_of(graph.size());
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
    for (int position : groups[i].positions) group_of[position] = i;
  }
  return group_of;
}

double BorderOf(const std::vector<Group>& groups, const Layouts& layouts, int i, const CostEstimator& estimator) {
  double total = 0;
  for (const ir::Var* var : layouts.preferred[i]) {
    if (layouts.channels_last.count(var) > 0) continue;
    total += estimator.TransitionMicros(*groups[i].backend, var->type.tensor());
  }
  return total;
}

}  // namespace

void ShareFusedCosts(const DataflowGraph& graph, const CostEstimator& estimator, std::vector<Candidate>* candidates) {
  std::map<const backend::Backend*, std::map<int, Candidate*>> singles;  // by position
  for (Candidate& candidate : *candidates) {
    if (!candidate.backend->fuses_by_kind() || !IsOneCall(graph, candidate)) continue;
    for (int position : candidate.positions) {
      if (graph.needs_cover(position)) singles[candidate.backend].emplace(position, &candidate);
    }
  }
  for (const auto& [backend, by_position] : singles) {
    std::vector<Candidate> alone;
    for (const auto& [position, candidate] : by_position) alone.push_back(*candidate);
    std::vector<Group> groups = MergeCover(graph, alone);
    for (Group& group : groups) {
      if (group.backend == nullptr || group.cost_us <= 0 || group.positions.size() < 2) continue;
      const double whole = estimator.EstimateMicros(graph, {group.positions, backend, "", 0});
      if (whole >= group.cost_us) continue;
      for (int position : group.positions) {
        auto single = by_position.find(position);
        if (single != by_position.end()) single->second->cost_us *= whole / group.cost_us;
      }
    }
  }
}

void CapWholeRules(const DataflowGraph& graph, std::vector<Candidate>* candidates) {
  constexpr double kWhole = 0.99;  // of its parts, at most
  std::map<std::pair<const backend::Backend*, int>, double> single;
  for (const Candidate& candidate : *candidates) {
    if (!candidate.backend->fuses_by_kind() || !IsOneCall(graph, candidate)) continue;
    for (int position : candidate.positions) {
      if (!graph.needs_cover(position)) continue;
      auto [found, is_new] = single.emplace(std::pair(candidate.backend, position), candidate.cost_us);
      found->second = std::min(found->second, candidate.cost_us);
    }
  }
  auto one_by_one = [&](const Candidate& whole, const std::vector<int>& positions) {
    double sum = 0;
    for (int position : positions) {
      if (!graph.needs_cover(position)) continue;
      auto found = single.find({whole.backend, position});
      sum += found == single.end() ? whole.cost_us : found->second;
    }
    return sum;
  };
  std::vector<Candidate*> wholes;
  for (Candidate& candidate : *candidates) {
    if (candidate.backend->fuses_by_kind() && !IsOneCall(graph, candidate)) wholes.push_back(&candidate);
  }
  std::stable_sort(wholes.begin(), wholes.end(),
                   [](const Candidate* a, const Candidate* b) { return a->positions.size() < b->positions.size(); });
  std::map<std::pair<const backend::Backend*, int>, std::vector<const Candidate*>> starting_at;
  for (Candidate* whole : wholes) {
    const std::vector<int>& positions = whole->positions;
    double parts = one_by_one(*whole, positions);
    // Or as a smaller one of them, and the rest.
    for (int position : positions) {
      auto found = starting_at.find({whole->backend, position});
      if (found == starting_at.end()) continue;
      for (const Candidate* part : found->second) {
        std::vector<int> rest;
        std::set_difference(positions.begin(), positions.end(), part->positions.begin(), part->positions.end(),
                            std::back_inserter(rest));
        if (rest.size() + part->positions.size() != positions.size() || rest.empty()) continue;
        parts = std::min(parts, part->cost_us + one_by_one(*whole, rest));
      }
    }
    whole->cost_us = std::min(whole->cost_us, kWhole * parts);
    starting_at[{whole->backend, positions.front()}].push_back(whole);
  }
}

double BorderMicros(const DataflowGraph& graph, const std::vector<Group>& groups, Borders borders,
                    const CostEstimator& estimator) {
  const Layouts layouts = LayoutsOf(graph, groups, borders, estimator.target());
  double total = 0;
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) total += BorderOf(groups, layouts, i, estimator);
  return total;
}

void PriceFusedGroups(const DataflowGraph& graph, const CostEstimator& estimator, std::vector<Group>* groups) {
  for (Group& group : *groups) {
    if (group.backend == nullptr || !group.backend->fuses_by_kind() || group.positions.size() < 2) continue;
    group.cost_us = estimator.EstimateMicros(graph, {group.positions, group.backend, "", 0});
  }
}

CoverCost CostWithBorders(const DataflowGraph& graph, const std::vector<Group>& groups,
                          const CostEstimator& estimator) {
  const Layouts layouts = LayoutsOf(graph, groups, Borders::kAgreed, estimator.target());
  CoverCost cost;
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
    if (groups[i].backend == nullptr) continue;
    const double us = groups[i].cost_us + BorderOf(groups, layouts, i, estimator);
    cost.us += us;
    cost.cautious_us += us * estimator.Margin(*groups[i].backend);
  }
  return cost;
}

std::vector<Candidate> WhatPays(const DataflowGraph& graph, const CostEstimator& estimator,
                                const std::vector<Candidate>& candidates, const std::vector<Candidate>& cover) {
  std::map<int, const Candidate*> fallback;  // by position: the cheapest that is this call alone
  for (const Candidate& candidate : candidates) {
    if (!candidate.backend->is_fallback() || !IsOneCall(graph, candidate)) continue;
    for (int position : candidate.positions) {
      if (!graph.needs_cover(position)) continue;
      const Candidate*& known = fallback[position];
      if (known == nullptr || candidate.cost_us < known->cost_us) known = &candidate;
    }
  }
  const std::vector<Group> groups = MergeCover(graph, cover);
  const std::vector<int> group_of = GroupOf(graph, groups);
  const Layouts layouts = LayoutsOf(graph, groups, Borders::kAgreed, estimator.target());
  std::vector<bool> pays(groups.size(), true);
  for (int i = 0; i < static_cast<int>(groups.size()); ++i) {
    if (groups[i].backend == nullptr || groups[i].backend->is_fallback()) continue;
    double instead = 0;
    bool possible = true;
    for (int position : groups[i].positions) {
      if (!graph.needs_cover(position)) continue;
      auto single = fallback.find(position);
      possible &= single != fallback.end();
      if (possible) instead += single->second->cost_us;
    }
    const double us = groups[i].cost_us + BorderOf(groups, layouts, i, estimator);
    pays[i] = !possible || us * estimator.Margin(*groups[i].backend) < instead;
  }
  std::vector<Candidate> kept;
  for (const Candidate& candidate : cover) {
    if (candidate.backend->is_fallback()) continue;
    if (candidate.intended || pays[group_of[candidate.positions.front()]]) kept.push_back(candidate);
  }
  return kept;
}

}  // namespace inlay::collage
