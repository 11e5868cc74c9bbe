// What an action costs beside its code generation: the way to a worker and back, and a fresh worker.
//   bazel run //server/worker:worker_pool_benchmark
#include <filesystem>

#include "benchmark/benchmark.h"
#include "core/base/file_system.h"
#include "server/worker/testing.h"
#include "server/worker/worker_pool.h"

namespace inlay::server {
namespace {

WorkerPoolOptions Options(const TempDir& dir) {
  WorkerPoolOptions options;
  options.worker_binary = std::filesystem::absolute("server/worker/test_worker");
  options.scratch_dir = dir.path();
  return options;
}

void Action(benchmark::State& state) {
  TempDir dir = TempDir::Create("worker_pool_benchmark").value();
  metrics::Registry registry;
  auto pool = WorkerPool::Start(Options(dir), &registry).value();
  const proto::CompileAction action = FakeAction({{"size", std::to_string(state.range(0))}});
  for (auto _ : state) {
    CancelToken token;
    if (!pool->Compile(action, &token).ok()) state.SkipWithError("compile");
  }
}
BENCHMARK(Action)->Arg(0)->Arg(100 << 10)->UseRealTime();

void StartPool(benchmark::State& state) {
  TempDir dir = TempDir::Create("worker_pool_benchmark").value();
  metrics::Registry registry;
  for (auto _ : state) benchmark::DoNotOptimize(WorkerPool::Start(Options(dir), &registry).value());
}
BENCHMARK(StartPool)->UseRealTime();

}  // namespace
}  // namespace inlay::server
