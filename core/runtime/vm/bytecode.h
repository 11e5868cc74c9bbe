// Bytecode: the functions of a model that executor vm runs. BYTECODE.md gives its instructions and its JSON form.
#ifndef INLAY_CORE_RUNTIME_VM_BYTECODE_H_
#define INLAY_CORE_RUNTIME_VM_BYTECODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/runtime/status.h"
#include "core/runtime/tensor_type.h"

namespace inlay::runtime {

struct ExecutionPlan;

inline constexpr int kBytecodeVersion = 1;

// The first word of an instruction.
enum class VmOp : int64_t {
  kKernel,
  kCall,
  kCallPacked,
  kCopy,
  kSwap,
  kBranchIfNot,
  kJump,
  kReturn,
  kOpenKernel,
  kCallInTurns
};
inline constexpr int64_t kNumVmOps = 10;

enum class RegisterKind : uint8_t {
  kParam,   // the caller's; params come first, in order
  kResult,  // the caller's memory, written in place; results come after the params, in order
  kFrame,   // at: an offset in the frame of the activation
  kBuffer,  // at: a buffer of the plan that is there as long as the model (a param, a literal, a constant)
  kSlot,    // at: a slot of the frame, whose size a run knows (the type is open)
};

struct VmRegister {
  RegisterKind kind = RegisterKind::kFrame;
  int64_t at = 0;
  TensorType type;
};

struct VmFunction {
  std::string name;
  int32_t num_params = 0;
  int32_t num_results = 0;
  std::vector<VmRegister> registers;
  int64_t frame_bytes = 0;
  std::vector<int64_t> code;
  int32_t num_slots = 0;  // behind frame_bytes; each is as large as the largest of what is in it
};

struct Bytecode {
  std::vector<VmFunction> functions;  // [0]: main
  std::vector<std::string> packed;    // names of the process's functions that are called

  bool empty() const { return functions.empty(); }
  // Everything that executing relies on, so that damaged bytecode is an error and not a crash.
  Status Check(const ExecutionPlan& plan) const;
};

// The words of the instruction at `pc`, which is one of a function that has passed Check.
int64_t InstructionWords(const Bytecode& bytecode, const ExecutionPlan& plan, const VmFunction& function, int64_t pc);

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_VM_BYTECODE_H_
