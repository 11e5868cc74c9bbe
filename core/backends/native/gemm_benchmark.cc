// GFLOP/s of one core at the matmul shapes of real models, and what compiling the kernel costs:
//   gemm_benchmark [cpu] [m n k [packed|packt|direct|fly|flyt] [batch]]
// Beside each, in the same rounds: what the core can do at most, by a loop of nothing but multiply-adds in registers
// (the per cent are medians of rounds, the rates of the fastest), and by one that only reads Q.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/backends/native/gemm.h"
#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/testing/kernel_jit.h"
#include "core/backends/native/testing/measuring.h"
#include "core/backends/native/testing/peak.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Value;
using testing::KernelJit;
using testing::Peak;
using testing::Seconds;
using testing::Setting;
using testing::WithCaches;

float* Floats(int64_t n) {
  float* p = static_cast<float*>(aligned_alloc(64, (n * 4 + 4095) / 64 * 64));
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<float>(i % 7) * 0.1f;
  return p;
}

// Reads `elements` of p in order.
void EmitRead(KernelBuilder& kb, int64_t lanes, int64_t elements, Value p, Value to) {
  constexpr int64_t kUnrolled = 8;
  mlir::Type f32 = kb.b.getF32Type(), vector = KernelBuilder::Vector(lanes, f32);
  auto out = kb.For(kb.Int(0), kb.Int(elements - kUnrolled * lanes + 1), kUnrolled * lanes,
                    std::vector<Value>(kUnrolled, kb.Zero(vector)), [&](Value i, const std::vector<Value>& in) {
                      std::vector<Value> next;
                      for (int64_t u = 0; u < kUnrolled; ++u) {
                        Value loaded = kb.Load(vector, kb.At(p, kb.Add(i, u * lanes), f32));
                        next.push_back(kb.b.create<mlir::arith::AddFOp>(kb.loc, in[u], loaded));
                      }
                      return next;
                    });
  for (int64_t u = 0; u < kUnrolled; ++u) kb.Store(out[u], kb.At(to, u * lanes, f32));
}

void Measure(const std::string& cpu, int64_t m, int64_t n, int64_t k, const std::string& how, int64_t batch) {
  KernelJit jit(cpu);
  ColumnSource source = how == "direct" ? ColumnSource::kDirect
                        : how[0] == 'f' ? ColumnSource::kOnTheFly
                                        : ColumnSource::kPacked;
  bool transposed = how.back() == 't' && how != "direct";
  GemmPlan plan = PlanGemm(WithCaches(jit.core()), source, 4, batch, m, n, k, TailRows::kShared);
  // For finding the rules: MR, NV, KC, MC, SHARES_TAIL override them, AHEAD asks for results.
  plan.shares_tail = Setting("SHARES_TAIL", plan.shares_tail);
  plan.mr = Setting("MR", plan.mr);
  plan.nv = Setting("NV", plan.nv);
  plan.nv_last = CeilDiv(plan.n_last(), plan.lanes);
  plan.kc = Setting("KC", plan.kc);
  plan.mc = std::min(plan.m, Setting("MC", plan.mc));
  bool light = Setting("INLINE", 1);
  int64_t q_elements = source == ColumnSource::kPacked ? plan.packed_elements() : batch * n * k;
  plan.prefetch = Setting("PREFETCH", plan.prefetch);
  // COLD=1: as in a whole model, whose weights no cache holds.
  int64_t copies = Setting("COLD", 0) ? (128 << 20) / (q_elements * 4) + 1 : 1;
  float *a = Floats(batch * m * k), *q = Floats(q_elements * copies), *bias = Floats(n), *c = Floats(batch * m * n);
  void* scratch = Floats(plan.scratch_bytes() / 4 + 64);
  auto product = [&](KernelBuilder& kb, const std::vector<Value>& p) {
    GemmKernel g;
    g.plan = plan;
    g.accumulator = kb.b.getF32Type();
    g.p.pointer = p[0];
    g.p.element = g.accumulator;
    g.p.row_stride = k;
    g.p.batch_offset = [=](KernelBuilder& kb, Value batch) { return kb.Mul(batch, m * k); };
    g.q.pointer = p[1];
    g.q.element = g.accumulator;
    g.q.k_stride = transposed ? 1 : n;
    g.q.column_stride = transposed ? k : 1;
    int64_t per_batch = source == ColumnSource::kPacked ? plan.k * plan.packed_columns() : n * k;
    g.q.batch_offset = [=](KernelBuilder& kb, Value batch) { return kb.Mul(batch, per_batch); };
    g.inline_epilogue = light;
    if (Setting("AHEAD", ResultsComeLate(plan, 4 * m * n))) {
      g.ahead = [&](KernelBuilder& kb, Value batch, Value row, Value column) {
        kb.Prefetch(kb.At(p[3], kb.Add(kb.Mul(kb.Add(kb.Mul(batch, m), row), n), column), g.accumulator), true);
      };
    }
    g.epilogue = [&](KernelBuilder& kb, Value batch, Value row, Value column, Value acc) {
      Value x = kb.Load(acc.getType(), kb.At(p[2], column, g.accumulator));
      x = kb.b.create<mlir::arith::AddFOp>(kb.loc, x, acc);
      kb.Store(x, kb.At(p[3], kb.Add(kb.Mul(kb.Add(kb.Mul(batch, m), row), n), column), g.accumulator));
    };
    EmitGemmTasks(kb, g, kb.Int(0), kb.Int(plan.tasks()), p[4]);
  };
  if (const char* file = getenv("ASM")) std::ofstream(file) << jit.Assembly(5, product);
  auto run = jit.Compile(5, product);
  void* args[] = {a, q, bias, c, scratch};
  const double compile_ms = jit.compile_ms;
  Peak peak(jit, plan.lanes);
  auto read = jit.Compile(
      2, [&](KernelBuilder& kb, const std::vector<Value>& p) { EmitRead(kb, plan.lanes, q_elements, p[0], p[1]); });
  float* sums = Floats(8 * plan.lanes);
  void* read_args[] = {q, sums};
  double best_read = 1e9;
  double flops = 2.0 * batch * m * n * k;
  int64_t iterations = std::max<int64_t>(static_cast<int64_t>(2e9 / flops) + 1, copies);
  for (int round = 0; round < 9; ++round) {
    peak.Round(flops, iterations, [&](int64_t i) {
      args[1] = q + i % copies * q_elements;
      run(args);
    });
    const double start = Seconds();
    for (int64_t i = 0; i < iterations; ++i) {
      read_args[0] = q + i % copies * q_elements;
      read(read_args);
    }
    best_read = std::min(best_read, (Seconds() - start) / iterations);
  }
  const double best = peak.best_seconds();
  printf(
      "%-7s %4ldx %6ld x%6ld x%5ld tile %2ldx%ld (last %ld) kc %5ld mc %5ld  %8.1f us %6.1f GF/s %3.0f%% of %5.1f  "
      "Q %5.1f GB/s %3.0f%% of reading it  model %3.0f%% | compile %4.1f ms\n",
      how.c_str(), batch, m, n, k, plan.mr, plan.nv, plan.nv_last, plan.kc, plan.mc, best * 1e6, flops / best / 1e9,
      100 * peak.part(), peak.gflops(), 4.0 * batch * n * k / best / 1e9, 100 * best_read / best,
      100 * (flops / (4.0 * plan.lanes)) / EstimateCycles(plan), compile_ms);
  fflush(stdout);
  free(a);
  free(q);
  free(bias);
  free(c);
  free(scratch);
  free(sums);
}

}  // namespace
}  // namespace inlay::native

int main(int argc, char** argv) {
  using inlay::native::Measure;
  std::string cpu = argc > 1 ? argv[1] : "";
  if (argc > 4) {
    Measure(cpu, atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), argc > 5 ? argv[5] : "packed",
            argc > 6 ? atoll(argv[6]) : 1);
    return 0;
  }
  Measure(cpu, 128, 768, 768, "packed", 1);  // BERT
  Measure(cpu, 128, 3072, 768, "packed", 1);
  Measure(cpu, 128, 768, 3072, "packed", 1);
  Measure(cpu, 64, 768, 768, "packed", 1);  // GPT-2
  Measure(cpu, 64, 50257, 768, "packed", 1);
  Measure(cpu, 197, 384, 384, "packed", 1);  // ViT-small
  Measure(cpu, 197, 1536, 384, "packed", 1);
  Measure(cpu, 197, 384, 1536, "packed", 1);
  Measure(cpu, 1, 1000, 2048, "packed", 1);  // fully connected
  Measure(cpu, 1, 3072, 768, "packed", 1);
  Measure(cpu, 8, 1024, 1024, "packed", 1);
  Measure(cpu, 128, 128, 64, "flyt", 12);  // attention
  Measure(cpu, 128, 64, 128, "direct", 12);
  Measure(cpu, 197, 197, 64, "flyt", 6);
  Measure(cpu, 197, 64, 197, "direct", 6);
  Measure(cpu, 3136, 64, 256, "packed", 1);
  Measure(cpu, 3136, 256, 64, "packed", 1);
  Measure(cpu, 64, 3136, 64, "direct", 1);  // ResNet's 1x1
  Measure(cpu, 256, 3136, 64, "direct", 1);
  Measure(cpu, 64, 3136, 256, "direct", 1);
  Measure(cpu, 512, 784, 128, "direct", 1);
  Measure(cpu, 128, 784, 512, "direct", 1);
  Measure(cpu, 1024, 196, 256, "direct", 1);
  Measure(cpu, 256, 196, 1024, "direct", 1);
  Measure(cpu, 2048, 49, 512, "direct", 1);
  Measure(cpu, 512, 49, 2048, "direct", 1);
  Measure(cpu, 1000, 1000, 1000, "packed", 1);
  return 0;
}
