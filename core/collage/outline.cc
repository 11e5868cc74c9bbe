#include "core/collage/outline.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/backend/backend.h"
#include "core/ir/structural_hash.h"

namespace inlay::collage {
namespace {

class Outliner {
 public:
  Outliner(const DataflowGraph& graph, const std::vector<int>& positions) : graph_(graph), positions_(positions) {}

  Outlined Run() {
    for (int position : positions_) inside_.insert(graph_.binding(position).var.get());
    for (int position : positions_) CopyBinding(graph_.binding(position));
    for (int position : positions_) {
      if (IsUsedOutside(position)) {
        const ir::VarPtr& var = graph_.binding(position).var;
        outlined_.results.push_back(var);
        outlined_.function.body.results.push_back(renamed_.at(var.get()));
      }
    }
    outlined_.function.attrs.Set(backend::kConstantParams, constant_params_);
    return std::move(outlined_);
  }

 private:
  void CopyBinding(const ir::Binding& binding) {
    ir::Binding copy = binding;
    for (ir::Operand& arg : copy.args) arg = Inside(arg);
    auto var = ir::MakeVar(binding.var->name, binding.var->type);
    renamed_.emplace(binding.var.get(), var);
    copy.var = std::move(var);
    outlined_.function.body.bindings.push_back(std::move(copy));
  }

  ir::Operand Inside(const ir::Operand& operand) {
    if (operand.is_literal()) return operand;
    const void* key = operand.is_var() ? static_cast<const void*>(operand.var.get()) : operand.constant.get();
    auto found = renamed_.find(key);
    if (found != renamed_.end()) return found->second;
    const bool constant = operand.is_weight() || graph_.constants().count(operand.var.get()) > 0;
    std::string name = operand.is_var() ? operand.var->name : operand.constant->name;
    auto param = ir::MakeVar(std::move(name), operand.type());
    if (constant) constant_params_.push_back(static_cast<int64_t>(outlined_.function.params.size()));
    outlined_.function.params.push_back(param);
    outlined_.args.push_back(operand);
    renamed_.emplace(key, param);
    return param;
  }

  bool IsUsedOutside(int position) const {
    if (graph_.binding(position).var->type.is_tuple()) return false;  // its TupleGetItems are members
    if (graph_.is_result(position)) return true;
    for (int consumer : graph_.consumers(position)) {
      if (inside_.count(graph_.binding(consumer).var.get()) == 0) return true;
    }
    return false;
  }

  const DataflowGraph& graph_;
  const std::vector<int>& positions_;
  std::unordered_set<const ir::Var*> inside_;
  std::unordered_map<const void*, ir::VarPtr> renamed_;
  std::vector<int64_t> constant_params_;
  Outlined outlined_;
};

}  // namespace

Outlined Outline(const DataflowGraph& graph, const std::vector<int>& positions) {
  return Outliner(graph, positions).Run();
}

std::string PartitionName(const ir::Function& partition, const target::CompilationConfig& config) {
  const std::string backend = partition.attrs.StringOr("backend", "");
  Hasher hasher;
  hasher.UpdateField(ir::StructuralHash(partition).bytes());
  hasher.UpdateField(target::BackendOfVariant(backend));
  hasher.UpdateField(config.target().ToString()).UpdateField(config.CodegenTarget(backend).ToString());
  return absl::StrCat("inlay_", hasher.Finish().hex().substr(0, 32));
}

}  // namespace inlay::collage
