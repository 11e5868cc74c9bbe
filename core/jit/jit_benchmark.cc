// How long it takes to load an Executable into this process, and to run an almost empty one.
#include <benchmark/benchmark.h>

#include "core/artifact/testing/many_functions.h"
#include "core/jit/loaded_module.h"

namespace inlay::jit {
namespace {

absl::StatusOr<std::unique_ptr<LoadedModule>> Load(const artifact::testing::ManyFunctions& model) {
  return LoadedModule::Load(model.built.plan.ToJson(), model.library_pointers(), {}, nullptr, {1});
}

void BM_Load(benchmark::State& state) {
  const artifact::testing::ManyFunctions model(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    if (!Load(model).ok()) state.SkipWithError("load failed");
  }
}
BENCHMARK(BM_Load)->Arg(1)->Arg(60)->Unit(benchmark::kMillisecond);

void BM_Run(benchmark::State& state) {
  const artifact::testing::ManyFunctions model(static_cast<int>(state.range(0)));
  auto module = Load(model);
  std::vector<float> x(artifact::testing::kSize), y = x;
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  for (auto _ : state) benchmark::DoNotOptimize((*module)->Run(in, out).ok());
}
BENCHMARK(BM_Run)->Arg(1)->Arg(60);

}  // namespace
}  // namespace inlay::jit
