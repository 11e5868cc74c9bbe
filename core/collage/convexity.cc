#include "core/collage/convexity.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace inlay::collage {

bool IsConvex(const DataflowGraph& graph, const std::vector<int>& positions) {
  // Positions are a topological order, so a path that comes back stays between the first and the last.
  const int first = positions.front(), last = positions.back();
  std::vector<char> inside(last - first + 1, 0), tainted(last - first + 1, 0);
  for (int position : positions) inside[position - first] = 1;
  for (int i = first; i <= last; ++i) {
    bool from_inside = false, from_tainted = false;
    for (int producer : graph.producers(i)) {
      if (producer < first) continue;
      from_inside |= inside[producer - first];
      from_tainted |= tainted[producer - first];
    }
    if (inside[i - first]) {
      if (from_tainted) return false;
    } else {
      tainted[i - first] = from_inside || from_tainted;
    }
  }
  return true;
}

Quotient::Quotient(const DataflowGraph& graph, std::vector<int> group_of, int num_groups)
    : graph_(graph), group_of_(std::move(group_of)), members_(num_groups) {
  for (int i = 0; i < graph.size(); ++i) members_[group_of_[i]].push_back(i);
}

// Whether a path of at least one other group leads from `from` to `to`; with without_direct, edges from -> to don't
// count.
bool Quotient::Reaches(int from, int to, int without_direct) const {
  std::vector<char> seen(members_.size(), 0);
  std::vector<int> stack = {from};
  seen[from] = 1;
  const int last = members_[to].back();  // nothing after it can lead to it except through a group that began before
  while (!stack.empty()) {
    int group = stack.back();
    stack.pop_back();
    for (int member : members_[group]) {
      for (int consumer : graph_.consumers(member)) {
        int next = group_of_[consumer];
        if (next == to) {
          if (group == from && without_direct) continue;
          return true;
        }
        if (seen[next] || members_[next].front() > last) continue;
        seen[next] = 1;
        stack.push_back(next);
      }
    }
  }
  return false;
}

bool Quotient::CanMerge(int a, int b) const { return !Reaches(a, b, true) && !Reaches(b, a, true); }

void Quotient::Merge(int into, int from) {
  for (int member : members_[from]) group_of_[member] = into;
  std::vector<int> merged;
  std::merge(members_[into].begin(), members_[into].end(), members_[from].begin(), members_[from].end(),
             std::back_inserter(merged));
  members_[into] = std::move(merged);
  members_[from].clear();
}

std::vector<int> Quotient::TopologicalOrder() const {
  std::vector<int> waits_for(members_.size(), 0);
  std::vector<std::vector<int>> next(members_.size());
  for (int group = 0; group < static_cast<int>(members_.size()); ++group) {
    std::vector<int>& successors = next[group];
    for (int member : members_[group]) {
      for (int consumer : graph_.consumers(member)) {
        if (group_of_[consumer] != group) successors.push_back(group_of_[consumer]);
      }
    }
    std::sort(successors.begin(), successors.end());
    successors.erase(std::unique(successors.begin(), successors.end()), successors.end());
    for (int successor : successors) ++waits_for[successor];
  }
  // Among those that are ready, the one whose first member comes first: deterministic, and near the model's own order.
  auto later = [&](int a, int b) { return members_[a].front() > members_[b].front(); };
  std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
  for (int group = 0; group < static_cast<int>(members_.size()); ++group) {
    if (!members_[group].empty() && waits_for[group] == 0) ready.push(group);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    int group = ready.top();
    ready.pop();
    order.push_back(group);
    for (int successor : next[group]) {
      if (--waits_for[successor] == 0) ready.push(successor);
    }
  }
  return order;
}

}  // namespace inlay::collage
