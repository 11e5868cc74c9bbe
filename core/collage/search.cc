#include "core/collage/search.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/collage/convexity.h"
#include "core/ir/open_symbols.h"

namespace inlay::collage {
namespace {

using Covered = std::vector<bool>;

struct State {
  double cost = 0;
  int parent = -1;     // index into the arena of states
  int candidate = -1;  // that led here
  int frontier = 0;    // first position not covered
  Covered covered;
};

class CoverSearch {
 public:
  CoverSearch(const DataflowGraph& graph, const std::vector<Candidate>& candidates, const std::vector<bool>& banned,
              int beam)
      : graph_(graph), candidates_(candidates), beam_(beam), by_first_(graph.size()) {
    for (int i = 0; i < static_cast<int>(candidates.size()); ++i) {
      if (!banned[i]) by_first_[candidates[i].positions.front()].push_back(i);
    }
  }

  // Indices of the chosen candidates; empty where there is no cover.
  std::vector<int> Run() {
    State start;
    start.covered.resize(graph_.size(), false);
    for (int i = 0; i < graph_.size(); ++i) start.covered[i] = !graph_.needs_cover(i);
    start.frontier = NextUncovered(start.covered, 0);
    Add(std::move(start));
    for (int frontier = 0; frontier < graph_.size(); ++frontier) Expand(frontier);
    auto& finished = open_[graph_.size()];
    if (finished.empty()) return {};
    std::vector<int> chosen;
    for (int state = finished.begin()->second; state >= 0; state = arena_[state].parent) {
      if (arena_[state].candidate >= 0) chosen.push_back(arena_[state].candidate);
    }
    std::reverse(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  int NextUncovered(const Covered& covered, int from) const {
    while (from < graph_.size() && covered[from]) ++from;
    return from;
  }

  // Keeps the cheapest state for each set of covered positions.
  void Add(State state) {
    auto& same_frontier = open_[state.frontier];
    auto [found, added] = same_frontier.try_emplace(state.covered, static_cast<int>(arena_.size()));
    if (!added) {
      if (arena_[found->second].cost <= state.cost) return;
      found->second = static_cast<int>(arena_.size());
    }
    arena_.push_back(std::move(state));
  }

  void Expand(int frontier) {
    auto found = open_.find(frontier);
    if (found == open_.end()) return;
    std::vector<int> states;
    for (const auto& [covered, state] : found->second) states.push_back(state);
    std::stable_sort(states.begin(), states.end(), [&](int a, int b) {
      return std::make_pair(arena_[a].cost, a) < std::make_pair(arena_[b].cost, b);
    });
    if (static_cast<int>(states.size()) > beam_) states.resize(beam_);
    for (int state : states) {
      for (int candidate : by_first_[frontier]) Step(state, candidate);
    }
    open_.erase(frontier);
  }

  void Step(int from, int candidate) {
    State next;
    next.covered = arena_[from].covered;
    for (int position : candidates_[candidate].positions) {
      if (!graph_.needs_cover(position)) continue;  // a TupleGetItem goes along
      if (next.covered[position]) return;
      next.covered[position] = true;
    }
    next.cost = arena_[from].cost + candidates_[candidate].cost_us;
    next.parent = from;
    next.candidate = candidate;
    next.frontier = NextUncovered(next.covered, arena_[from].frontier);
    Add(std::move(next));
  }

  const DataflowGraph& graph_;
  const std::vector<Candidate>& candidates_;
  const int beam_;
  std::vector<std::vector<int>> by_first_;
  std::vector<State> arena_;
  std::map<int, std::map<Covered, int>> open_;  // by frontier
};

// A chosen candidate that takes part in a cycle of partitions, the biggest of them; -1 where there is none.
int BiggestInACycle(const DataflowGraph& graph, const std::vector<Candidate>& candidates,
                    const std::vector<int>& chosen) {
  std::vector<int> group_of(graph.size(), -1);
  int groups = 0;
  for (int candidate : chosen) {
    for (int position : candidates[candidate].positions) group_of[position] = groups;
    ++groups;
  }
  for (int& group : group_of) {
    if (group < 0) group = groups++;
  }
  Quotient quotient(graph, group_of, groups);
  std::vector<bool> ordered(groups, false);
  for (int group : quotient.TopologicalOrder()) ordered[group] = true;
  int worst = -1;
  for (int i = 0; i < static_cast<int>(chosen.size()); ++i) {
    if (ordered[i] || candidates[chosen[i]].positions.size() < 2) continue;
    if (worst < 0 || candidates[chosen[i]].positions.size() > candidates[worst].positions.size()) worst = chosen[i];
  }
  return worst;
}

absl::Status NotCovered(const DataflowGraph& graph, const std::vector<Candidate>& candidates) {
  std::vector<bool> coverable(graph.size(), false);
  for (const Candidate& candidate : candidates) {
    for (int position : candidate.positions) coverable[position] = true;
  }
  std::vector<std::string> missing;
  for (int i = 0; i < graph.size() && missing.size() < 20; ++i) {
    if (!graph.needs_cover(i) || coverable[i]) continue;
    missing.push_back(ir::Describe(graph.binding(i)));
    const std::string symbol = ir::FirstOpen(graph.binding(i));
    if (!symbol.empty()) absl::StrAppend(&missing.back(), " with dimension '", symbol, "' left open");
  }
  if (missing.empty()) return absl::InternalError("no cover of the module by the backends' candidates was found");
  return absl::UnimplementedError(
      absl::StrCat("no backend of the configuration compiles: ", absl::StrJoin(missing, "; ")));
}

}  // namespace

absl::StatusOr<std::vector<Candidate>> CheapestCover(const DataflowGraph& graph, std::vector<Candidate> candidates,
                                                     const SearchLimits& limits) {
  bool anything = false;
  for (int i = 0; i < graph.size(); ++i) anything |= graph.needs_cover(i);
  if (!anything) return std::vector<Candidate>();
  std::vector<bool> banned(candidates.size(), false);
  while (true) {
    std::vector<int> chosen = CoverSearch(graph, candidates, banned, limits.beam).Run();
    if (chosen.empty()) return NotCovered(graph, candidates);
    int culprit = BiggestInACycle(graph, candidates, chosen);
    if (culprit < 0) {
      std::vector<Candidate> cover;
      for (int candidate : chosen) cover.push_back(std::move(candidates[candidate]));
      return cover;
    }
    banned[culprit] = true;  // single calls are never banned, so this ends
  }
}

}  // namespace inlay::collage
