#include "core/runtime/plan.h"

namespace inlay::runtime {
namespace {

Status Bad(const std::string& what) { return InvalidArgument("execution plan: " + what); }

// Whether [offset, offset + bytes) is an aligned range of a region.
bool InRegion(int64_t offset, int64_t bytes, int64_t region) {
  return offset >= 0 && bytes >= 0 && offset % kAlignment == 0 && offset <= region && bytes <= region - offset;
}

Status CheckBuffer(const ExecutionPlan& plan, const Buffer& b, const std::string& where) {
  auto check_index = [&](size_t size, const char* what, auto bytes_of) -> Status {
    if (b.index < 0 || b.index >= static_cast<int64_t>(size)) return Bad(where + " names a missing " + what);
    const int64_t bytes = bytes_of(b.index);
    if (b.offset == 0 && b.bytes == bytes) return Status();
    const bool may_be_part = b.kind == BufferKind::kInput || b.kind == BufferKind::kOutput;
    if (!may_be_part || !InRegion(b.offset, b.bytes, bytes))
      return Bad(where + " is neither its " + what + " nor in it");
    return Status();
  };
  switch (b.kind) {
    case BufferKind::kInput:
      return check_index(plan.inputs.size(), "input", [&](int64_t i) { return plan.inputs[i].type.NumBytes(); });
    case BufferKind::kOutput:
      return check_index(plan.outputs.size(), "output", [&](int64_t i) { return plan.outputs[i].type.NumBytes(); });
    case BufferKind::kParam:
      return check_index(plan.params.size(), "param", [&](int64_t i) { return plan.params[i].type.NumBytes(); });
    case BufferKind::kLiteral:
      return check_index(plan.literals.size(), "literal",
                         [&](int64_t i) { return static_cast<int64_t>(plan.literals[i].size()); });
    case BufferKind::kConstant:
      return InRegion(b.offset, b.bytes, plan.constant_bytes) ? Status() : Bad(where + " is outside the constants");
    case BufferKind::kLoad:
      return InRegion(b.offset, b.bytes, plan.load_bytes) ? Status() : Bad(where + " is outside the load region");
    case BufferKind::kArena:
      return InRegion(b.offset, b.bytes, plan.arena_bytes) ? Status() : Bad(where + " is outside the arena");
  }
  return Bad(where + " is of no known kind");
}

bool MayRead(const ExecutionPlan& plan, const Buffer& b, bool loading) {
  switch (b.kind) {
    case BufferKind::kInput:
    case BufferKind::kOutput:
    case BufferKind::kArena:
      return !loading;
    case BufferKind::kParam:
      return loading || !plan.param_load_only[b.index];
    case BufferKind::kLiteral:
    case BufferKind::kConstant:
      return true;
    case BufferKind::kLoad:
      return loading;
  }
  return false;
}

bool MayWrite(const Buffer& b, bool loading) {
  return loading ? b.kind == BufferKind::kConstant || b.kind == BufferKind::kLoad
                 : b.kind == BufferKind::kOutput || b.kind == BufferKind::kArena;
}

Status CheckCopy(const ExecutionPlan& plan, const Step& step, bool loading, const std::string& where) {
  if (loading || step.args.size() != 2) return Bad(where + " is no proper copy");
  for (int32_t arg : step.args) {
    if (arg < 0 || arg >= static_cast<int32_t>(plan.buffers.size())) return Bad(where + " names a missing buffer");
  }
  const Buffer& from = plan.buffers[step.args[0]];
  const Buffer& to = plan.buffers[step.args[1]];
  if (from.bytes != to.bytes || !MayRead(plan, from, false) || !MayWrite(to, false)) {
    return Bad(where + " copies what it may not");
  }
  return Status();
}

Status CheckCall(const ExecutionPlan& plan, const Step& step, bool loading, const std::string& where) {
  if (step.function < 0 || step.function >= static_cast<int32_t>(plan.functions.size())) {
    return Bad(where + " calls a missing function");
  }
  const PlanFunction& f = plan.functions[step.function];
  if (f.has_state ? step.state < 0 || step.state >= plan.num_states : step.state != -1) {
    return Bad(where + " has a wrong state");
  }
  if (step.kind == StepKind::kRun && (!f.symbols.empty() || f.workspace_extent >= 0)) {
    return Bad(where + " calls a function whose shapes are open");
  }
  if (step.kind != StepKind::kRun && !loading) return Bad(where + " is not of a kind that runs");
  if (step.kind == StepKind::kDestroy) return f.has_state ? Status() : Bad(where + " destroys nothing");
  if (step.kind == StepKind::kInit && !f.has_state) return Bad(where + " initialises a function without state");
  if (static_cast<int64_t>(step.args.size()) != int64_t{f.num_inputs} + f.num_outputs) {
    return Bad(where + " gives a wrong number of arguments to " + f.symbol);
  }
  for (size_t i = 0; i < step.args.size(); ++i) {
    const int32_t arg = step.args[i];
    if (arg == -1 && (step.kind == StepKind::kInit || (f.has_state && static_cast<int64_t>(i) < f.num_inputs)))
      continue;
    if (arg < 0 || arg >= static_cast<int32_t>(plan.buffers.size())) return Bad(where + " names a missing buffer");
    const bool input = static_cast<int64_t>(i) < f.num_inputs;
    if (step.kind == StepKind::kInit && !input) return Bad(where + " gives an output to an init");
    if (!(input ? MayRead(plan, plan.buffers[arg], loading) : MayWrite(plan.buffers[arg], loading))) {
      return Bad(where + " may not use buffer " + std::to_string(arg));
    }
  }
  if (step.kind == StepKind::kRun && f.workspace_bytes > 0 &&
      !InRegion(step.workspace_offset, f.workspace_bytes, loading ? plan.load_bytes : plan.arena_bytes)) {
    return Bad(where + " has its workspace outside the memory");
  }
  return Status();
}

// Where bytecode has the arguments.
Status CheckSite(const ExecutionPlan& plan, const Step& step, const std::string& where) {
  if (step.kind != StepKind::kRun || !step.args.empty()) return Bad(where + " is not of a kind that bytecode calls");
  if (step.function < 0 || step.function >= static_cast<int32_t>(plan.functions.size())) {
    return Bad(where + " calls a missing function");
  }
  const PlanFunction& f = plan.functions[step.function];
  if (f.has_state ? step.state < 0 || step.state >= plan.num_states : step.state != -1) {
    return Bad(where + " has a wrong state");
  }
  return Status();
}

// A state is made by one init, run afterwards, destroyed at most once.
Status CheckStates(const ExecutionPlan& plan) {
  std::vector<int32_t> made_by(plan.num_states, -1);
  std::vector<bool> gone(plan.num_states, false);
  auto visit = [&](const Step& step) -> Status {
    if (step.state < 0) return Status();
    if (step.kind == StepKind::kInit) {
      if (made_by[step.state] != -1) return Bad("state " + std::to_string(step.state) + " is made twice");
      made_by[step.state] = step.function;
      return Status();
    }
    if (made_by[step.state] != step.function || gone[step.state]) {
      return Bad("state " + std::to_string(step.state) + " is used but not there");
    }
    if (step.kind == StepKind::kDestroy) gone[step.state] = true;
    return Status();
  };
  for (const auto* steps : {&plan.load_steps, &plan.run_steps}) {
    for (const Step& step : *steps) {
      if (Status s = visit(step); !s.ok()) return s;
    }
  }
  return Status();
}

Status CheckEntry(const ExecutionPlan& plan) {
  if (plan.entry == -1) return Status();
  if (plan.entry < 0 || plan.entry >= static_cast<int32_t>(plan.functions.size())) return Bad("the entry is missing");
  const PlanFunction& f = plan.functions[plan.entry];
  if (f.has_state || f.num_inputs != static_cast<int64_t>(plan.inputs.size()) ||
      f.num_outputs != static_cast<int64_t>(plan.outputs.size()) || f.workspace_bytes != plan.arena_bytes) {
    return Bad("the entry " + f.symbol + " was compiled for another plan");
  }
  for (const auto* steps : {&plan.load_steps, &plan.run_steps}) {
    for (const Step& step : *steps) {
      if (step.function == plan.entry) return Bad("a step calls the entry");
    }
  }
  return Status();
}

Status CheckUpdates(const ExecutionPlan& plan) {
  if (plan.updates.empty()) return Status();
  if (plan.updates.size() != plan.outputs.size()) return Bad("updates are not one an output");
  std::vector<bool> updated(plan.inputs.size(), false);
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const int32_t input = plan.updates[i];
    if (input == -1) continue;
    const bool there = input >= 0 && input < static_cast<int64_t>(plan.inputs.size());
    if (!there || updated[input] || !(plan.inputs[input].type == plan.outputs[i].type)) {
      return Bad("output " + std::to_string(i) + " updates what it may not");
    }
    updated[input] = true;
  }
  return Status();
}

}  // namespace

Status ExecutionPlan::Check() const {
  constexpr int64_t kMaxRegion = int64_t{1} << 46;
  for (int64_t region : {constant_bytes, load_bytes, arena_bytes}) {
    if (region < 0 || region > kMaxRegion || region % kAlignment != 0) return Bad("a region has an impossible size");
  }
  if (num_threads < 0 || num_states < 0) return Bad("a negative number");
  if (num_states > static_cast<int64_t>(load_steps.size())) return Bad("more states than inits");
  if (param_load_only.size() != params.size()) return Bad("param_load_only is not one a param");
  for (const auto* tensors : {&inputs, &outputs, &params}) {
    for (const NamedTensor& t : *tensors) {
      const bool open = tensors != &params && t.type.is_open() && shapes.Knows(t.type);
      if (t.type.NumBytes() < 0 && !open) return Bad("'" + t.name + "' has an impossible shape " + t.type.ToString());
    }
  }
  if (Status s = shapes.Check(inputs); !s.ok()) return s;
  if (!shapes.empty() && bytecode.empty()) return Bad("open shapes without bytecode");
  for (const PlanFunction& f : functions) {
    if (f.num_inputs < 0 || f.num_outputs < 0 || f.workspace_bytes < 0) return Bad("function " + f.symbol);
    for (int32_t symbol : f.symbols) {
      if (symbol < 0 || symbol >= static_cast<int32_t>(shapes.registers.size())) return Bad("function " + f.symbol);
    }
    if (f.workspace_extent < -1 || f.workspace_extent >= static_cast<int32_t>(shapes.extents.size()) ||
        (f.workspace_extent >= 0 && f.workspace_bytes > 0)) {
      return Bad("function " + f.symbol + " has an impossible workspace");
    }
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (Status s = CheckBuffer(*this, buffers[i], "buffer " + std::to_string(i)); !s.ok()) return s;
  }
  for (bool loading : {true, false}) {
    const std::vector<Step>& steps = loading ? load_steps : run_steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string where = (loading ? "load step " : "run step ") + std::to_string(i);
      Status s = !loading && !bytecode.empty()      ? CheckSite(*this, steps[i], where)
                 : steps[i].kind == StepKind::kCopy ? CheckCopy(*this, steps[i], loading, where)
                                                    : CheckCall(*this, steps[i], loading, where);
      if (!s.ok()) return s;
    }
  }
  if (Status s = CheckUpdates(*this); !s.ok()) return s;
  if (Status s = CheckEntry(*this); !s.ok()) return s;
  if (Status s = CheckStates(*this); !s.ok()) return s;
  if (bytecode.empty()) return Status();
  return entry == -1 ? bytecode.Check(*this) : Bad("both an entry and bytecode");
}

}  // namespace inlay::runtime
