#include "core/collage/dataflow_graph.h"

#include <algorithm>

namespace inlay::collage {
namespace {

void AddUses(const ir::Binding& binding, const std::unordered_map<const ir::Var*, int>& definer,
             std::vector<int>* uses) {
  auto add = [&](const ir::Operand& operand) {
    if (!operand.is_var()) return;
    auto found = definer.find(operand.var.get());
    if (found != definer.end()) uses->push_back(found->second);
  };
  for (const ir::Operand& arg : binding.args) add(arg);
  for (const ir::Block& nested : binding.blocks) {
    for (const ir::Binding& inner : nested.bindings) AddUses(inner, definer, uses);
    for (const ir::Operand& result : nested.results) add(result);
  }
}

void SortUnique(std::vector<int>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

std::unordered_set<const ir::Var*> LiftedParams(const ir::Function& function) {
  std::unordered_set<const ir::Var*> lifted;
  const int64_t count = function.attrs.IntOr("num_lifted_params", 0);
  for (size_t i = function.params.size() - count; i < function.params.size(); ++i) {
    lifted.insert(function.params[i].get());
  }
  return lifted;
}

}  // namespace

DataflowGraph::DataflowGraph(const ir::Function& function)
    : block_(function.body),
      constants_(LiftedParams(function)),
      def_use_(block_, constants_),
      producers_(block_.bindings.size()),
      consumers_(block_.bindings.size()),
      is_result_(block_.bindings.size(), false) {
  const ir::Block& block = block_;
  std::unordered_map<const ir::Var*, int> definer;
  definer.reserve(block.bindings.size());
  for (int i = 0; i < size(); ++i) {
    AddUses(block.bindings[i], definer, &producers_[i]);
    SortUnique(&producers_[i]);
    for (int producer : producers_[i]) consumers_[producer].push_back(i);
    definer[block.bindings[i].var.get()] = i;
  }
  for (const ir::Operand& result : block.results) {
    if (!result.is_var()) continue;
    auto found = definer.find(result.var.get());
    if (found != definer.end()) is_result_[found->second] = true;
  }
}

std::vector<int> DataflowGraph::WithTupleItems(std::vector<int> positions) const {
  const size_t calls = positions.size();
  for (size_t i = 0; i < calls; ++i) {
    if (!binding(positions[i]).var->type.is_tuple()) continue;
    for (int consumer : consumers_[positions[i]]) {
      if (binding(consumer).kind == ir::Binding::Kind::kTupleGetItem) positions.push_back(consumer);
    }
  }
  SortUnique(&positions);
  return positions;
}

}  // namespace inlay::collage
