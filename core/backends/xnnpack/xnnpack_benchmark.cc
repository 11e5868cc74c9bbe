// Latency of the shim on the shapes of ResNet-50, MobileNetV2 and BERT: partitions built, lowered and run in this
// process, one thread unless BENCH_THREADS says otherwise.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "core/backend/testing/call_site.h"
#include "core/backend/testing/networks.h"
#include "core/backends/xnnpack/lowering.h"
#include "core/backends/xnnpack/runtime/program_builder.h"

namespace inlay::xnnpack {
namespace {

using namespace backend::testing;  // the networks

// One loaded partition with buffers.
class Loaded {
 public:
  explicit Loaded(const Case& c) : site_(c.function, Threads()) {
    auto lowered = Lower(c.function);
    if (!lowered.ok()) std::abort();
    flops = lowered->flops;
    auto bytes = Serialize(*lowered);
    site_.SetWorkspace(lowered->description.workspace_bytes);
    auto read = ReadAndCheck(bytes.data(), static_cast<int64_t>(bytes.size()));
    program_ = ProgramBuilder(read, site_.context(), site_.args()).Build();
  }
  void Run() { program_->Run(site_.context(), site_.args()); }
  double flops = 0;

 private:
  static int Threads() {
    const char* threads = std::getenv("BENCH_THREADS");
    return threads == nullptr ? 1 : std::atoi(threads);
  }
  CallSite site_;
  std::unique_ptr<Program> program_;
};

void Bench(benchmark::State& state, const Case& c) {
  Loaded loaded(c);
  loaded.Run();
  for (auto _ : state) loaded.Run();
  state.counters["GFLOPS"] =
      benchmark::Counter(loaded.flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

#define INLAY_BENCH(name, expression) BENCHMARK_CAPTURE(Bench, name, expression)->Unit(benchmark::kMicrosecond)

INLAY_BENCH(resnet50, ResNet50());
INLAY_BENCH(bottleneck_56, Bottleneck(0));
INLAY_BENCH(bottleneck_28, Bottleneck(1));
INLAY_BENCH(bottleneck_14, Bottleneck(2));
INLAY_BENCH(bottleneck_7, Bottleneck(3));
INLAY_BENCH(inverted_residual_56, InvertedResidual(24, 56));
INLAY_BENCH(inverted_residual_14, InvertedResidual(96, 14));
INLAY_BENCH(linear_128_768_768, Linear(128, 768, 768, nullptr));
INLAY_BENCH(linear_128_768_3072_relu, Linear(128, 768, 3072, "relu"));
INLAY_BENCH(linear_128_3072_768, Linear(128, 3072, 768, nullptr));
INLAY_BENCH(linear_1_768_3072, Linear(1, 768, 3072, nullptr));

}  // namespace
}  // namespace inlay::xnnpack

BENCHMARK_MAIN();
