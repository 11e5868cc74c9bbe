// What a call of a partition costs by each executor: chains of functions that do nothing, with three arguments each.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "core/artifact/aot_entry.h"
#include "core/artifact/testing/test_library.h"
#include "core/backend/backend.h"
#include "core/jit/orc_jit.h"
#include "core/runtime/executor.h"

namespace inlay::aot {
namespace {

using namespace artifact::testing;  // NOLINT
using runtime::BufferKind;
using runtime::StepKind;

runtime::ExecutionPlan Chain(int calls) {
  const runtime::TensorType t{runtime::DType::kF32, {16}};
  runtime::ExecutionPlan plan;
  plan.inputs = {{"x", t}};
  plan.outputs = {{"y", t}};
  plan.functions = {{"nothing", 2, 1, false, 0}};
  plan.buffers = {{BufferKind::kInput, 0, 0, 64},
                  {BufferKind::kOutput, 0, 0, 64},
                  {BufferKind::kArena, 0, 0, 64},
                  {BufferKind::kArena, 0, 64, 64}};
  plan.arena_bytes = 128;
  for (int i = 0; i < calls; ++i) {
    plan.run_steps.push_back({StepKind::kRun, 0, -1, -1, {i == 0 ? 0 : 2 + i % 2, 2, 3 - i % 2}, ""});
  }
  return plan;
}

// The same chain as bytecode: registers x, y and two of the frame, which the calls alternate between.
void ToBytecode(runtime::ExecutionPlan* plan) {
  const runtime::TensorType t = plan->inputs[0].type;
  runtime::VmFunction main = {"main", 1, 1, {}, 128, {}};
  main.registers = {{runtime::RegisterKind::kParam, 0, t},
                    {runtime::RegisterKind::kResult, 0, t},
                    {runtime::RegisterKind::kFrame, 0, t},
                    {runtime::RegisterKind::kFrame, 64, t}};
  for (size_t i = 0; i < plan->run_steps.size(); ++i) {
    std::vector<int64_t> call = {static_cast<int64_t>(runtime::VmOp::kKernel), static_cast<int64_t>(i), -1};
    call.insert(call.end(), plan->run_steps[i].args.begin(), plan->run_steps[i].args.end());
    main.code.insert(main.code.end(), call.begin(), call.end());
    plan->run_steps[i].args.clear();
  }
  main.code.push_back(static_cast<int64_t>(runtime::VmOp::kReturn));
  plan->buffers.clear();
  plan->arena_bytes = 0;
  plan->bytecode.functions = {std::move(main)};
}

enum Kind { kGraph, kAot, kVm };

void Run(benchmark::State& state, Kind kind) {
  const bool aot = kind == kAot;
  const int calls = static_cast<int>(state.range(0));
  const ir::TensorType vector{ir::DType::kF32, {16}};
  proto::StaticLibrary kernels = MakeLibrary("int nothing_run(const void* context, void* const* args) { return 0; }",
                                             {Signature("nothing").In(vector).In(vector).Out(vector)});
  std::vector<const proto::StaticLibrary*> libraries = {&kernels};
  runtime::ExecutionPlan plan = Chain(calls);
  proto::StaticLibrary entry;
  if (aot) {
    const ir::IRModule none;
    entry = *backend::CodegenRegistry::Global().Find("aot")->Codegen(
        {none, *target::Target().Completed(), target::Target(), "", artifact::CanonicalEntryPlan(plan)});
    libraries.push_back(&entry);
    plan.entry = 1;
    plan.functions.push_back({entry.manifest().functions(0).symbol(), 1, 1, false, plan.arena_bytes});
  }
  if (kind == kVm) ToBytecode(&plan);
  auto code = jit::JitCode::Load(libraries);
  std::vector<runtime::FunctionPointers> functions;
  for (const runtime::PlanFunction& f : plan.functions) {
    functions.push_back({reinterpret_cast<InlayRunFunction>(*(*code)->Lookup(f.symbol + "_run"))});
  }
  auto executor = runtime::LoadExecutor(plan, functions, {}, {1});
  float x[16] = {}, y[16];
  const void* in[] = {x};
  void* out[] = {y};
  for (auto _ : state) benchmark::DoNotOptimize((*executor)->Run(in, out).ok());
  state.counters["per_call"] =
      benchmark::Counter(static_cast<double>(std::max(calls, 1)),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void BM_Graph(benchmark::State& state) { Run(state, kGraph); }
void BM_Aot(benchmark::State& state) { Run(state, kAot); }
void BM_Vm(benchmark::State& state) { Run(state, kVm); }
BENCHMARK(BM_Graph)->Arg(0)->Arg(10)->Arg(100)->Arg(1000);
BENCHMARK(BM_Aot)->Arg(0)->Arg(10)->Arg(100)->Arg(1000);
BENCHMARK(BM_Vm)->Arg(0)->Arg(10)->Arg(100)->Arg(1000);

}  // namespace
}  // namespace inlay::aot
