// How long a link takes: by number of StaticLibraries, and by megabytes of parameters. Run it through `bazel run`: it
// looks for its archives among its runfiles.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "core/artifact/linker.h"
#include "core/artifact/static_library.h"
#include "core/artifact/testing/many_functions.h"
#include "core/base/file_system.h"

namespace inlay::artifact {
namespace {

void Link(benchmark::State& state, const testing::ManyFunctions& model) {
  auto toolchain = FindLinkToolchain({"core/runtime"}, {"../tvm_ffi/lib"});
  auto dir = TempDir::Create("linker_benchmark");
  if (!toolchain.ok() || !dir.ok()) {
    state.SkipWithError(std::string(toolchain.status().message()).c_str());
    return;
  }
  LinkRequest link;
  link.plan = &model.built.plan;
  link.params = model.params;
  link.libraries = model.library_pointers();
  link.param_source = [&](const Digest&, const std::function<absl::Status(absl::string_view)>& sink) {
    return sink(model.weight);
  };
  link.output = dir->path() + "/m.so";
  for (auto _ : state) {
    auto linked = LinkLibrary(*toolchain, link);
    if (!linked.ok()) state.SkipWithError(std::string(linked.status().message()).c_str());
  }
}

void BM_Libraries(benchmark::State& state) { Link(state, testing::ManyFunctions(static_cast<int>(state.range(0)))); }
BENCHMARK(BM_Libraries)->Arg(1)->Arg(60)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_ParamMegabytes(benchmark::State& state) { Link(state, testing::ManyFunctions(1, state.range(0) << 20)); }
BENCHMARK(BM_ParamMegabytes)->Arg(100)->Arg(500)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_Check(benchmark::State& state) {
  const testing::ManyFunctions model(60);
  for (auto _ : state) benchmark::DoNotOptimize(CheckStaticLibraries(model.library_pointers()).ok());
}
BENCHMARK(BM_Check)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace inlay::artifact
