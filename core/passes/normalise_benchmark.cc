// How long normalising takes: the warm compile of ResNet-50 has 20 ms for everything.
//   bazel run -c opt //core/passes:normalise_benchmark
#include "benchmark/benchmark.h"
#include "core/ir/proto_conversion.h"
#include "core/ir/structural_hash.h"
#include "core/passes/pass_manager.h"

namespace inlay::passes {
namespace {

using ir::Builder;
using ir::VarPtr;

// About `n` nodes of conv, batch_norm, relu, with a residual now and then.
ir::IRModule Net(int n) {
  ir::IRModule module;
  ir::Function& main = module.functions["main"];
  Builder b(&main);
  VarPtr x = b.Param("x", ir::MakeTensorType(ir::DType::kF32, {1, 64, 56, 56}));
  auto weight = [](std::vector<int64_t> shape) {
    return ir::MakeWeight(ir::MakeTensorType(ir::DType::kF32, shape), Digest());
  };
  VarPtr skip = x;
  for (int i = 0; i < n / 10 * 3; ++i) {
    x = *b.Call("conv", {x, weight({64, 64, 3, 3})}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}, "conv");
    x = *b.Call("batch_norm", {x, weight({64}), weight({64}), weight({64}), weight({64})}, {}, "bn");
    if (i % 3 == 2) skip = x = *b.Call("add", {x, skip});
    x = *b.Call("relu", {x});
  }
  b.Return({x});
  return module;
}

void BM_Normalise(benchmark::State& state) {
  const ir::IRModule module = Net(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    auto result = BuildNormalisePipeline(module.config()).Run(module);
    benchmark::DoNotOptimize(result);
  }
  state.counters["nodes"] = static_cast<double>(module.functions.at("main").body.bindings.size());
}
BENCHMARK(BM_Normalise)->Arg(160)->Arg(1000)->Unit(benchmark::kMillisecond);

void BM_EachPass(benchmark::State& state) {
  const ir::IRModule module = Net(1000);
  PassManager manager = BuildNormalisePipeline(module.config());
  for (auto _ : state) benchmark::DoNotOptimize(manager.Run(module));
  std::map<std::string, double> sums;
  for (const PassTiming& t : manager.timings()) sums[t.name] += t.millis;
  for (const auto& [name, millis] : sums) state.counters[name] = millis;
}
BENCHMARK(BM_EachPass)->Unit(benchmark::kMillisecond);

void BM_FromProto(benchmark::State& state) {
  const proto::IRModule proto = ir::ToProto(Net(1000));
  for (auto _ : state) benchmark::DoNotOptimize(ir::FromProto(proto));
}
BENCHMARK(BM_FromProto)->Unit(benchmark::kMillisecond);

void BM_ToProto(benchmark::State& state) {
  const ir::IRModule module = Net(1000);
  for (auto _ : state) benchmark::DoNotOptimize(ir::ToProto(module));
}
BENCHMARK(BM_ToProto)->Unit(benchmark::kMillisecond);

void BM_StructuralHash(benchmark::State& state) {
  const ir::IRModule module = Net(1000);
  for (auto _ : state) benchmark::DoNotOptimize(ir::StructuralHash(module));
}
BENCHMARK(BM_StructuralHash)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace inlay::passes
