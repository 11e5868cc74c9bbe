#include "core/artifact/vm_lowering.h"

#include <algorithm>
#include <list>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/artifact/memory_planner.h"
#include "core/artifact/micro_batch_run.h"
#include "core/artifact/open_shapes_builder.h"
#include "core/artifact/slot_planner.h"
#include "core/base/status_macros.h"
#include "core/ir/batch.h"
#include "core/ir/control_flow.h"
#include "core/ir/dim_expr.h"
#include "core/ir/required_extents.h"

namespace inlay::artifact {
namespace {

using ir::Binding;
using ir::Block;
using ir::Operand;
using runtime::RegisterKind;
using runtime::VmFunction;
using runtime::VmOp;
using runtime::VmRegister;

// What is common to all functions: the values that loading makes, the kernel calls, the functions' numbers.
class ModuleLowering {
 public:
  ModuleLowering(const ir::IRModule& module, const FunctionTable& functions, const std::vector<Update>& updates)
      : module_(module), functions_(functions), updates_(updates) {}

  absl::StatusOr<LoweredModule> Run();

  const ir::IRModule& module() const { return module_; }
  const FunctionTable& functions() const { return functions_; }
  CallGraph& graph() { return out_.graph; }

  // Of a function that is no partition; it will be lowered.
  int64_t IndexOf(const std::string& name) {
    const auto [it, fresh] = index_.insert({name, static_cast<int64_t>(order_.size())});
    if (fresh) order_.push_back({name, &module_.functions.at(name), {}, 1});
    return it->second;
  }
  // Of a function of the lowering's own, which is called so often in turns. `values`: of its parameters, those that are
  // there after load; else -1.
  int64_t Add(ir::Function function, std::vector<int> values, const ir::Dim& turns) {
    own_.push_back(std::move(function));
    order_.push_back({absl::StrCat("main_rows_", own_.size()), &own_.back(), std::move(values), turns});
    return static_cast<int64_t>(order_.size()) - 1;
  }
  int64_t PackedIndex(const std::string& name) {
    std::vector<std::string>& names = out_.bytecode.packed;
    const auto it = std::find(names.begin(), names.end(), name);
    if (it != names.end()) return it - names.begin();
    names.push_back(name);
    return static_cast<int64_t>(names.size()) - 1;
  }
  int ValueOf(const ir::ConstantPtr& constant) {
    const auto [it, fresh] = values_.insert({constant.get(), static_cast<int>(graph().values.size())});
    if (fresh) {
      auto& list = constant->is_weight ? graph().params : graph().literals;
      graph().values.push_back({constant->is_weight ? Value::Kind::kParam : Value::Kind::kLiteral,
                                constant->type.NumBytes(), static_cast<int>(list.size())});
      list.push_back(constant);
    }
    return it->second;
  }
  void Read(int value) { out_.constants_read.push_back(value); }
  OpenShapesBuilder& shapes() { return shapes_; }
  absl::StatusOr<std::vector<runtime::TensorType>> RuntimeTypes(const ir::Type& type, absl::string_view where) {
    std::vector<ir::TensorType> leaves;
    AppendLeaves(type, &leaves);
    std::vector<runtime::TensorType> types;
    for (const ir::TensorType& leaf : leaves) {
      INLAY_ASSIGN_OR_RETURN(types.emplace_back(), Annotate(shapes_.TypeOf(leaf), where));
    }
    return types;
  }
  // What an open tensor is guessed to take, to choose who shares memory with whom.
  int64_t GuessBytes(const ir::Dim& elements) const {
    auto hint = [this](const std::string& name) { return module_.config().DimHint(name); };
    return ir::EvaluateDim(elements, hint).value_or(0);
  }

 private:
  // transform_params, lowered as for the graph executor: a main that returns what is lifted.
  absl::StatusOr<std::vector<int>> LowerLoad() {
    const ir::Function& main = module_.functions.at("main");
    ir::IRModule load = module_;
    ir::Function& stub = load.functions["main"];
    stub.body.bindings.clear();
    stub.body.results.clear();
    const int64_t lifted = main.attrs.IntOr("num_lifted_params", 0);
    if (lifted < 0 || lifted > static_cast<int64_t>(main.params.size())) {
      return absl::InvalidArgumentError("main takes fewer parameters than were lifted");
    }
    for (size_t i = main.params.size() - lifted; i < main.params.size(); ++i) {
      stub.body.results.emplace_back(main.params[i]);
    }
    INLAY_ASSIGN_OR_RETURN(out_.graph, BuildCallGraph(load, functions_, /*open_inputs=*/true));
    for (GraphCall& call : out_.graph.load_calls) {
      for (const auto& [name, body] : load.functions) {
        if (call.body != &body) continue;
        call.body = &module_.functions.at(name);  // `load` goes
        break;
      }
    }
    std::vector<int> values = std::move(out_.graph.results);
    out_.graph.results.clear();
    out_.graph.result_types.clear();
    for (size_t i = 0; i < out_.graph.values.size(); ++i) {
      const Value& value = out_.graph.values[i];
      if (value.kind == Value::Kind::kParam) values_[out_.graph.params[value.index].get()] = static_cast<int>(i);
      if (value.kind == Value::Kind::kLiteral) values_[out_.graph.literals[value.index].get()] = static_cast<int>(i);
    }
    return values;
  }

  const ir::IRModule& module_;
  const FunctionTable& functions_;
  const std::vector<Update>& updates_;
  LoweredModule out_;
  OpenShapesBuilder shapes_;
  struct Pending {
    std::string name;
    const ir::Function* function;
    std::vector<int> values;
    ir::Dim turns = 1;
  };
  std::map<std::string, int64_t> index_;
  std::vector<Pending> order_;
  std::list<ir::Function> own_;
  std::unordered_map<const ir::Constant*, int> values_;
};

class FunctionLowering {
 public:
  FunctionLowering(ModuleLowering* module, const ir::Function& function, ir::Dim turns)
      : module_(*module), function_(function), turns_(std::move(turns)) {}

  // `values`: of the parameters that are there after load, -1 for others; empty: there are none. `updates`: of main's
  // results, else empty.
  absl::StatusOr<VmFunction> Run(const std::string& name, const std::vector<int>& values,
                                 const std::vector<Update>& updates) {
    out_.name = name;
    for (size_t i = 0; i < function_.params.size(); ++i) {
      const ir::VarPtr& var = function_.params[i];
      INLAY_ASSIGN_OR_RETURN(auto types, module_.RuntimeTypes(var->type, absl::StrCat("parameter '", var->name, "'")));
      if (!values.empty() && values[i] >= 0) {
        leaves_[var.get()] = {Leaf{-1, values[i], types[0]}};
      } else {
        leaves_[var.get()] = {Leaf{NewRegister(RegisterKind::kParam, types[0]), -1, types[0]}};
        ++out_.num_params;
      }
    }
    std::vector<int> results;
    for (const Operand& result : function_.body.results) {
      INLAY_ASSIGN_OR_RETURN(auto types, module_.RuntimeTypes(result.type(), "a result"));
      for (auto& type : types) results.push_back(NewRegister(RegisterKind::kResult, std::move(type)));
    }
    out_.num_results = static_cast<int32_t>(results.size());
    INLAY_RETURN_IF_ERROR(LowerBlock(function_.body, results, updates));
    Emit({static_cast<int64_t>(VmOp::kReturn)});
    INLAY_RETURN_IF_ERROR(AssignFrame());
    return std::move(out_);
  }

 private:
  // A tensor: in a register, or a value that is there after load (which gets a register where it is used).
  struct Leaf {
    int reg = -1;
    int value = -1;
    runtime::TensorType type;
  };
  using Leaves = std::vector<Leaf>;
  struct Lifetime {
    int first = -1, last = -1;
  };

  int NewRegister(RegisterKind kind, runtime::TensorType type, int64_t at = 0) {
    if (kind == RegisterKind::kFrame && type.is_open()) kind = RegisterKind::kSlot;
    out_.registers.push_back({kind, at, std::move(type)});
    lifetimes_.emplace_back();
    return static_cast<int>(out_.registers.size()) - 1;
  }

  // Called while the instruction that uses the register is the next one to be emitted.
  int64_t Touch(int reg) {
    Lifetime& life = lifetimes_[reg];
    life.last = position_;
    if (life.first < 0) life.first = position_;
    // What is swapped lies in either's memory.
    if (const auto partner = swapped_with_.find(reg); partner != swapped_with_.end()) {
      lifetimes_[partner->second].last = position_;
    }
    return reg;
  }

  int64_t Use(const Leaf& leaf) {
    if (leaf.value < 0) return Touch(leaf.reg);
    const auto [it, fresh] = constants_.insert({leaf.value, 0});
    if (fresh) {
      it->second = NewRegister(RegisterKind::kBuffer, leaf.type, leaf.value);
      module_.Read(leaf.value);
    }
    return it->second;
  }

  // Gives the place of its first word.
  size_t Emit(std::vector<int64_t> words) {
    const size_t at = out_.code.size();
    out_.code.insert(out_.code.end(), words.begin(), words.end());
    ++position_;
    return at;
  }
  int64_t Here() const { return static_cast<int64_t>(out_.code.size()); }

  absl::StatusOr<Leaves> LeavesOf(const Operand& operand, absl::string_view where) {
    if (!operand.is_var()) {
      INLAY_ASSIGN_OR_RETURN(auto types, module_.RuntimeTypes(operand.type(), where));
      return Leaves{{-1, module_.ValueOf(operand.constant), types[0]}};
    }
    const auto it = leaves_.find(operand.var.get());
    if (it == leaves_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", operand.var->name, "' is used before it is defined: ", where));
    }
    return it->second;
  }

  absl::StatusOr<Leaves> ArgsOf(const Binding& binding) {
    Leaves all;
    for (const Operand& arg : binding.args) {
      INLAY_ASSIGN_OR_RETURN(Leaves leaves, LeavesOf(arg, ir::Describe(binding)));
      all.insert(all.end(), leaves.begin(), leaves.end());
    }
    return all;
  }

  // Registers for what a binding makes: where its block's result wants it, else in the frame.
  absl::StatusOr<std::vector<int>> Define(const Binding& binding) {
    return Annotate(Define(*binding.var), ir::Describe(binding));
  }
  absl::StatusOr<std::vector<int>> Define(const ir::Var& var) {
    INLAY_ASSIGN_OR_RETURN(auto types, module_.RuntimeTypes(var.type, var.name));
    std::vector<int> registers;
    Leaves leaves;
    for (size_t i = 0; i < types.size(); ++i) {
      const auto wanted = wanted_.find({&var, static_cast<int>(i)});
      registers.push_back(wanted != wanted_.end() ? wanted->second : NewRegister(RegisterKind::kFrame, types[i]));
      leaves.push_back({registers.back(), -1, types[i]});
    }
    leaves_[&var] = std::move(leaves);
    return registers;
  }

  // A result that a call of the block makes is made where it belongs; everything else is copied there.
  // `updates`: of main's results, else empty.
  absl::Status LowerBlock(const Block& block, const std::vector<int>& results,
                          const std::vector<Update>& updates = {}) {
    std::unordered_map<const ir::Var*, std::pair<const ir::Var*, int>> makers;  // of tensors: the call and which of it
    for (const Binding& binding : block.bindings) {
      if (binding.kind == Binding::Kind::kTuple) continue;
      if (binding.kind != Binding::Kind::kTupleGetItem) {
        makers[binding.var.get()] = {binding.var.get(), 0};
        continue;
      }
      const auto tuple = makers.find(binding.args[0].var.get());
      if (tuple == makers.end() || !binding.args[0].type().is_tuple()) continue;
      std::vector<ir::TensorType> before;
      for (int i = 0; i < binding.index; ++i) AppendLeaves(binding.args[0].type().tuple().fields[i], &before);
      makers[binding.var.get()] = {tuple->second.first, tuple->second.second + static_cast<int>(before.size())};
    }
    const auto update_of = [&](size_t result) { return updates.empty() ? Update() : updates[result]; };
    size_t at = 0;
    for (size_t i = 0; i < block.results.size(); ++i) {
      const Operand& result = block.results[i];
      std::vector<ir::TensorType> types;
      AppendLeaves(result.type(), &types);
      const auto maker = result.is_var() && result.var->type.is_tensor() ? makers.find(result.var.get()) : makers.end();
      if (maker != makers.end() && update_of(i).direct) wanted_.insert({maker->second, results[at]});
      at += types.size();
    }
    for (size_t b = 0; b < block.bindings.size(); ++b) {
      if (!block.bindings[b].attrs.Has(ir::kMicroBatches)) {
        INLAY_RETURN_IF_ERROR(LowerBinding(block.bindings[b]));
        continue;
      }
      INLAY_ASSIGN_OR_RETURN(MicroBatchRun run, MicroBatchRunAt(module_.module(), block, b));
      b = run.end - 1;
      INLAY_RETURN_IF_ERROR(LowerRun(std::move(run)));
    }
    at = 0;
    std::vector<std::pair<Leaf, int>> later;  // into inputs
    for (size_t i = 0; i < block.results.size(); ++i) {
      INLAY_ASSIGN_OR_RETURN(Leaves leaves, LeavesOf(block.results[i], "a result"));
      for (Leaf leaf : leaves) {
        if (update_of(i).staged) {
          const int copy = NewRegister(RegisterKind::kFrame, leaf.type);
          Copy(leaf, copy);
          leaf = {copy, -1, leaf.type};
        }
        update_of(i).input >= 0 ? later.push_back({leaf, results[at++]}) : Copy(leaf, results[at++]);
      }
    }
    for (const auto& [from, to] : later) Copy(from, to);
    return absl::OkStatus();
  }

  void Copy(const Leaf& from, int to) {
    if (from.reg == to || from.type.NumBytes() == 0) return;
    const int64_t source = Use(from);
    Emit({static_cast<int64_t>(VmOp::kCopy), source, Touch(to)});
  }

  absl::Status LowerBinding(const Binding& binding) {
    switch (binding.kind) {
      case Binding::Kind::kCallFunction: {
        const auto callee = module_.module().functions.find(binding.callee);
        if (callee == module_.module().functions.end()) {
          return absl::InvalidArgumentError(absl::StrCat("no function ", binding.callee, ": ", ir::Describe(binding)));
        }
        if (callee->second.attrs.StringOr("backend", "").empty()) {
          return ir::IsWhile(binding) ? LowerWhile(binding) : LowerCall(binding);
        }
        return LowerKernel(binding, callee->second);
      }
      case Binding::Kind::kTuple: {
        INLAY_ASSIGN_OR_RETURN(leaves_[binding.var.get()], ArgsOf(binding));
        return absl::OkStatus();
      }
      case Binding::Kind::kTupleGetItem: {
        INLAY_ASSIGN_OR_RETURN(Leaves leaves, ArgsOf(binding));
        const ir::Type tuple = binding.args[0].type();
        std::vector<ir::TensorType> before, item;
        for (int i = 0; i < binding.index; ++i) AppendLeaves(tuple.tuple().fields[i], &before);
        AppendLeaves(tuple.tuple().fields[binding.index], &item);
        leaves_[binding.var.get()] = {leaves.begin() + before.size(), leaves.begin() + before.size() + item.size()};
        return absl::OkStatus();
      }
      case Binding::Kind::kIf:
        return LowerIf(binding);
      case Binding::Kind::kCallPacked:
        return LowerPacked(binding);
      case Binding::Kind::kCall:
        return absl::InvalidArgumentError(
            absl::StrCat("not in a partition, so nothing implements it: ", ir::Describe(binding)));
    }
    return absl::OkStatus();
  }

  // The module's extents are 0 or more in every run: those within the partition as well, and what its calls need to be.
  absl::Status RequireExtents(const ir::Function& partition) {
    for (const Binding& call : partition.body.bindings) {
      std::vector<ir::TensorType> results;
      AppendLeaves(call.var->type, &results);
      INLAY_ASSIGN_OR_RETURN(std::vector<ir::Dim> required, ir::RequiredExtents(call));
      for (const ir::TensorType& type : results) required.insert(required.end(), type.dims.begin(), type.dims.end());
      for (const ir::Dim& dim : required) {
        if (!dim.is_static()) INLAY_RETURN_IF_ERROR(module_.shapes().ExtentOf(dim).status());
      }
    }
    return absl::OkStatus();
  }

  absl::Status LowerKernel(const Binding& binding, const ir::Function& partition) {
    INLAY_RETURN_IF_ERROR(RequireExtents(partition));
    const std::string symbol = partition.attrs.StringOr("symbol", binding.callee);
    GraphCall call;
    INLAY_ASSIGN_OR_RETURN(call.function, module_.functions().Find(symbol, partition));
    call.body = &partition;
    call.name = binding.location;
    call.turns = turns_;
    INLAY_ASSIGN_OR_RETURN(Leaves args, ArgsOf(binding));
    if (args.size() != partition.params.size()) {
      return absl::InvalidArgumentError(absl::StrCat("wrong number of arguments: ", ir::Describe(binding)));
    }
    INLAY_ASSIGN_OR_RETURN(std::vector<int> results, Define(binding));
    if (static_cast<int>(results.size()) != call.function->outputs_size()) {
      return absl::InvalidArgumentError(absl::StrCat("wrong number of results: ", ir::Describe(binding)));
    }
    // Calls all of whose results have no elements are left out (kernel_open sees to it in a run).
    if (std::all_of(results.begin(), results.end(),
                    [&](int reg) { return out_.registers[reg].type.NumBytes() == 0; })) {
      return absl::OkStatus();
    }
    for (const std::string& name : call.function->symbols()) {
      INLAY_ASSIGN_OR_RETURN(call.symbols.emplace_back(), module_.shapes().RegisterOf(name));
    }
    const ir::Dim workspace = ir::CanonicalDim(call.function->workspace_expr());
    if (!call.function->workspace_expr().empty()) {
      INLAY_ASSIGN_OR_RETURN(int64_t extent, module_.shapes().ExtentOf(workspace));
      call.workspace_extent = static_cast<int>(extent);
    }
    const bool open = !call.symbols.empty();
    const auto& gone = call.function->init_only_inputs();
    std::vector<int64_t> words = {static_cast<int64_t>(open ? VmOp::kOpenKernel : VmOp::kKernel),
                                  static_cast<int64_t>(module_.graph().run_calls.size()), -1};
    for (size_t i = 0; i < args.size(); ++i) {
      call.inputs.push_back(args[i].value);
      const bool init_only = std::find(gone.begin(), gone.end(), static_cast<int>(i)) != gone.end();
      words.push_back(init_only ? -1 : Use(args[i]));
    }
    call.outputs.assign(results.size(), -1);
    for (int reg : results) words.push_back(Touch(reg));
    const int position = position_;
    const size_t at = Emit(std::move(words));
    if (call.function->workspace_bytes() > 0) {
      workspaces_.push_back({at + 2, {call.function->workspace_bytes(), position, position}});
    }
    if (call.workspace_extent >= 0) {
      open_workspaces_.push_back({at + 2, {module_.GuessBytes(workspace), position, position}});
    }
    module_.graph().run_calls.push_back(std::move(call));
    return absl::OkStatus();
  }

  absl::Status LowerCall(const Binding& binding) {
    INLAY_ASSIGN_OR_RETURN(Leaves args, ArgsOf(binding));
    INLAY_ASSIGN_OR_RETURN(std::vector<int> results, Define(binding));
    std::vector<int64_t> words = {static_cast<int64_t>(VmOp::kCall), module_.IndexOf(binding.callee)};
    for (const Leaf& arg : args) words.push_back(Use(arg));
    for (int reg : results) words.push_back(Touch(reg));
    Emit(std::move(words));
    return absl::OkStatus();
  }

  absl::Status LowerRun(MicroBatchRun run) {
    std::vector<int> values;
    std::vector<int64_t> registers;
    for (size_t i = 0; i < run.args.size(); ++i) {
      INLAY_ASSIGN_OR_RETURN(const Leaves leaves, LeavesOf(run.args[i], "micro-batches"));
      const bool whole = run.function.params[i]->type == run.args[i].type();
      values.push_back(whole ? leaves[0].value : -1);
      if (values.back() < 0) registers.push_back(Use(leaves[0]));
    }
    for (const ir::VarPtr& result : run.results) {
      INLAY_ASSIGN_OR_RETURN(const std::vector<int> made, Define(*result));
      for (int reg : made) registers.push_back(Touch(reg));
    }
    int64_t turns = run.turns.value();
    if (!run.turns.is_static()) {
      INLAY_ASSIGN_OR_RETURN(turns, module_.shapes().ExtentOf(run.turns));
      turns = -1 - turns;
    }
    std::vector<int64_t> words = {static_cast<int64_t>(VmOp::kCallInTurns),
                                  module_.Add(std::move(run.function), std::move(values), run.turns), turns};
    words.insert(words.end(), registers.begin(), registers.end());
    Emit(std::move(words));
    return absl::OkStatus();
  }

  // Two registers for each value that a turn hands to the next: the call reads one and writes the other, then they
  // change places. All of them live as long as the loop, so that it does not matter which memory is whose.
  absl::Status LowerWhile(const Binding& binding) {
    INLAY_ASSIGN_OR_RETURN(Leaves args, ArgsOf(binding));
    INLAY_ASSIGN_OR_RETURN(auto types, module_.RuntimeTypes(binding.var->type, ir::Describe(binding)));
    std::vector<int> now, next;
    for (const auto& type : types) {
      now.push_back(NewRegister(RegisterKind::kFrame, type));
      next.push_back(NewRegister(RegisterKind::kFrame, type));
      swapped_with_[now.back()] = next.back();
    }
    auto touch_all = [&] {
      for (size_t i = 0; i < now.size(); ++i) Touch(now[i]), Touch(next[i]);
      for (size_t i = now.size(); i < args.size(); ++i) Use(args[i]);
    };
    touch_all();
    for (size_t i = 0; i < now.size(); ++i) Copy(args[i], now[i]);
    const int64_t start = Here();
    const size_t branch = Emit({static_cast<int64_t>(VmOp::kBranchIfNot), Touch(now[0]), 0});
    std::vector<int64_t> words = {static_cast<int64_t>(VmOp::kCall), module_.IndexOf(binding.callee)};
    words.insert(words.end(), now.begin(), now.end());
    for (size_t i = now.size(); i < args.size(); ++i) words.push_back(Use(args[i]));
    words.insert(words.end(), next.begin(), next.end());
    Emit(std::move(words));
    for (size_t i = 0; i < now.size(); ++i) Emit({static_cast<int64_t>(VmOp::kSwap), now[i], next[i]});
    touch_all();
    Emit({static_cast<int64_t>(VmOp::kJump), start});
    out_.code[branch + 2] = Here();
    Leaves leaves;
    for (size_t i = 0; i < now.size(); ++i) {
      leaves.push_back({now[i], -1, types[i]});
      const auto wanted = wanted_.find({binding.var.get(), static_cast<int>(i)});
      if (wanted == wanted_.end()) continue;
      Copy(leaves[i], wanted->second);
      leaves[i].reg = wanted->second;
    }
    leaves_[binding.var.get()] = std::move(leaves);
    return absl::OkStatus();
  }

  absl::Status LowerIf(const Binding& binding) {
    INLAY_ASSIGN_OR_RETURN(Leaves condition, ArgsOf(binding));
    INLAY_ASSIGN_OR_RETURN(std::vector<int> results, Define(binding));
    const size_t branch = Emit({static_cast<int64_t>(VmOp::kBranchIfNot), Use(condition[0]), 0});
    INLAY_RETURN_IF_ERROR(LowerBlock(binding.blocks[0], results));
    const size_t jump = Emit({static_cast<int64_t>(VmOp::kJump), 0});
    out_.code[branch + 2] = Here();
    INLAY_RETURN_IF_ERROR(LowerBlock(binding.blocks[1], results));
    out_.code[jump + 1] = Here();
    return absl::OkStatus();
  }

  absl::Status LowerPacked(const Binding& binding) {
    INLAY_ASSIGN_OR_RETURN(Leaves args, ArgsOf(binding));
    INLAY_ASSIGN_OR_RETURN(std::vector<int> results, Define(binding));
    std::vector<int64_t> words = {static_cast<int64_t>(VmOp::kCallPacked), module_.PackedIndex(binding.callee),
                                  static_cast<int64_t>(args.size()), static_cast<int64_t>(results.size())};
    for (const Leaf& arg : args) words.push_back(Use(arg));
    for (int reg : results) words.push_back(Touch(reg));
    Emit(std::move(words));
    return absl::OkStatus();
  }

  // Registers and workspaces get their places by their lifetimes, counted in instructions in the order of the code: a
  // branch not taken does no harm, and what a loop keeps lives from its begin to its end.
  absl::Status AssignFrame() {
    std::vector<MemoryRequest> requests;
    std::vector<int64_t*> places;
    for (size_t i = 0; i < out_.registers.size(); ++i) {
      VmRegister& reg = out_.registers[i];
      if (reg.kind != RegisterKind::kFrame) continue;
      const Lifetime& life = lifetimes_[i];
      if (life.first < 0) continue;  // nothing is ever in it
      requests.push_back({reg.type.NumBytes(), life.first, life.last});
      places.push_back(&reg.at);
    }
    for (const Workspace& workspace : workspaces_) {
      requests.push_back(workspace.request);
      places.push_back(&out_.code[workspace.word]);
    }
    INLAY_ASSIGN_OR_RETURN(MemoryAssignment assignment, AssignMemory(requests));
    for (size_t i = 0; i < places.size(); ++i) *places[i] = assignment.offsets[i];
    out_.frame_bytes = assignment.total_bytes;
    AssignOpen();
    return absl::OkStatus();
  }

  void AssignOpen() {
    std::vector<MemoryRequest> requests;
    std::vector<int> registers;
    for (size_t i = 0; i < out_.registers.size(); ++i) {
      const Lifetime& life = lifetimes_[i];
      if (out_.registers[i].kind != RegisterKind::kSlot) continue;
      registers.push_back(static_cast<int>(i));
      // What nothing is ever in shares with anything.
      requests.push_back({GuessBytes(out_.registers[i].type), life.first, life.first < 0 ? -2 : life.last});
    }
    for (const Workspace& workspace : open_workspaces_) requests.push_back(workspace.request);
    const SlotAssignment assignment = AssignSlots(requests);
    for (size_t i = 0; i < registers.size(); ++i) out_.registers[registers[i]].at = assignment.slots[i];
    for (size_t i = 0; i < open_workspaces_.size(); ++i) {
      out_.code[open_workspaces_[i].word] = -2 - assignment.slots[registers.size() + i];
    }
    out_.num_slots = assignment.num_slots;
  }

  int64_t GuessBytes(const runtime::TensorType& type) const {
    int64_t bytes = runtime::ByteSize(type.dtype);
    for (int64_t extent : type.shape) {
      if (extent < 0) extent = module_.GuessBytes(ir::CanonicalDim(module_.shapes().NameOf(-1 - extent)));
      if (__builtin_mul_overflow(bytes, extent, &bytes)) return INT64_MAX;
    }
    return bytes;
  }

  struct Workspace {
    size_t word;  // of the code: where its offset goes
    MemoryRequest request;
  };

  ModuleLowering& module_;
  const ir::Function& function_;
  const ir::Dim turns_;
  VmFunction out_;
  int position_ = 0;                 // of the next instruction, counted in instructions
  std::vector<Lifetime> lifetimes_;  // of registers
  std::vector<Workspace> workspaces_, open_workspaces_;
  std::unordered_map<const ir::Var*, Leaves> leaves_;
  std::map<std::pair<const ir::Var*, int>, int> wanted_;
  std::map<int, int> constants_;  // registers of values
  std::unordered_map<int, int> swapped_with_;
};

absl::StatusOr<LoweredModule> ModuleLowering::Run() {
  const auto main = module_.functions.find("main");
  if (main == module_.functions.end()) return absl::InvalidArgumentError("the module has no function main");
  INLAY_ASSIGN_OR_RETURN(std::vector<int> lifted, LowerLoad());
  const ir::Function& function = main->second;
  INLAY_RETURN_IF_ERROR(
      shapes_.AddInputs({function.params.begin(), function.params.end() - static_cast<std::ptrdiff_t>(lifted.size())}));
  // Before those that follow from them, so that a run which breaks one is told so.
  INLAY_ASSIGN_OR_RETURN(const std::vector<ir::Dim> required, ir::RequiredExtents(function));
  for (const ir::Dim& dim : required) INLAY_RETURN_IF_ERROR(shapes_.ExtentOf(dim).status());
  for (const Operand& result : function.body.results) AppendLeaves(result.type(), &graph().result_types);
  IndexOf("main");
  order_[0].values.assign(function.params.size() - lifted.size(), -1);
  order_[0].values.insert(order_[0].values.end(), lifted.begin(), lifted.end());
  for (size_t i = 0; i < order_.size(); ++i) {
    const Pending pending = order_[i];
    const std::string& name = pending.name;
    absl::StatusOr<VmFunction> lowered = FunctionLowering(this, *pending.function, pending.turns)
                                             .Run(name, pending.values, i == 0 ? updates_ : std::vector<Update>());
    if (i == 0) INLAY_RETURN_IF_ERROR(lowered.status());
    INLAY_RETURN_IF_ERROR(Annotate(lowered.status(), absl::StrCat("function '", name, "'")));
    out_.bytecode.functions.push_back(*std::move(lowered));
  }
  const VmFunction& lowered_main = out_.bytecode.functions[0];
  for (int32_t i = 0; i < lowered_main.num_params + lowered_main.num_results; ++i) {
    (i < lowered_main.num_params ? out_.inputs : out_.outputs).push_back(lowered_main.registers[i].type);
  }
  out_.shapes = shapes_.Take();
  return std::move(out_);
}

}  // namespace

absl::StatusOr<LoweredModule> LowerToBytecode(const ir::IRModule& partitioned, const FunctionTable& functions,
                                              const std::vector<Update>& updates) {
  return ModuleLowering(partitioned, functions, updates).Run();
}

}  // namespace inlay::artifact
