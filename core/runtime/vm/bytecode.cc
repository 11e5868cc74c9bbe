#include "core/runtime/vm/bytecode.h"

#include <algorithm>

#include "core/runtime/plan.h"

namespace inlay::runtime {
namespace {

constexpr int64_t kMaxFrame = int64_t{1} << 46;

Status Bad(const std::string& what) { return InvalidArgument("bytecode: " + what); }

// Words of an instruction; -1: it is cut off, or names what is not there.
int64_t Words(const Bytecode& bytecode, const ExecutionPlan& plan, const std::vector<int64_t>& code, int64_t pc) {
  const int64_t left = static_cast<int64_t>(code.size()) - pc;
  int64_t words = -1;
  switch (static_cast<VmOp>(code[pc])) {
    case VmOp::kKernel:
    case VmOp::kOpenKernel:
      if (left >= 2 && code[pc + 1] >= 0 && code[pc + 1] < static_cast<int64_t>(plan.run_steps.size())) {
        const PlanFunction& f = plan.functions[plan.run_steps[code[pc + 1]].function];
        words = 3 + int64_t{f.num_inputs} + f.num_outputs;
      }
      break;
    case VmOp::kCall:
      if (left >= 2 && code[pc + 1] >= 0 && code[pc + 1] < static_cast<int64_t>(bytecode.functions.size())) {
        const VmFunction& f = bytecode.functions[code[pc + 1]];
        words = 2 + int64_t{f.num_params} + f.num_results;
      }
      break;
    case VmOp::kCallInTurns:
      if (left >= 3 && code[pc + 1] >= 0 && code[pc + 1] < static_cast<int64_t>(bytecode.functions.size())) {
        const VmFunction& f = bytecode.functions[code[pc + 1]];
        words = 3 + int64_t{f.num_params} + f.num_results;
      }
      break;
    case VmOp::kCallPacked:
      if (left >= 4 && code[pc + 2] >= 0 && code[pc + 2] <= left && code[pc + 3] >= 0 && code[pc + 3] <= left) {
        words = 4 + code[pc + 2] + code[pc + 3];
      }
      break;
    case VmOp::kCopy:
    case VmOp::kSwap:
    case VmOp::kBranchIfNot:
      words = 3;
      break;
    case VmOp::kJump:
      words = 2;
      break;
    case VmOp::kReturn:
      words = 1;
      break;
  }
  return words <= left ? words : -1;
}

class FunctionChecker {
 public:
  FunctionChecker(const Bytecode& bytecode, const ExecutionPlan& plan, const VmFunction& function)
      : bytecode_(bytecode), plan_(plan), f_(function) {}

  Status Run() {
    if (Status s = CheckRegisters(); !s.ok()) return s;
    std::vector<bool> starts(f_.code.size(), false);
    int64_t last = -1;
    for (int64_t pc = 0; pc < static_cast<int64_t>(f_.code.size());) {
      if (f_.code[pc] < 0 || f_.code[pc] >= kNumVmOps) return Wrong(pc, "is none");
      const int64_t words = Words(bytecode_, plan_, f_.code, pc);
      if (words < 0) return Wrong(pc, "is cut off, or calls what is not there");
      starts[pc] = true;
      last = pc;
      pc += words;
    }
    if (last < 0) return Bad("function '" + f_.name + "' is empty");
    const VmOp end = static_cast<VmOp>(f_.code[last]);
    if (end != VmOp::kReturn && end != VmOp::kJump) return Wrong(last, "is the last, and does not return");
    for (int64_t pc = 0; pc < static_cast<int64_t>(f_.code.size()); pc += Words(bytecode_, plan_, f_.code, pc)) {
      if (Status s = CheckInstruction(pc, starts); !s.ok()) return s;
    }
    return Status();
  }

 private:
  Status Wrong(int64_t pc, const std::string& what) const {
    return Bad("function '" + f_.name + "': the instruction at " + std::to_string(pc) + " " + what);
  }

  Status CheckRegisters() const {
    const auto n = static_cast<int64_t>(f_.registers.size());
    if (f_.frame_bytes < 0 || f_.frame_bytes > kMaxFrame || f_.frame_bytes % kAlignment != 0) {
      return Bad("function '" + f_.name + "' has a frame of an impossible size");
    }
    if (f_.num_slots < 0 || f_.num_slots > n + static_cast<int64_t>(f_.code.size())) {
      return Bad("function '" + f_.name + "' has an impossible number of slots");
    }
    if (f_.num_params < 0 || f_.num_results < 0 || int64_t{f_.num_params} + f_.num_results > n) {
      return Bad("function '" + f_.name + "' has fewer registers than parameters and results");
    }
    for (int64_t i = 0; i < n; ++i) {
      const VmRegister& r = f_.registers[i];
      const std::string where = "function '" + f_.name + "': register " + std::to_string(i);
      const int64_t bytes = r.type.NumBytes();
      const bool open = r.type.is_open();
      if (open ? !plan_.shapes.Knows(r.type) : bytes < 0) return Bad(where + " has an impossible type");
      const bool param = i < f_.num_params, result = !param && i < f_.num_params + f_.num_results;
      if (param != (r.kind == RegisterKind::kParam) || result != (r.kind == RegisterKind::kResult)) {
        return Bad(where + " is of the wrong kind");
      }
      if (open && (r.kind == RegisterKind::kFrame || r.kind == RegisterKind::kBuffer)) {
        return Bad(where + " has an open type where a size must be known");
      }
      if (r.kind == RegisterKind::kSlot) {
        if (!open || r.at < 0 || r.at >= f_.num_slots) return Bad(where + " is in no slot");
      } else if (r.kind == RegisterKind::kFrame) {
        if (r.at < 0 || r.at % kAlignment != 0 || r.at > f_.frame_bytes || bytes > f_.frame_bytes - r.at) {
          return Bad(where + " is outside of the frame");
        }
      } else if (r.kind == RegisterKind::kBuffer) {
        if (r.at < 0 || r.at >= static_cast<int64_t>(plan_.buffers.size())) return Bad(where + " is no buffer");
        const Buffer& b = plan_.buffers[r.at];
        const bool there = b.kind == BufferKind::kLiteral || b.kind == BufferKind::kConstant ||
                           (b.kind == BufferKind::kParam && !plan_.param_load_only[b.index]);
        if (!there || b.bytes != bytes) return Bad(where + " is a buffer that no run may read, or of another size");
      }
    }
    return Status();
  }

  const VmRegister* Register(int64_t index) const {
    return index >= 0 && index < static_cast<int64_t>(f_.registers.size()) ? &f_.registers[index] : nullptr;
  }
  const VmRegister* Writable(int64_t index) const {
    const VmRegister* r = Register(index);
    const bool writable = r != nullptr && r->kind != RegisterKind::kParam && r->kind != RegisterKind::kBuffer;
    return writable ? r : nullptr;
  }

  Status CheckInstruction(int64_t pc, const std::vector<bool>& starts) const {
    const int64_t* word = &f_.code[pc];
    switch (static_cast<VmOp>(word[0])) {
      case VmOp::kKernel:
      case VmOp::kOpenKernel:
        return CheckKernel(pc);
      case VmOp::kCall:
        return CheckCall(pc);
      case VmOp::kCallInTurns:
        return CheckCallInTurns(pc);
      case VmOp::kCallPacked: {
        if (word[1] < 0 || word[1] >= static_cast<int64_t>(bytecode_.packed.size())) {
          return Wrong(pc, "calls a function without a name");
        }
        for (int64_t i = 0; i < word[2] + word[3]; ++i) {
          if ((i < word[2] ? Register(word[4 + i]) : Writable(word[4 + i])) == nullptr) {
            return Wrong(pc, "uses a register that is not there, or writes to a constant");
          }
        }
        return Status();
      }
      case VmOp::kCopy: {
        const VmRegister *from = Register(word[1]), *to = Writable(word[2]);
        return from != nullptr && to != nullptr && from->type == to->type ? Status() : Wrong(pc, "is no proper copy");
      }
      case VmOp::kSwap: {
        const VmRegister *a = Writable(word[1]), *b = Writable(word[2]);
        const bool well = a != nullptr && b != nullptr && a->kind == b->kind && a->kind != RegisterKind::kResult &&
                          a->type == b->type;
        return well ? Status() : Wrong(pc, "swaps what it may not");
      }
      case VmOp::kBranchIfNot: {
        const VmRegister* r = Register(word[1]);
        if (r == nullptr || r->type.dtype != DType::kBool || r->type.NumElements() != 1) {
          return Wrong(pc, "has no bool for a condition");
        }
        return CheckTarget(pc, word[2], starts);
      }
      case VmOp::kJump:
        return CheckTarget(pc, word[1], starts);
      case VmOp::kReturn:
        return Status();
    }
    return Status();
  }

  Status CheckTarget(int64_t pc, int64_t target, const std::vector<bool>& starts) const {
    const bool well = target >= 0 && target < static_cast<int64_t>(starts.size()) && starts[target];
    return well ? Status() : Wrong(pc, "jumps to no instruction");
  }

  Status CheckKernel(int64_t pc) const {
    const int64_t* word = &f_.code[pc];
    const Step& site = plan_.run_steps[word[1]];
    const PlanFunction& function = plan_.functions[site.function];
    const int64_t count = int64_t{function.num_inputs} + function.num_outputs;
    const bool open = static_cast<VmOp>(word[0]) == VmOp::kOpenKernel;
    if (open != (!function.symbols.empty() || function.workspace_extent >= 0)) {
      return Wrong(pc, "is of the wrong kind for " + function.symbol);
    }
    if (function.workspace_extent >= 0) {
      const int64_t slot = -2 - word[2];
      if (slot < 0 || slot >= f_.num_slots) return Wrong(pc, "has its workspace in no slot");
    } else if (function.workspace_bytes > 0) {
      const int64_t at = word[2];
      if (at < 0 || at % kAlignment != 0 || at > f_.frame_bytes || function.workspace_bytes > f_.frame_bytes - at) {
        return Wrong(pc, "has its workspace outside of the frame");
      }
    }
    const bool typed = static_cast<int64_t>(function.info.types.size()) == count;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = word[3 + i];
      const bool input = i < function.num_inputs;
      if (index == -1 && input && function.has_state) continue;  // init alone reads it
      const VmRegister* r = input ? Register(index) : Writable(index);
      if (r == nullptr) return Wrong(pc, "uses a register that is not there, or writes to a constant");
      if (!open && r->type.is_open()) return Wrong(pc, "gives " + function.symbol + " an open shape");
      if (!typed) continue;
      const std::string type = plan_.shapes.ToString(r->type);
      if (type != function.info.types[i]) {
        return Wrong(pc, "gives " + function.symbol + " " + type + " for " + function.info.types[i]);
      }
    }
    return Status();
  }

  Status CheckCall(int64_t pc) const {
    const int64_t* word = &f_.code[pc];
    const VmFunction& callee = bytecode_.functions[word[1]];
    for (int64_t i = 0; i < int64_t{callee.num_params} + callee.num_results; ++i) {
      const VmRegister* r = i < callee.num_params ? Register(word[2 + i]) : Writable(word[2 + i]);
      if (i >= static_cast<int64_t>(callee.registers.size()) || r == nullptr || r->type != callee.registers[i].type) {
        return Wrong(pc, "does not fit '" + callee.name + "'");
      }
    }
    return Status();
  }

  // Whether `whole` is so many of `part`, one after the other, and each lies where a tensor may.
  static bool IsInParts(const TensorType& whole, const TensorType& part, int64_t turns) {
    if (part.is_open() || part.dtype != whole.dtype || part.shape.empty() || part.shape[0] == 0 ||
        part.shape.size() != whole.shape.size() ||
        !std::equal(part.shape.begin() + 1, part.shape.end(), whole.shape.begin() + 1) ||
        part.NumBytes() % kAlignment != 0) {
      return false;
    }
    if (turns < 0) return part.shape[0] == 1 && whole.shape[0] == turns;
    int64_t rows = 0;
    return !__builtin_mul_overflow(part.shape[0], turns, &rows) && whole.shape[0] == rows;
  }

  Status CheckCallInTurns(int64_t pc) const {
    const int64_t* word = &f_.code[pc];
    const VmFunction& callee = bytecode_.functions[word[1]];
    const int64_t turns = word[2];
    if (turns < 0 && -1 - turns >= static_cast<int64_t>(plan_.shapes.extents.size())) {
      return Wrong(pc, "has an extent of turns that is not there");
    }
    for (int64_t i = 0; i < int64_t{callee.num_params} + callee.num_results; ++i) {
      const bool param = i < callee.num_params;
      const VmRegister* r = param ? Register(word[3 + i]) : Writable(word[3 + i]);
      if (i >= static_cast<int64_t>(callee.registers.size()) || r == nullptr ||
          !((param && r->type == callee.registers[i].type) || IsInParts(r->type, callee.registers[i].type, turns))) {
        return Wrong(pc, "does not fit '" + callee.name + "' in turns");
      }
    }
    return Status();
  }

  const Bytecode& bytecode_;
  const ExecutionPlan& plan_;
  const VmFunction& f_;
};

Status CheckMain(const VmFunction& main, const ExecutionPlan& plan) {
  if (main.num_params != static_cast<int64_t>(plan.inputs.size()) ||
      main.num_results != static_cast<int64_t>(plan.outputs.size())) {
    return Bad("main has other inputs or outputs than the plan");
  }
  for (size_t i = 0; i < plan.inputs.size() + plan.outputs.size(); ++i) {
    const TensorType& want = i < plan.inputs.size() ? plan.inputs[i].type : plan.outputs[i - plan.inputs.size()].type;
    if (main.registers[i].type != want) return Bad("main has other inputs or outputs than the plan");
  }
  return Status();
}

}  // namespace

Status Bytecode::Check(const ExecutionPlan& plan) const {
  // Counts first: an instruction's length depends on its callee's.
  for (const VmFunction& f : functions) {
    if (f.num_params < 0 || f.num_results < 0) return Bad("function '" + f.name + "' has impossible counts");
  }
  for (const VmFunction& f : functions) {
    if (Status s = FunctionChecker(*this, plan, f).Run(); !s.ok()) return s;
  }
  return CheckMain(functions[0], plan);
}

int64_t InstructionWords(const Bytecode& bytecode, const ExecutionPlan& plan, const VmFunction& function, int64_t pc) {
  return Words(bytecode, plan, function.code, pc);
}

}  // namespace inlay::runtime
