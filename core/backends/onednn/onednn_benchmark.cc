// Latency of the shim on the shapes of ResNet-50, MobileNetV2 and BERT: partitions built, lowered and run in this
// process, one thread unless BENCH_THREADS says otherwise. BENCH_DESCRIBE=1 prints what oneDNN chose.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/testing/cases.h"
#include "core/backends/onednn/lowering.h"
#include "core/backends/onednn/runtime/program_builder.h"

namespace inlay::onednn {
namespace {

using backend::testing::Case;
using backend::testing::CaseBuilder;
using ir::VarPtr;
using Shape = std::vector<int64_t>;

VarPtr Conv(CaseBuilder* b, VarPtr x, int64_t channels, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  const int64_t in = x->type.tensor().dims[1].value();
  return b->Op("conv", {x, b->Weight({channels, in / groups, kernel, kernel}), b->Weight({channels})},
               {{"pads", Shape(4, kernel / 2)}, {"strides", Shape{stride, stride}}, {"groups", groups}});
}

VarPtr Relu(CaseBuilder* b, VarPtr x) { return b->Op("relu", {x}); }

VarPtr Bottleneck(CaseBuilder* b, VarPtr x, int64_t inner, int64_t stride, bool project) {
  auto y = Relu(b, Conv(b, x, inner, 1));
  y = Relu(b, Conv(b, y, inner, 3, stride));
  y = Conv(b, y, inner * 4, 1);
  auto side = project ? Conv(b, x, inner * 4, 1, stride) : x;
  return Relu(b, b->Op("add", {y, side}));
}

Case ResNet50() {
  CaseBuilder b;
  auto x = Relu(&b, Conv(&b, b.In({1, 3, 224, 224}), 64, 7, 2));
  x = b.Op("max_pool", {x}, {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}});
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < blocks[stage]; ++i) {
      x = Bottleneck(&b, x, 64 << stage, i == 0 && stage > 0 ? 2 : 1, i == 0);
    }
  }
  x = b.Op("reduce_mean", {x}, {{"axes", Shape{2, 3}}});
  x = b.Op("add", {b.Op("matmul", {x, b.Weight({2048, 1000})}), b.Weight({1000})});
  return b.Done("resnet50", {x});
}

// One block as a partition of its own: its input and output are row-major.
Case OneBottleneck(int stage) {
  CaseBuilder b;
  auto x = b.In({1, 256 << stage, 56 >> stage, 56 >> stage});
  return b.Done("bottleneck", {Bottleneck(&b, x, 64 << stage, 1, false)});
}

Case InvertedResidual(int64_t channels, int64_t size) {
  CaseBuilder b;
  auto x = b.In({1, channels, size, size});
  auto relu6 = [&](VarPtr v) { return b.Op("clip", {v}, {{"min", 0.0}, {"max", 6.0}}); };
  auto y = relu6(Conv(&b, x, channels * 6, 1));
  y = relu6(Conv(&b, y, channels * 6, 3, 1, channels * 6));
  return b.Done("inverted_residual", {b.Op("add", {Conv(&b, y, channels, 1), x})});
}

Case Linear(int64_t m, int64_t k, int64_t n, const char* activation) {
  CaseBuilder b;
  auto y = b.Op("add", {b.Op("matmul", {b.In({1, m, k}), b.Weight({k, n})}), b.Weight({n})});
  if (activation != nullptr) y = b.Op(activation, {y});
  return b.Done("linear", {y});
}

Case Scores(int64_t heads, int64_t tokens, int64_t width) {
  CaseBuilder b;
  auto y = b.Op("matmul", {b.In({1, heads, tokens, width}), b.In({1, heads, tokens, width})}, {{"transpose_b", true}});
  y = b.Op("mul", {y, ir::MakeScalar(ir::DType::kF32, 0.125)});
  return b.Done("scores", {b.Op("softmax", {y}, {{"axis", int64_t{-1}}})});
}

// One loaded partition with buffers.
class Loaded {
 public:
  explicit Loaded(const Case& c) {
    auto lowered = Lower(c.function);
    if (!lowered.ok()) std::abort();
    flops = lowered->flops;
    const char* threads = std::getenv("BENCH_THREADS");
    context_.num_threads = threads == nullptr ? 1 : std::atoi(threads);
    context_.owner = this;
    context_.alloc = [](void* owner, int64_t bytes) -> void* { return static_cast<Loaded*>(owner)->New(bytes); };
    context_.set_error = [](void*, int32_t, const char* message) { std::fprintf(stderr, "%s\n", message); };
    auto bytes = Serialize(*lowered);
    for (const auto& param : c.function.params) args_.push_back(New(param->type.tensor().NumBytes(), 0.01f));
    for (const auto& result : c.function.body.results) args_.push_back(New(result.tensor_type().NumBytes()));
    context_.workspace = New(lowered->description.workspace_bytes);
    auto read = ReadAndCheck(bytes.data(), static_cast<int64_t>(bytes.size()));
    program_ = ProgramBuilder(read, context_, args_.data()).Build();
    if (std::getenv("BENCH_DESCRIBE") != nullptr) {
      for (const std::string& line : program_->Describe()) std::fprintf(stderr, "  %s\n", line.c_str());
    }
    std::fprintf(stderr, "%s: workspace %ld KB of %ld KB promised\n", c.name.c_str(), program_->workspace_bytes() >> 10,
                 lowered->description.workspace_bytes >> 10);
  }
  ~Loaded() {
    for (void* block : blocks_) std::free(block);
  }
  void Run() { program_->Run(context_, args_.data()); }
  double flops = 0;

 private:
  void* New(int64_t bytes, float value = 0) {
    auto* data = static_cast<float*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
    for (int64_t i = 0; i < bytes / 4; ++i) data[i] = value * static_cast<float>(i % 7 - 3);
    blocks_.push_back(data);
    return data;
  }
  InlayCallContext context_ = {};
  std::vector<void*> args_, blocks_;
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
INLAY_BENCH(bottleneck_56, OneBottleneck(0));
INLAY_BENCH(bottleneck_28, OneBottleneck(1));
INLAY_BENCH(bottleneck_14, OneBottleneck(2));
INLAY_BENCH(bottleneck_7, OneBottleneck(3));
INLAY_BENCH(inverted_residual_56, InvertedResidual(24, 56));
INLAY_BENCH(inverted_residual_14, InvertedResidual(96, 14));
INLAY_BENCH(linear_128_768_768, Linear(128, 768, 768, nullptr));
INLAY_BENCH(linear_128_768_3072_gelu, Linear(128, 768, 3072, "gelu"));
INLAY_BENCH(linear_128_3072_768, Linear(128, 3072, 768, nullptr));
INLAY_BENCH(linear_1_768_3072, Linear(1, 768, 3072, nullptr));
INLAY_BENCH(scores_12_128_64, Scores(12, 128, 64));

}  // namespace
}  // namespace inlay::onednn

BENCHMARK_MAIN();
