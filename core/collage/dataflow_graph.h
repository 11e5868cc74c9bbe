// DataflowGraph: a function's bindings as a graph of positions, which is what candidates, search and merging work on.
//
// Holds a reference to the function's block, which must outlive it. Read-only after construction; any thread.
#ifndef INLAY_CORE_COLLAGE_DATAFLOW_GRAPH_H_
#define INLAY_CORE_COLLAGE_DATAFLOW_GRAPH_H_

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/ir/ir_module.h"
#include "core/ir/pattern.h"

namespace inlay::collage {

class DataflowGraph {
 public:
  explicit DataflowGraph(const ir::Function& function);

  int size() const { return static_cast<int>(block_.bindings.size()); }
  const ir::Binding& binding(int position) const { return block_.bindings[position]; }
  const ir::Block& block() const { return block_; }
  const ir::DefUse& def_use() const { return def_use_; }
  // Lifted parameters: constant after load. (Nothing in transform_params depends on an argument: all of it is.)
  const std::unordered_set<const ir::Var*>& constants() const { return constants_; }

  const std::vector<int>& producers(int position) const { return producers_[position]; }  // distinct, ascending
  const std::vector<int>& consumers(int position) const { return consumers_[position]; }  // distinct, ascending
  bool is_result(int position) const { return is_result_[position]; }

  // Operator calls must be covered by candidates. A TupleGetItem goes with the call that makes its tuple; everything
  // else (function calls, Ifs) stays as it is.
  bool needs_cover(int position) const { return binding(position).kind == ir::Binding::Kind::kCall; }

  // `positions` plus the TupleGetItems of every tuple that a member makes; sorted.
  std::vector<int> WithTupleItems(std::vector<int> positions) const;

 private:
  const ir::Block& block_;
  std::unordered_set<const ir::Var*> constants_;
  ir::DefUse def_use_;
  std::vector<std::vector<int>> producers_;
  std::vector<std::vector<int>> consumers_;
  std::vector<bool> is_result_;
};

}  // namespace inlay::collage

#endif  // INLAY_CORE_COLLAGE_DATAFLOW_GRAPH_H_
