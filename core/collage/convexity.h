// Whether sets of positions can be partitions: no path may leave one and come back, alone or through others.
#ifndef INLAY_CORE_COLLAGE_CONVEXITY_H_
#define INLAY_CORE_COLLAGE_CONVEXITY_H_

#include <vector>

#include "core/collage/dataflow_graph.h"

namespace inlay::collage {

// `positions` ascending.
bool IsConvex(const DataflowGraph& graph, const std::vector<int>& positions);

// The graph with each group drawn together to one node. group_of[position] is the group's number.
class Quotient {
 public:
  Quotient(const DataflowGraph& graph, std::vector<int> group_of, int num_groups);

  int group_of(int position) const { return group_of_[position]; }
  const std::vector<int>& members(int group) const { return members_[group]; }  // ascending; empty once merged away

  // Whether drawing a and b together leaves the quotient without a cycle.
  bool CanMerge(int a, int b) const;
  void Merge(int into, int from);

  // The groups in an order in which each comes after those it needs; shorter than their number where there is a cycle.
  std::vector<int> TopologicalOrder() const;

 private:
  bool Reaches(int from, int to, int without_direct) const;

  const DataflowGraph& graph_;
  std::vector<int> group_of_;
  std::vector<std::vector<int>> members_;
};

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_CONVEXITY_H_
