// What the executor costs: a chain of calls that do nothing, and a run without calls.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "core/runtime/executor.h"
#include "core/runtime/threads.h"

namespace inlay::runtime {
namespace {

int32_t Nothing(const InlayCallContext*, void* const*) { return INLAY_OK; }

std::unique_ptr<Executor> Chain(int calls) {
  const TensorType t{DType::kF32, {16}};
  ExecutionPlan plan;
  plan.inputs = {{"x", t}};
  plan.outputs = {{"y", t}};
  plan.functions = {{"f", 2, 1, false, 0}};
  plan.buffers = {{BufferKind::kInput, 0, 0, 64},
                  {BufferKind::kOutput, 0, 0, 64},
                  {BufferKind::kArena, 0, 0, 64},
                  {BufferKind::kArena, 0, 64, 64}};
  plan.arena_bytes = 128;
  for (int i = 0; i < calls; ++i) {
    plan.run_steps.push_back({StepKind::kRun, 0, -1, -1, {i == 0 ? 0 : 2 + i % 2, 2, 3 - i % 2}, ""});
  }
  auto executor = LoadExecutor(plan, {{&Nothing, nullptr, nullptr}}, {}, {1});
  return executor.ok() ? std::move(*executor) : nullptr;
}

void BM_Calls(benchmark::State& state) {
  auto executor = Chain(static_cast<int>(state.range(0)));
  float x[16] = {}, y[16];
  const void* in[] = {x};
  void* out[] = {y};
  for (auto _ : state) benchmark::DoNotOptimize(executor->Run(in, out).ok());
  state.counters["per_call"] =
      benchmark::Counter(static_cast<double>(std::max<int64_t>(state.range(0), 1)),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Calls)->Arg(0)->Arg(1)->Arg(100)->Arg(1000);

void BM_ParallelFor(benchmark::State& state) {
  ThreadPool pool{static_cast<int>(state.range(0))};
  for (auto _ : state) ParallelFor(&pool, 64, [](void*, int64_t, int64_t, int32_t) {}, nullptr);
}
BENCHMARK(BM_ParallelFor)->Arg(1)->Arg(2);

}  // namespace
}  // namespace inlay::runtime
