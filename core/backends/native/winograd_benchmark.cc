// 3x3 convolutions, direct beside Winograd, one core, bias and relu fused; in turns, minimum and median of CPU time.
// winograd_benchmark [cpu] [n c m extent [stride [groups]]]: one shape, or those of the table.
// ASM=prefix writes the kernels' assembly. Weights are taken from as many copies as no cache holds, as a whole model's
// are.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/backends/native/conv.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/testing/kernel_jit.h"
#include "core/backends/native/testing/measuring.h"
#include "core/backends/native/winograd.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using testing::KernelJit;
using testing::Seconds;
using testing::WithCaches;

struct Layer {
  int64_t n, c, m, extent, stride = 1, groups = 1;
};

const Layer kLayers[] = {
    {1, 64, 64, 56},      {1, 128, 128, 28},    {1, 256, 256, 14},   {1, 512, 512, 7},     {8, 512, 512, 7},
    {1, 32, 32, 112},     {1, 16, 16, 56},      {1, 32, 32, 56},     {1, 64, 64, 224},     {1, 128, 128, 112},
    {1, 256, 256, 56},    {1, 512, 512, 28},    {1, 512, 512, 14},   {1, 96, 96, 35},      {1, 192, 192, 17},
    {1, 80, 80, 13},      {4, 256, 256, 14},    {1, 64, 256, 28},    {1, 128, 128, 56, 2}, {1, 256, 256, 28, 2},
    {1, 512, 512, 14, 2}, {1, 64, 128, 112, 2}, {1, 32, 64, 224, 2}, {1, 64, 128, 56, 2},  {8, 512, 512, 14, 2}};
const int64_t kWeightBytes = getenv("WARM") ? 1 : 64 << 20;

struct Floats {
  explicit Floats(int64_t n) : all(n + 64, 0.25f), size(n) {}
  float* data() { return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(all.data()) + 63) / 64 * 64); }
  std::vector<float> all;
  int64_t size;
};

// `groups`: of which each is a batch element.
Epilogue BiasRelu(const ConvShape& s, const std::vector<Value>& p, int y, int bias, int64_t groups) {
  return [=](KernelBuilder& kb, Value batch, Value row, Value column, Value acc) {
    Type f32 = kb.b.getF32Type();
    Value channel = kb.Add(kb.Mul(batch, s.m / groups), row);
    Value b = kb.Load(f32, kb.At(p[bias], kb.Rem(channel, s.m), f32));
    kb.Store(testing::BiasRelu(kb, acc, b), kb.At(kb.At(p[y], kb.Mul(channel, s.pixels()), f32), column, f32));
  };
}

class Contender {
 public:
  Contender(const std::string& cpu, const ConvShape& s, std::optional<int64_t> winograd_m, const char* forced = nullptr)
      : jit_(cpu), x_(s.n * s.c * s.in_elements()), y_(s.n * s.m * s.pixels()), bias_(s.m) {
    if (winograd_m) {
      WinogradPlan plan = *PlanWinograd(WithCaches(jit_.core()), s, *winograd_m);
      if (forced != nullptr) Force(forced, &plan);
      Prepare(plan.packed_weight_elements(), plan.planes_elements(), plan.shared_input_elements(),
              plan.scratch_bytes());
      for (int part : {0, 1, 2}) {
        auto body = [&](KernelBuilder& kb, const std::vector<Value>& p) {
          WinogradKernel kernel{plan, plan.fused ? p[1] : p[2], p[3], BiasRelu(s, p, 4, 6, 1)};
          if (part == 0) EmitWinogradPlanes(kb, plan, p[0], kb.Int(0), kb.Int(plan.plane_line_items()), p[1]);
          if (part == 1) EmitWinogradInput(kb, plan, p[1], kb.Int(0), kb.Int(plan.transform_tasks()), p[2]);
          if (part == 2) EmitWinogradTasks(kb, kernel, kb.Int(0), kb.Int(plan.tasks()), p[5]);
        };
        run_.push_back(jit_.Compile(7, body));
        compile_ms += jit_.compile_ms;
        if (const char* file = getenv("ASM")) {
          std::ofstream(file + std::to_string(*winograd_m) + "." + std::to_string(part)) << jit_.Assembly(7, body);
        }
      }
      char text[200];
      snprintf(text, sizeof(text), "F(%ld)%s%s tile %ldx%ld rows %ld", plan.m(), plan.fused ? " fused" : "",
               plan.panels_outer ? " panels outer" : "", plan.gemm.mr, plan.gemm.nv, plan.block_rows);
      name = text;
      estimate = plan.cycles;
      return;
    }
    ConvPlan plan = PlanConv(WithCaches(jit_.core()), s, 4);
    Prepare(plan.packed_weight_elements(), plan.padded_elements(), 0, plan.scratch_bytes());
    run_.push_back(jit_.Compile(7, [&](KernelBuilder& kb, const std::vector<Value>& p) {
      Type f32 = kb.b.getF32Type();
      ConvKernel kernel;
      kernel.plan = plan;
      kernel.accumulator = kernel.input_elements.stored = kernel.weight_element = f32;
      if (plan.padded_input) EmitPadInput(kb, plan, p[0], {f32}, f32, kb.Int(0), kb.Int(plan.copy_tasks()), p[1]);
      kernel.input = plan.padded_input ? p[1] : p[0];
      kernel.weights = p[3];
      kernel.inline_epilogue = true;
      kernel.epilogue = BiasRelu(s, p, 4, 6, s.groups);
      EmitConvTasks(kb, kernel, kb.Int(0), kb.Int(plan.tasks()), p[5]);
    }));
    compile_ms = jit_.compile_ms;
    name = "direct " + std::to_string(static_cast<int>(plan.method));
    estimate = plan.cycles;
    auto chosen = ChooseWinograd(WithCaches(jit_.core()), plan, {});
    choice = chosen ? chosen->m() : 0;
  }

  void Run() {
    copy_ = (copy_ + 1) % copies_;
    void* args[] = {x_.data(), planes_->data(),  input_->data(), weights_->data() + copy_ * weight_elements_,
                    y_.data(), scratch_->data(), bias_.data()};
    seconds_.resize(run_.size());
    double all = 0;
    for (size_t i = 0; i < run_.size(); ++i) {
      double start = Seconds();
      run_[i](args);
      double took = Seconds() - start;
      all += took;
      if (runs_ == 0 || took < seconds_[i]) seconds_[i] = took;
    }
    ++runs_;
    times.push_back(all);
  }
  double Min() const { return *std::min_element(times.begin(), times.end()); }
  double Median() {
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }
  const std::vector<double>& parts() const { return seconds_; }

  std::string name;
  int64_t choice = 0;  // of the direct contender: the tile that the rule takes, 0: direct
  double estimate = 0, compile_ms = 0;
  std::vector<double> times;

 private:
  static void Force(const char* text, WinogradPlan* plan) {
    GemmPlan& g = plan->gemm;
    int fused, panels_outer;
    int64_t m = 0;
    sscanf(text, "%ld %ld %ld %ld %d %d", &m, &plan->block_rows, &g.mr, &g.nv, &fused, &panels_outer);
    plan->rows.m = plan->columns.m = m;
    plan->fused = fused;
    plan->panels_outer = panels_outer;
    g.m = g.mc = plan->block_tiles();
    g.nv_last = g.nv;
    g.n = g.nr();
    g.batch = plan->shape.groups * CeilDiv(CeilDiv(plan->group_outputs(), plan->lanes), g.nv) * plan->products();
  }
  void Prepare(int64_t weights, int64_t planes, int64_t input, int64_t scratch) {
    weight_elements_ = (weights + 15) / 16 * 16;
    copies_ = std::max<int64_t>(kWeightBytes / (weight_elements_ * 4), 1);
    weights_ = std::make_unique<Floats>(copies_ * weight_elements_ + 4096);
    planes_ = std::make_unique<Floats>(planes);
    input_ = std::make_unique<Floats>(input);
    scratch_ = std::make_unique<Floats>(scratch / 4 + 64);
  }

  KernelJit jit_;
  std::vector<KernelJit::Function> run_;
  Floats x_, y_, bias_;
  std::unique_ptr<Floats> weights_, planes_, input_, scratch_;
  int64_t weight_elements_ = 0, copies_ = 1, copy_ = 0, runs_ = 0;
  std::vector<double> seconds_;
};

void Compare(const std::string& cpu, const Layer& l) {
  ConvShape s;
  s.n = l.n;
  s.c = l.c;
  s.m = l.m;
  s.groups = l.groups;
  s.in = {1, l.extent, l.extent};
  s.stride = {1, l.stride, l.stride};
  s.out = {1, CeilDiv(l.extent, l.stride), CeilDiv(l.extent, l.stride)};
  s.kernel = {1, 3, 3};
  s.pad = {0, 1, 1};
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(std::make_unique<Contender>(cpu, s, std::nullopt));
  contenders.push_back(std::make_unique<Contender>(cpu, s, 2));
  contenders.push_back(std::make_unique<Contender>(cpu, s, 4));
  if (const char* plans = getenv("PLANS")) {  // "m rows mr nv fused panels_outer;..."
    for (const char* at = plans; at != nullptr; at = strchr(at, ';') ? strchr(at, ';') + 1 : nullptr) {
      contenders.push_back(std::make_unique<Contender>(cpu, s, atol(at), at));
    }
  }
  double flops = 2.0 * 9 * s.n * s.c / s.groups * s.m * s.pixels();
  int rounds = static_cast<int>(std::clamp(1e10 / flops, 10.0, 100.0));
  for (int i = 0; i < rounds; ++i) {
    for (auto& c : contenders) c->Run();
  }
  const char* rule[] = {"direct", "", "F(2)", "", "F(4)"};
  printf("%ldx%ldx%ldx%ld by %ld to %ld, groups %ld; by rule %s\n", l.n, l.c, l.extent, l.extent, l.stride, l.m,
         l.groups, rule[contenders[0]->choice]);
  for (auto& c : contenders) {
    printf("  %-34s %8.1f us min %8.1f median %6.1f direct GF/s, compile %3.0f ms, model %8.1f us; parts",
           c->name.c_str(), c->Min() * 1e6, c->Median() * 1e6, flops / c->Min() / 1e9, c->compile_ms,
           c->estimate / 4.1e3);
    for (double part : c->parts()) printf(" %.1f", part * 1e6);
    printf("\n");
  }
  fflush(stdout);
}

}  // namespace
}  // namespace inlay::native

int main(int argc, char** argv) {
  std::string cpu = argc > 1 ? argv[1] : "";
  if (argc > 5) {
    const int64_t stride = argc > 6 ? atol(argv[6]) : 1, groups = argc > 7 ? atol(argv[7]) : 1;
    inlay::native::Compare(cpu, {atol(argv[2]), atol(argv[3]), atol(argv[4]), atol(argv[5]), stride, groups});
    return 0;
  }
  for (const auto& layer : inlay::native::kLayers) inlay::native::Compare(cpu, layer);
  return 0;
}
