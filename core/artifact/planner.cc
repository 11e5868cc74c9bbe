#include "core/artifact/planner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/artifact/call_graph.h"
#include "core/artifact/function_table.h"
#include "core/artifact/memory_planner.h"
#include "core/artifact/updates.h"
#include "core/artifact/vm_lowering.h"
#include "core/base/status_macros.h"
#include "core/ir/work.h"

namespace inlay::artifact {
namespace {

using runtime::Buffer;
using runtime::BufferKind;
using runtime::ExecutionPlan;
using runtime::Step;
using runtime::StepKind;

runtime::TensorType ToRuntime(const ir::TensorType& type) {
  return {static_cast<runtime::DType>(type.dtype), type.Shape()};
}

bool Contains(const google::protobuf::RepeatedField<int32_t>& list, int i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

// Whether one of its libraries uses OpenMP (core/runtime/README.md, Threads).
bool RequiresOpenMp(const proto::StaticLibraryManifest& manifest) {
  return std::any_of(manifest.required_libraries().begin(), manifest.required_libraries().end(),
                     [](const proto::RequiredLibrary& library) { return library.soname() == "libgomp.so.1"; });
}

// When and by whom a value is used. Steps are indices into the final lists of load and run steps.
struct Use {
  int load_first = -1, load_last = -1;
  int run_first = -1, run_last = -1;
  bool read_in_run = false;
};

class PlanBuilder {
 public:
  PlanBuilder(CallGraph graph, std::vector<Update> updates)
      : graph_(std::move(graph)),
        updates_(std::move(updates)),
        uses_(graph_.values.size()),
        output_of_value_(graph_.values.size(), -1) {}

  absl::StatusOr<BuiltPlan> Build(const ir::Function& main, int num_threads, bool openmp) {
    plan_.num_threads = num_threads;
    plan_.openmp = openmp;
    std::vector<runtime::TensorType> inputs, outputs;
    for (const ir::VarPtr& var : graph_.inputs) inputs.push_back(ToRuntime(var->type.tensor()));
    for (const ir::TensorType& type : graph_.result_types) outputs.push_back(ToRuntime(type));
    AddTensors(main, std::move(inputs), std::move(outputs));
    INLAY_RETURN_IF_ERROR(AddLoadSteps());
    AddRunSteps();
    AddResults();
    INLAY_RETURN_IF_ERROR(AssignRegions());
    if (runtime::Status s = plan_.Check(); !s.ok()) {
      return absl::InternalError(absl::StrCat("the planner made a wrong plan: ", s.message()));
    }
    return BuiltPlan{std::move(plan_), std::move(graph_.params)};
  }

  // The run is bytecode's: load steps as ever, run steps that only name what it calls.
  absl::StatusOr<BuiltPlan> BuildVm(const ir::Function& main, LoweredModule lowered, int num_threads, bool openmp) {
    plan_.num_threads = num_threads;
    plan_.openmp = openmp;
    AddTensors(main, lowered.inputs, lowered.outputs);
    INLAY_RETURN_IF_ERROR(AddLoadSteps());
    for (int value : lowered.constants_read) TouchInRun(value);
    for (size_t i = 0; i < graph_.run_calls.size(); ++i) {
      Step site;
      site.function = FunctionIndex(graph_.run_calls[i]);
      site.state = state_of_run_call_[i];
      site.name = graph_.run_calls[i].name;
      site.turns = AmountOf(graph_.run_calls[i].turns);
      plan_.run_steps.push_back(std::move(site));
      args_of_run_step_.emplace_back();
    }
    INLAY_RETURN_IF_ERROR(AssignRegions());
    plan_.bytecode = std::move(lowered.bytecode);
    plan_.shapes = std::move(lowered.shapes);
    if (runtime::Status s = plan_.Check(); !s.ok()) {
      return absl::InternalError(absl::StrCat("the planner made a wrong plan: ", s.message()));
    }
    return BuiltPlan{std::move(plan_), std::move(graph_.params)};
  }

 private:
  // A call's workspace, as a value of its step alone.
  struct Workspace {
    bool load;
    int step;
    int64_t bytes;
  };

  void AddTensors(const ir::Function& main, std::vector<runtime::TensorType> inputs,
                  std::vector<runtime::TensorType> outputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ir::Var& var = *graph_.inputs[i];
      plan_.inputs.push_back({var.name.empty() ? absl::StrCat("input_", i) : var.name, std::move(inputs[i])});
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool named = i < main.result_names.size() && !main.result_names[i].empty();
      plan_.outputs.push_back({named ? main.result_names[i] : absl::StrCat("output_", i), std::move(outputs[i])});
    }
    auto updates = [](const Update& update) { return update.input >= 0; };
    if (std::any_of(updates_.begin(), updates_.end(), updates)) {
      for (const Update& update : updates_) plan_.updates.push_back(update.input);
    }
    std::set<std::string> names = {"__metadata__"};  // safetensors' own
    for (size_t i = 0; i < graph_.params.size(); ++i) {
      const ir::Constant& weight = *graph_.params[i];
      std::string name = weight.name.empty() ? absl::StrCat("param_", i) : weight.name;
      while (!names.insert(name).second) absl::StrAppend(&name, "_", i);
      plan_.params.push_back({std::move(name), ToRuntime(weight.type)});
    }
    for (const ir::ConstantPtr& literal : graph_.literals) plan_.literals.push_back(literal->data);
  }

  int FunctionIndex(const GraphCall& call) {
    const proto::PrimitiveFunction* f = call.function;
    const auto [it, fresh] = function_index_.insert({f, static_cast<int>(plan_.functions.size())});
    if (fresh) {
      plan_.functions.push_back({f->symbol(), f->inputs_size(), f->outputs_size(), f->has_state(), f->workspace_bytes(),
                                 Info(call), call.symbols, call.workspace_extent});
    }
    return it->second;
  }

  static runtime::FunctionInfo Info(const GraphCall& call) {
    runtime::FunctionInfo info;
    info.backend = call.body->attrs.StringOr("backend", "");
    for (const ir::Binding& binding : call.body->body.bindings) {
      if (binding.kind == ir::Binding::Kind::kCall) info.ops.push_back(binding.callee);
    }
    for (const ir::VarPtr& param : call.body->params) info.types.push_back(param->type.ToString());
    for (const ir::Operand& result : call.body->body.results) info.types.push_back(result.type().ToString());
    const ir::Work work =
        ir::CountWork(*call.body, {call.function->constant_inputs().begin(), call.function->constant_inputs().end()});
    info.flops = AmountOf(work.flops);
    info.bytes = AmountOf(work.bytes);
    info.constant_bytes = AmountOf(work.constant_bytes);
    return info;
  }

  static runtime::Amount AmountOf(const ir::Dim& dim) {
    return dim.is_static() ? runtime::Amount{dim.value()} : runtime::Amount{0, dim.symbol()};
  }

  // Position among the calls of transform_params after which a value can be read; -1: from the start.
  int AvailableAfter(int value) const {
    return graph_.values[value].kind == Value::Kind::kLoad ? graph_.values[value].index : -1;
  }

  bool IsLoadConstant(int value) const {
    if (value < 0) return false;
    const Value::Kind kind = graph_.values[value].kind;
    return kind == Value::Kind::kParam || kind == Value::Kind::kLiteral || kind == Value::Kind::kLoad;
  }

  absl::Status CheckConstants(const GraphCall& call) const {
    for (int i : call.function->constant_inputs()) {
      if (!IsLoadConstant(call.inputs[i])) {
        return absl::FailedPreconditionError(absl::StrCat("function ", call.function->symbol(), " wants input ", i,
                                                          " to be constant after load, but '", call.name,
                                                          "' gives it a value that a run computes"));
      }
    }
    return absl::OkStatus();
  }

  // Every init stands as early as its inputs allow, so that what it packs can be let go before the next is made.
  absl::Status AddLoadSteps() {
    std::vector<std::vector<int>> inits(graph_.load_calls.size() +
                                        1);  // [i]: run calls whose init follows load call i-1
    state_of_run_call_.assign(graph_.run_calls.size(), -1);
    for (size_t r = 0; r < graph_.run_calls.size(); ++r) {
      const GraphCall& call = graph_.run_calls[r];
      INLAY_RETURN_IF_ERROR(CheckConstants(call));
      if (!call.function->has_state() || call.first_part >= 0) continue;
      int after = -1;
      for (int i : call.function->constant_inputs()) after = std::max(after, AvailableAfter(call.inputs[i]));
      inits[after + 1].push_back(static_cast<int>(r));
    }
    for (size_t i = 0; i <= graph_.load_calls.size(); ++i) {
      for (int r : inits[i]) state_of_run_call_[r] = AddInit(graph_.run_calls[r]);
      if (i == graph_.load_calls.size()) break;
      const GraphCall& call = graph_.load_calls[i];
      INLAY_RETURN_IF_ERROR(CheckConstants(call));
      const int state = call.function->has_state() ? AddInit(call) : -1;
      AddCall(call, state, /*load=*/true);
      if (state >= 0) {
        Step destroy;
        destroy.kind = StepKind::kDestroy;
        destroy.function = FunctionIndex(call);
        destroy.state = state;
        plan_.load_steps.push_back(destroy);
        args_of_load_step_.emplace_back();
      }
    }
    return absl::OkStatus();
  }

  int AddInit(const GraphCall& call) {
    Step step;
    step.kind = StepKind::kInit;
    step.function = FunctionIndex(call);
    step.state = plan_.num_states++;
    step.name = call.name;
    std::vector<int> args(call.inputs.size() + call.outputs.size(), -1);
    for (int i : call.function->constant_inputs()) args[i] = call.inputs[i];
    for (int value : args) TouchAtLoad(value);
    plan_.load_steps.push_back(std::move(step));
    args_of_load_step_.push_back(std::move(args));
    return plan_.num_states - 1;
  }

  void AddCall(const GraphCall& call, int state, bool load) {
    Step step;
    step.function = FunctionIndex(call);
    step.state = state;
    step.name = call.name;
    step.part = call.part;
    step.num_parts = call.num_parts;
    std::vector<int> args;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const bool gone = state >= 0 && Contains(call.function->init_only_inputs(), static_cast<int>(i));
      args.push_back(gone ? -1 : call.inputs[i]);
    }
    args.insert(args.end(), call.outputs.begin(), call.outputs.end());
    for (int value : args) load ? TouchAtLoad(value) : TouchInRun(value);
    std::vector<Step>& steps = load ? plan_.load_steps : plan_.run_steps;
    if (call.function->workspace_bytes() > 0) {
      workspaces_.push_back({load, static_cast<int>(steps.size()), call.function->workspace_bytes()});
    }
    steps.push_back(std::move(step));
    (load ? args_of_load_step_ : args_of_run_step_).push_back(std::move(args));
  }

  // A part lives as long as the whole.
  Use& UseOf(int value) {
    const int whole = graph_.values[value].whole;
    return uses_[whole >= 0 ? whole : value];
  }

  // Called while the step that uses the value is the next one to be appended.
  void TouchAtLoad(int value) {
    if (value < 0) return;
    Use& use = UseOf(value);
    use.load_last = static_cast<int>(plan_.load_steps.size());
    if (use.load_first < 0) use.load_first = use.load_last;
  }
  void TouchInRun(int value) {
    if (value < 0) return;
    Use& use = UseOf(value);
    use.run_last = static_cast<int>(plan_.run_steps.size());
    if (use.run_first < 0) use.run_first = use.run_last;
    use.read_in_run = true;
  }

  void AddRunSteps() {
    for (size_t i = 0; i < graph_.run_calls.size(); ++i) {
      const GraphCall& call = graph_.run_calls[i];
      if (call.first_part >= 0) state_of_run_call_[i] = state_of_run_call_[call.first_part];
      AddCall(call, state_of_run_call_[i], /*load=*/false);
    }
  }

  // A value that a run makes is made in the (first) output that it is; everything else is copied, into inputs that are
  // updated last.
  void AddResults() {
    std::vector<int> later;
    for (size_t i = 0; i < graph_.results.size(); ++i) {
      int& value = graph_.results[i];
      const Update& update = updates_[i];
      if (graph_.values[value].kind == Value::Kind::kRun && output_of_value_[value] < 0 && update.direct) {
        output_of_value_[value] = static_cast<int>(i);
        continue;
      }
      if (graph_.values[value].bytes == 0) continue;
      if (update.staged) value = AddCopyOf(value, plan_.outputs[i].name);
      update.input >= 0 ? later.push_back(static_cast<int>(i)) : AddCopyToOutput(static_cast<int>(i));
    }
    for (int output : later) AddCopyToOutput(output);
  }

  void AddCopyToOutput(int output) {
    TouchInRun(graph_.results[output]);
    args_of_run_step_.push_back({graph_.results[output]});
    copies_.push_back({AddCopy(plan_.outputs[output].name), output});
  }

  // A value of its own that is what `value` is now.
  int AddCopyOf(int value, const std::string& name) {
    const int copy = static_cast<int>(graph_.values.size());
    graph_.values.push_back({Value::Kind::kRun, graph_.values[value].bytes});
    uses_.emplace_back();
    output_of_value_.push_back(-1);
    TouchInRun(value);
    TouchInRun(copy);
    args_of_run_step_.push_back({value, copy});
    AddCopy(name);
    return copy;
  }

  int AddCopy(const std::string& name) {
    Step copy;
    copy.kind = StepKind::kCopy;
    copy.name = name;
    plan_.run_steps.push_back(std::move(copy));
    return static_cast<int>(plan_.run_steps.size()) - 1;
  }

  enum Region { kConstantRegion, kLoadRegion, kArenaRegion, kNumRegions };

  // Every value gets its buffer; offsets come afterwards.
  absl::Status AssignRegions() {
    struct Pending {
      int buffer;  // -1: a workspace
      int workspace;
    };
    std::vector<MemoryRequest> requests[kNumRegions];
    std::vector<Pending> pending[kNumRegions];
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      const Use& use = uses_[v];
      Buffer buffer;
      buffer.bytes = value.bytes;
      buffer.index = value.index;
      int region = -1;
      switch (value.kind) {
        case Value::Kind::kInput:
          buffer.kind = BufferKind::kInput;
          break;
        case Value::Kind::kParam:
          buffer.kind = BufferKind::kParam;
          break;
        case Value::Kind::kLiteral:
          buffer.kind = BufferKind::kLiteral;
          break;
        case Value::Kind::kLoad:
          region = use.read_in_run ? kConstantRegion : kLoadRegion;
          buffer.kind = use.read_in_run ? BufferKind::kConstant : BufferKind::kLoad;
          buffer.index = 0;
          break;
        case Value::Kind::kRun:
          if (output_of_value_[v] >= 0) {
            buffer.kind = BufferKind::kOutput;
            buffer.index = output_of_value_[v];
          } else {
            region = kArenaRegion;
            buffer.kind = BufferKind::kArena;
            buffer.index = 0;
          }
          break;
      }
      if (value.whole >= 0) region = -1;  // where the whole is
      if (region >= 0) {
        MemoryRequest request;
        request.bytes = value.bytes;
        if (region == kLoadRegion) request.first = use.load_first, request.last = use.load_last;
        if (region == kArenaRegion) request.first = use.run_first, request.last = use.run_last;
        requests[region].push_back(request);
        pending[region].push_back({static_cast<int>(v), -1});
      }
      plan_.buffers.push_back(buffer);
    }
    for (size_t w = 0; w < workspaces_.size(); ++w) {
      const int region = workspaces_[w].load ? kLoadRegion : kArenaRegion;
      requests[region].push_back({workspaces_[w].bytes, workspaces_[w].step, workspaces_[w].step});
      pending[region].push_back({-1, static_cast<int>(w)});
    }
    for (int region = 0; region < kNumRegions; ++region) {
      INLAY_ASSIGN_OR_RETURN(MemoryAssignment assignment, AssignMemory(requests[region]));
      for (size_t i = 0; i < pending[region].size(); ++i) {
        const Pending& p = pending[region][i];
        if (p.buffer >= 0) {
          plan_.buffers[p.buffer].offset = assignment.offsets[i];
        } else {
          const Workspace& w = workspaces_[p.workspace];
          (w.load ? plan_.load_steps : plan_.run_steps)[w.step].workspace_offset = assignment.offsets[i];
        }
      }
      (region == kConstantRegion ? plan_.constant_bytes
       : region == kLoadRegion   ? plan_.load_bytes
                                 : plan_.arena_bytes) = assignment.total_bytes;
    }
    PlaceParts();
    FillArgs();
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].kind == Value::Kind::kParam) plan_.param_load_only.push_back(!uses_[v].read_in_run);
    }
    return absl::OkStatus();
  }

  void PlaceParts() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].whole < 0) continue;
      const int64_t bytes = plan_.buffers[v].bytes;
      plan_.buffers[v] = plan_.buffers[graph_.values[v].whole];
      plan_.buffers[v].offset += graph_.values[v].offset;
      plan_.buffers[v].bytes = bytes;
    }
  }

  // A value's number is its buffer's; copies get one more buffer each, for the output.
  void FillArgs() {
    for (size_t i = 0; i < plan_.load_steps.size(); ++i) {
      plan_.load_steps[i].args.assign(args_of_load_step_[i].begin(), args_of_load_step_[i].end());
    }
    for (size_t i = 0; i < plan_.run_steps.size(); ++i) {
      plan_.run_steps[i].args.assign(args_of_run_step_[i].begin(), args_of_run_step_[i].end());
    }
    for (const auto& [step, output] : copies_) {
      Buffer buffer;
      buffer.kind = BufferKind::kOutput;
      buffer.index = output;
      buffer.bytes = plan_.outputs[output].type.NumBytes();
      plan_.run_steps[step].args.push_back(static_cast<int32_t>(plan_.buffers.size()));
      plan_.buffers.push_back(buffer);
    }
  }

  CallGraph graph_;
  std::vector<Update> updates_;  // one a result
  std::vector<Use> uses_;
  ExecutionPlan plan_;
  std::map<const proto::PrimitiveFunction*, int> function_index_;
  std::vector<int> state_of_run_call_;
  std::vector<std::vector<int>> args_of_load_step_, args_of_run_step_;  // values; -1: NULL
  std::vector<Workspace> workspaces_;
  std::vector<int> output_of_value_;
  std::vector<std::pair<int, int>> copies_;  // run step, output
};

}  // namespace

absl::StatusOr<BuiltPlan> BuildPlan(const ir::IRModule& partitioned,
                                    absl::Span<const proto::StaticLibraryManifest> manifests) {
  INLAY_ASSIGN_OR_RETURN(FunctionTable functions, FunctionTable::Make(manifests));
  INLAY_ASSIGN_OR_RETURN(std::vector<Update> updates, PlanUpdates(partitioned, functions));
  const bool openmp = std::any_of(manifests.begin(), manifests.end(), RequiresOpenMp);
  if (partitioned.config().executor.kind == target::ExecutorKind::kVm) {
    INLAY_ASSIGN_OR_RETURN(LoweredModule lowered, LowerToBytecode(partitioned, functions, updates));
    CallGraph graph = std::move(lowered.graph);
    return PlanBuilder(std::move(graph), std::move(updates))
        .BuildVm(partitioned.functions.at("main"), std::move(lowered), partitioned.config().num_threads, openmp);
  }
  INLAY_ASSIGN_OR_RETURN(CallGraph graph, BuildCallGraph(partitioned, functions));
  return PlanBuilder(std::move(graph), std::move(updates))
      .Build(partitioned.functions.at("main"), partitioned.config().num_threads, openmp);
}

}  // namespace inlay::artifact
