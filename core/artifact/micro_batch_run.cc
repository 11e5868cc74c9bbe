#include "core/artifact/micro_batch_run.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ir/batch.h"

namespace inlay::artifact {
namespace {

using ir::Binding;

class RunOutliner {
 public:
  RunOutliner(const ir::IRModule& module, const ir::Block& block) : module_(module), block_(block) {}

  absl::StatusOr<MicroBatchRun> Run(size_t begin) {
    run_.turns = ir::MicroBatchesOf(block_.bindings[begin]);
    run_.end = EndOfMicroBatches(block_, begin);
    for (size_t b = begin; b < run_.end; ++b) {
      const Binding& binding = block_.bindings[b];
      const bool item = binding.kind == Binding::Kind::kTupleGetItem && made_.count(binding.args[0].var.get()) > 0;
      INLAY_RETURN_IF_ERROR(item ? AddItem(binding) : AddCall(binding));
    }
    AddResults(begin);
    return std::move(run_);
  }

 private:
  absl::Status AddCall(const Binding& binding) {
    const auto found = module_.functions.find(binding.callee);
    if (binding.kind != Binding::Kind::kCallFunction || found == module_.functions.end() ||
        found->second.params.size() != binding.args.size() || found->second.body.results.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("micro-batches of no partition: ", ir::Describe(binding)));
    }
    const ir::Function& callee = found->second;
    Binding call = binding;
    call.attrs.Erase(ir::kMicroBatches);
    for (size_t i = 0; i < binding.args.size(); ++i) {
      if (!binding.args[i].is_var()) continue;
      const ir::VarPtr& arg = binding.args[i].var;
      const auto made = made_.find(arg.get());
      call.args[i] = made != made_.end() ? made->second : ParamFor(arg, callee.params[i]->type);
    }
    std::vector<ir::Type> types;
    for (const ir::Operand& result : callee.body.results) types.push_back(result.type());
    ir::Type type = binding.var->type.is_tensor() ? types[0] : ir::Type(ir::TupleType{std::move(types)});
    call.var = made_[binding.var.get()] = ir::MakeVar(binding.var->name, std::move(type));
    run_.function.body.bindings.push_back(std::move(call));
    return absl::OkStatus();
  }

  absl::Status AddItem(const Binding& binding) {
    Binding item = binding;
    const ir::VarPtr& tuple = made_.at(binding.args[0].var.get());
    if (!tuple->type.is_tuple() || binding.index < 0 ||
        binding.index >= static_cast<int>(tuple->type.tuple().fields.size())) {
      return absl::InvalidArgumentError(absl::StrCat("no such item: ", ir::Describe(binding)));
    }
    item.args[0] = tuple;
    item.var = made_[binding.var.get()] = ir::MakeVar(binding.var->name, tuple->type.tuple().fields[binding.index]);
    run_.function.body.bindings.push_back(std::move(item));
    return absl::OkStatus();
  }

  // What is made before the run: rows of it, or all of it.
  const ir::VarPtr& ParamFor(const ir::VarPtr& arg, const ir::Type& type) {
    for (const ir::VarPtr& param : params_[arg.get()]) {
      if (param->type == type) return param;
    }
    run_.args.emplace_back(arg);
    run_.function.params.push_back(ir::MakeVar(arg->name, type));
    params_[arg.get()].push_back(run_.function.params.back());
    return run_.function.params.back();
  }

  // What others use of it.
  void AddResults(size_t begin) {
    std::unordered_set<const ir::Var*> used;
    for (size_t b = run_.end; b < block_.bindings.size(); ++b) AddUses(block_.bindings[b], &used);
    for (const ir::Operand& result : block_.results) used.insert(result.var.get());
    for (size_t b = begin; b < run_.end; ++b) {
      const ir::VarPtr& var = block_.bindings[b].var;
      if (used.count(var.get()) == 0) continue;
      run_.results.push_back(var);
      run_.function.body.results.emplace_back(made_.at(var.get()));
    }
  }

  static void AddUses(const Binding& binding, std::unordered_set<const ir::Var*>* used) {
    for (const ir::Operand& arg : binding.args) used->insert(arg.var.get());
    for (const ir::Block& block : binding.blocks) {
      for (const Binding& inner : block.bindings) AddUses(inner, used);
      for (const ir::Operand& result : block.results) used->insert(result.var.get());
    }
  }

  const ir::IRModule& module_;
  const ir::Block& block_;
  MicroBatchRun run_;
  std::unordered_map<const ir::Var*, ir::VarPtr> made_;                 // of the block -> of the function
  std::unordered_map<const ir::Var*, std::vector<ir::VarPtr>> params_;  // by what they are given
};

}  // namespace

size_t EndOfMicroBatches(const ir::Block& block, size_t begin) {
  const ir::Dim count = ir::MicroBatchesOf(block.bindings[begin]);
  std::unordered_set<const ir::Var*> made;
  size_t end = begin;
  for (; end < block.bindings.size(); ++end) {
    const Binding& binding = block.bindings[end];
    const bool item = binding.kind == Binding::Kind::kTupleGetItem && made.count(binding.args[0].var.get()) > 0;
    if (ir::MicroBatchesOf(binding) != count && !item) break;
    made.insert(binding.var.get());
  }
  return end;
}

absl::StatusOr<MicroBatchRun> MicroBatchRunAt(const ir::IRModule& module, const ir::Block& block, size_t begin) {
  return RunOutliner(module, block).Run(begin);
}

}  // namespace inlay::artifact
