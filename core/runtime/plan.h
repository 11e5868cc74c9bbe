// ExecutionPlan: everything that an executor does, as data. core/runtime/PLAN.md gives its JSON form.
//
// Made by core/artifact/planner, carried as JSON in an Executable and in an exported library, executed by
// core/runtime/graph, or by core/runtime/aot through its compiled entry. Plain values. Part of every exported library,
// so: no Abseil, no protobuf, no LLVM.
#ifndef INLAY_CORE_RUNTIME_PLAN_H_
#define INLAY_CORE_RUNTIME_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/runtime/open_shapes.h"
#include "core/runtime/status.h"
#include "core/runtime/tensor_type.h"
#include "core/runtime/vm/bytecode.h"

namespace inlay::runtime {

inline constexpr int kPlanVersion = 1;
inline constexpr int64_t kAlignment = 64;  // of every offset and of every region

enum class BufferKind : uint8_t {
  kInput,     // index: of the model's input
  kOutput,    // index: of the model's output (the caller's memory; written in place)
  kParam,     // index: into ExecutionPlan::params
  kLiteral,   // index: into ExecutionPlan::literals
  kConstant,  // offset into the region that is filled at load and read by every run
  kLoad,      // offset into the region that exists only while loading
  kArena,     // offset into the arena of one run
};

struct Buffer {
  BufferKind kind = BufferKind::kArena;
  int64_t index = 0;
  int64_t offset = 0;  // of an input or output: where the part of it begins
  int64_t bytes = 0;
};

// A number, or the text of one that depends on a run's extents ("2*batch*seq", core/ir/dim_expr.h).
struct Amount {
  int64_t value = 0;
  std::string extent = {};  // unless empty: in place of value
};

// What a function is, for profiles and pictures; nothing is executed by it.
struct FunctionInfo {
  std::string backend;
  std::vector<std::string> ops;    // of its body, in order
  std::vector<std::string> types;  // "f32[1, 64]", of inputs, then outputs
  // The least that one call must do (core/ir/work.h); constant_bytes is the part of bytes that weights are.
  Amount flops = {};
  Amount bytes = {};
  Amount constant_bytes = {};
};

// A primitive function that the plan calls: what its StaticLibrary's manifest says of it.
struct PlanFunction {
  std::string symbol;
  int32_t num_inputs = 0;
  int32_t num_outputs = 0;
  bool has_state = false;
  int64_t workspace_bytes = 0;
  FunctionInfo info = {};
  // Of a partition with open shapes: whose values its code is given (shape registers), and the extent that is its
  // workspace's size, in place of workspace_bytes; -1: none.
  std::vector<int32_t> symbols = {};
  int32_t workspace_extent = -1;
};

enum class StepKind : uint8_t {
  kRun,      // <symbol>_run
  kInit,     // <symbol>_init: makes states[state]; only at load
  kDestroy,  // <symbol>_destroy: of a state that no run uses; only at load
  kCopy,     // args = {from, to}: an output that is an input, a constant, or returned twice
};

struct Step {
  StepKind kind = StepKind::kRun;
  int32_t function = -1;            // index into functions; kCopy: -1
  int32_t state = -1;               // -1: none
  int64_t workspace_offset = -1;    // into the arena (load steps: the load region); -1: none
  std::vector<int32_t> args;        // buffers, inputs then outputs; -1: NULL (see PLAN.md)
  std::string name;                 // for messages: the partition, or the node it came from
  int32_t part = 0, num_parts = 1;  // for people: one of several calls for as many parts of a batch
  Amount turns = {1};               // for people: how often bytecode calls it for as many parts of a batch
};

struct ExecutionPlan {
  std::vector<NamedTensor> inputs;
  std::vector<NamedTensor> outputs;
  // Of each output: the input whose new value it is, and whose memory it may be; -1: none. Empty: all -1.
  std::vector<int32_t> updates;
  int32_t UpdatedBy(size_t output) const { return updates.empty() ? -1 : updates[output]; }
  std::vector<NamedTensor> params;  // names are unique
  // Of each param: nothing reads it once loading is over, so its memory may go.
  std::vector<bool> param_load_only;
  std::vector<std::string> literals;  // raw bytes
  std::vector<PlanFunction> functions;
  std::vector<Buffer> buffers;
  std::vector<Step> load_steps;
  std::vector<Step> run_steps;
  int32_t num_states = 0;
  int64_t constant_bytes = 0;
  int64_t load_bytes = 0;
  int64_t arena_bytes = 0;
  int32_t entry = -1;       // functions[entry]: all run steps compiled into one (aot/ENTRY.md); -1: there is none
  Bytecode bytecode;        // not empty: executor vm's; run_steps are then its kernel calls, without args
  OpenShapes shapes;        // not empty: some inputs' extents are open (with bytecode only)
  int32_t num_threads = 0;  // default; 0 = the cores of the machine that runs it
  bool openmp = false;      // a library that some function calls brings libgomp: its threads are the module's pool

  std::string ToJson() const;
  // Checks everything that executing relies on (indices, bounds, alignment, no write to a constant), so that a damaged
  // plan is an error and not a crash.
  static StatusOr<ExecutionPlan> FromJson(const std::string& json);
  Status Check() const;
};

}  // namespace inlay::runtime

#endif  // INLAY_CORE_RUNTIME_PLAN_H_
