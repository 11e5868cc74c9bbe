// Time of each distinct convolution of a model, one core: conv_benchmark [cpu] [resnet50|mobilenet|grouped|depthwise]
// [layer name part], or of those named as c,m,groups,in,kernel,stride,pad or n,c,m,groups,HxW,HxW,stride,HxW (input,
// kernel, padding): conv_benchmark cpu shapes c,m,... c,m,...
// CUT=1: with the tasks that threads get. KC, MC, PREFETCH and AHEAD override the plan; of pointwise ones MR and NV do.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/backends/native/conv.h"
#include "core/backends/native/gemm_cost.h"
#include "core/backends/native/testing/kernel_jit.h"
#include "core/backends/native/testing/measuring.h"
#include "core/backends/native/testing/peak.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using testing::BiasRelu;
using testing::KernelJit;
using testing::Peak;
using testing::Seconds;
using testing::Setting;
using testing::WithCaches;

struct Layer {
  const char* name;
  int64_t c, m, groups, in, kernel, stride, pad, count;
  int64_t n = 1, width = 0, kernel_width = 0, pad_width = 0;  // 0: as the height's
};

const Layer kResNet50[] = {
    {"stem 7x7/2", 3, 64, 1, 224, 7, 2, 3, 1},
    {"2 1x1 64-64", 64, 64, 1, 56, 1, 1, 0, 1},
    {"2 1x1 256-64", 256, 64, 1, 56, 1, 1, 0, 2},
    {"2 3x3 64", 64, 64, 1, 56, 3, 1, 1, 3},
    {"2 1x1 64-256", 64, 256, 1, 56, 1, 1, 0, 4},
    {"3 1x1 256-128", 256, 128, 1, 56, 1, 1, 0, 1},
    {"3 3x3/2 128", 128, 128, 1, 56, 3, 2, 1, 1},
    {"3 1x1 128-512", 128, 512, 1, 28, 1, 1, 0, 4},
    {"3 1x1/2 256-512", 256, 512, 1, 56, 1, 2, 0, 1},
    {"3 1x1 512-128", 512, 128, 1, 28, 1, 1, 0, 3},
    {"3 3x3 128", 128, 128, 1, 28, 3, 1, 1, 3},
    {"4 1x1 512-256", 512, 256, 1, 28, 1, 1, 0, 1},
    {"4 3x3/2 256", 256, 256, 1, 28, 3, 2, 1, 1},
    {"4 1x1 256-1024", 256, 1024, 1, 14, 1, 1, 0, 6},
    {"4 1x1/2 512-1024", 512, 1024, 1, 28, 1, 2, 0, 1},
    {"4 1x1 1024-256", 1024, 256, 1, 14, 1, 1, 0, 5},
    {"4 3x3 256", 256, 256, 1, 14, 3, 1, 1, 5},
    {"5 1x1 1024-512", 1024, 512, 1, 14, 1, 1, 0, 1},
    {"5 3x3/2 512", 512, 512, 1, 14, 3, 2, 1, 1},
    {"5 1x1 512-2048", 512, 2048, 1, 7, 1, 1, 0, 3},
    {"5 1x1/2 1024-2048", 1024, 2048, 1, 14, 1, 2, 0, 1},
    {"5 1x1 2048-512", 2048, 512, 1, 7, 1, 1, 0, 2},
    {"5 3x3 512", 512, 512, 1, 7, 3, 1, 1, 2},
};
const Layer kMobileNetV2[] = {
    {"stem 3x3/2", 3, 32, 1, 224, 3, 2, 1, 1},      {"dw 112 32", 32, 32, 32, 112, 3, 1, 1, 1},
    {"pw 32-16", 32, 16, 1, 112, 1, 1, 0, 1},       {"pw 16-96", 16, 96, 1, 112, 1, 1, 0, 1},
    {"dw 112/2 96", 96, 96, 96, 112, 3, 2, 1, 1},   {"pw 96-24", 96, 24, 1, 56, 1, 1, 0, 1},
    {"pw 24-144", 24, 144, 1, 56, 1, 1, 0, 2},      {"dw 56 144", 144, 144, 144, 56, 3, 1, 1, 1},
    {"pw 144-24", 144, 24, 1, 56, 1, 1, 0, 1},      {"dw 56/2 144", 144, 144, 144, 56, 3, 2, 1, 1},
    {"pw 144-32", 144, 32, 1, 28, 1, 1, 0, 1},      {"pw 32-192", 32, 192, 1, 28, 1, 1, 0, 3},
    {"dw 28 192", 192, 192, 192, 28, 3, 1, 1, 2},   {"pw 192-32", 192, 32, 1, 28, 1, 1, 0, 2},
    {"dw 28/2 192", 192, 192, 192, 28, 3, 2, 1, 1}, {"pw 192-64", 192, 64, 1, 14, 1, 1, 0, 1},
    {"pw 64-384", 64, 384, 1, 14, 1, 1, 0, 4},      {"dw 14 384", 384, 384, 384, 14, 3, 1, 1, 4},
    {"pw 384-64", 384, 64, 1, 14, 1, 1, 0, 3},      {"pw 384-96", 384, 96, 1, 14, 1, 1, 0, 1},
    {"pw 96-576", 96, 576, 1, 14, 1, 1, 0, 3},      {"dw 14 576", 576, 576, 576, 14, 3, 1, 1, 2},
    {"pw 576-96", 576, 96, 1, 14, 1, 1, 0, 2},      {"dw 14/2 576", 576, 576, 576, 14, 3, 2, 1, 1},
    {"pw 576-160", 576, 160, 1, 7, 1, 1, 0, 1},     {"pw 160-960", 160, 960, 1, 7, 1, 1, 0, 3},
    {"dw 7 960", 960, 960, 960, 7, 3, 1, 1, 3},     {"pw 960-160", 960, 160, 1, 7, 1, 1, 0, 2},
    {"pw 960-320", 960, 320, 1, 7, 1, 1, 0, 1},     {"pw 320-1280", 320, 1280, 1, 7, 1, 1, 0, 1},
};

// RegNets (groups of 16 channels) and ResNeXt-50 32x4d (4, 8, 16, 32).
const Layer kGrouped[] = {
    {"regnet 56/2 64", 64, 64, 4, 112, 3, 2, 1, 1},    {"regnet 56 64", 64, 64, 4, 56, 3, 1, 1, 1},
    {"regnet 28/2 160", 160, 160, 10, 56, 3, 2, 1, 1}, {"regnet 28 160", 160, 160, 10, 28, 3, 1, 1, 3},
    {"regnet 14/2 384", 384, 384, 24, 28, 3, 2, 1, 1}, {"regnet 14 384", 384, 384, 24, 14, 3, 1, 1, 6},
    {"regnet 7/2 768", 768, 768, 48, 14, 3, 2, 1, 1},  {"regnet 7 768", 768, 768, 48, 7, 3, 1, 1, 2},
    {"resnext 56 128", 128, 128, 32, 56, 3, 1, 1, 3},  {"resnext 28/2 256", 256, 256, 32, 56, 3, 2, 1, 1},
    {"resnext 28 256", 256, 256, 32, 28, 3, 1, 1, 3},  {"resnext 14/2 512", 512, 512, 32, 28, 3, 2, 1, 1},
    {"resnext 14 512", 512, 512, 32, 14, 3, 1, 1, 5},  {"resnext 7/2 1024", 1024, 1024, 32, 14, 3, 2, 1, 1},
    {"resnext 7 1024", 1024, 1024, 32, 7, 3, 1, 1, 2},
};

// Depthwise: ConvNeXt's 7x7, EfficientNet's and MobileNetV3's 5x5, FastViT's and RepLKNet's large ones, two filters a
// channel.
const Layer kDepthwise[] = {
    {"3x3 112 32", 32, 32, 32, 112, 3, 1, 1, 1},         {"3x3/2 112 96", 96, 96, 96, 112, 3, 2, 1, 1},
    {"3x3 56 144", 144, 144, 144, 56, 3, 1, 1, 1},       {"3x3/2 56 144", 144, 144, 144, 56, 3, 2, 1, 1},
    {"3x3 28 192", 192, 192, 192, 28, 3, 1, 1, 1},       {"3x3/2 28 192", 192, 192, 192, 28, 3, 2, 1, 1},
    {"3x3 14 384", 384, 384, 384, 14, 3, 1, 1, 1},       {"3x3/2 14 576", 576, 576, 576, 14, 3, 2, 1, 1},
    {"3x3 7 960", 960, 960, 960, 7, 3, 1, 1, 1},         {"5x5 112 16", 16, 16, 16, 112, 5, 1, 2, 1},
    {"5x5/2 56 144", 144, 144, 144, 56, 5, 2, 2, 1},     {"5x5 28 240", 240, 240, 240, 28, 5, 1, 2, 1},
    {"5x5 14 480", 480, 480, 480, 14, 5, 1, 2, 1},       {"5x5/2 14 672", 672, 672, 672, 14, 5, 2, 2, 1},
    {"5x5 7 1152", 1152, 1152, 1152, 7, 5, 1, 2, 1},     {"7x7 112 32", 32, 32, 32, 112, 7, 1, 3, 1},
    {"7x7 56 64", 64, 64, 64, 56, 7, 1, 3, 1},           {"7x7 28 128", 128, 128, 128, 28, 7, 1, 3, 1},
    {"7x7 14 256", 256, 256, 256, 14, 7, 1, 3, 1},       {"7x7 7 512", 512, 512, 512, 7, 7, 1, 3, 1},
    {"7x7/2 56 64", 64, 64, 64, 56, 7, 2, 3, 1},         {"7x7/2 28 128", 128, 128, 128, 28, 7, 2, 3, 1},
    {"7x7 10 256", 256, 256, 256, 10, 7, 1, 3, 1},       {"9x9 28 128", 128, 128, 128, 28, 9, 1, 4, 1},
    {"9x9 14 256", 256, 256, 256, 14, 9, 1, 4, 1},       {"31x31 28 64", 64, 64, 64, 28, 31, 1, 15, 1},
    {"7x7/2 two 64 64", 64, 128, 64, 64, 7, 2, 3, 1},    {"7x7/2 two 32 128", 128, 256, 128, 32, 7, 2, 3, 1},
    {"7x7/2 two 16 256", 256, 512, 256, 16, 7, 2, 3, 1},
};

// Microseconds of one call, bias and relu fused.
double Measure(const std::string& cpu, const Layer& l, double* flops) {
  KernelJit jit(cpu);
  const Spatial in{1, l.in, l.width > 0 ? l.width : l.in}, stride{1, l.stride, l.stride};
  const Spatial kernel{1, l.kernel, l.kernel_width > 0 ? l.kernel_width : l.kernel};
  const Spatial pad{0, l.pad, l.width > 0 ? l.pad_width : l.pad};
  Spatial out{1, 1, 1};
  for (int axis = 1; axis < 3; ++axis) out[axis] = (in[axis] + 2 * pad[axis] - kernel[axis]) / stride[axis] + 1;
  const ConvShape s{l.n, l.c, l.m, l.groups, in, kernel, stride, {1, 1, 1}, pad, out};
  ConvPlan plan = PlanConv(WithCaches(jit.core()), s, 4);
  if (Setting("CUT", 0)) CutForThreads(&plan);
  plan.gemm.kc = std::min(plan.gemm.k, Setting("KC", plan.gemm.kc) / s.taps() * s.taps());
  plan.gemm.mc = std::min(plan.gemm.m, Setting("MC", plan.gemm.mc));
  plan.gemm.prefetch = Setting("PREFETCH", plan.gemm.prefetch);
  if (plan.method == ConvMethod::kPointwise) {
    plan.gemm.mr = Setting("MR", plan.gemm.mr);
    plan.gemm.shares_tail = Setting("SHARES_TAIL", plan.gemm.shares_tail);
    plan.gemm.nv = Setting("NV", plan.gemm.nv);
    plan.gemm.nv_last = CeilDiv(plan.gemm.n_last(), plan.lanes);
  }
  // COLD=1: as in a whole model, whose weights no cache holds.
  const int64_t packed_elements =
      (std::max(plan.packed_weight_elements(), l.m * l.c / l.groups * s.taps()) + 15) / 16 * 16;
  const int64_t copies = Setting("COLD", 0) ? std::min<int64_t>((128 << 20) / (packed_elements * 4) + 1, 1000) : 1;
  // FAR=N: y, and x where the tasks read it, are others for N calls, so that L2 holds neither.
  const int64_t far = Setting("FAR", 1), x_elements = RoundUp(l.n * l.c * s.in_elements(), 16),
                y_elements = RoundUp(l.n * l.m * s.pixels(), 16);
  auto floats = [](int64_t n) { return std::vector<float>(n + 64, 0.25f); };
  auto x = floats(x_elements * far), w = floats(l.m * l.c / l.groups * s.taps()), y = floats(y_elements * far),
       packed = floats(packed_elements * copies), padded = floats(plan.padded_elements()),
       scratch = floats(plan.scratch_bytes() / 4 + 16), bias = floats(l.m);
  auto aligned = [](std::vector<float>& v) {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(v.data()) + 63) / 64 * 64);
  };
  auto copy = jit.Compile(2, [&](KernelBuilder& kb, const std::vector<Value>& p) {
    Type f32 = kb.b.getF32Type();
    if (plan.padded_input) EmitPadInput(kb, plan, p[0], {f32}, f32, kb.Int(0), kb.Int(plan.copy_tasks()), p[1]);
  });
  double compile = jit.compile_ms;
  auto conv = [&](KernelBuilder& kb, const std::vector<Value>& p) {
    ConvKernel kernel;
    kernel.plan = plan;
    kernel.accumulator = kernel.input_elements.stored = kernel.weight_element = kb.b.getF32Type();
    kernel.input = p[0];
    kernel.weights = p[1];
    kernel.inline_epilogue = getenv("SLAB") == nullptr;
    auto channel = [&](Value batch, Value row) { return kb.Add(kb.Mul(batch, l.m / l.groups), row); };
    auto result = [&](Value channel, Value column) {
      return kb.At(p[2], kb.Add(kb.Mul(channel, s.pixels()), column), kb.b.getF32Type());
    };
    kernel.epilogue = [&](KernelBuilder& kb, Value batch, Value row, Value column, Value acc) {
      const Value of = channel(batch, row);
      Value b = kb.Load(kb.b.getF32Type(), kb.At(p[4], of, kb.b.getF32Type()));
      kb.Store(BiasRelu(kb, acc, b), result(of, column));
    };
    if (Setting("AHEAD", 4 * l.m * s.pixels() > LateImageBytes(plan.gemm.core))) {
      kernel.ahead = [&](KernelBuilder& kb, Value batch, Value row, Value column) {
        kb.Prefetch(result(channel(batch, row), column), true);
      };
    }
    EmitConvTasks(kb, kernel, kb.Int(0), kb.Int(plan.tasks()), p[3]);
  };
  if (const char* file = getenv("ASM")) std::ofstream(file) << jit.Assembly(5, conv);
  auto run = jit.Compile(5, conv);
  compile += jit.compile_ms;
  void* pad_args[] = {aligned(x), aligned(padded)};
  bool panels = plan.padded_input;
  void* args[] = {panels ? aligned(padded) : aligned(x), aligned(packed), aligned(y), aligned(scratch), bias.data()};
  *flops = 2.0 * l.n * l.m * l.c / l.groups * s.taps() * s.pixels();
  int64_t iterations = std::max<int64_t>(static_cast<int64_t>(5e8 / *flops) + 1, copies);
  double best_pad = 1e9;
  Peak peak(jit, plan.lanes);
  for (int round = 0; round < 9; ++round) {
    peak.Round(*flops, iterations, [&](int64_t i) {
      args[1] = aligned(packed) + i % copies * packed_elements;
      if (!panels) args[0] = aligned(x) + i % far * x_elements;
      args[2] = aligned(y) + i % far * y_elements;
      run(args);
    });
    const double start = Seconds();
    for (int64_t i = 0; panels && i < iterations; ++i) copy(pad_args);
    best_pad = std::min(best_pad, (Seconds() - start) / iterations);
  }
  const double best = peak.best_seconds();
  if (!panels) best_pad = 0;
  printf(
      "%-18s x%ld %8.1f us + pad %6.1f  %6.1f GF/s, %3.0f%% of %5.1f without pad, method %d tile %ldx%ld (last %ld) kc "
      "%ld band %ld model %3.0f%%, "
      "%.1f us at 4.1 GHz, compile "
      "%.0f ms\n",
      l.name, l.count, best * 1e6, best_pad * 1e6, *flops / (best + best_pad) / 1e9, 100 * peak.part(), peak.gflops(),
      static_cast<int>(plan.method), plan.gemm.mr, plan.gemm.nv, plan.gemm.nv_last, plan.gemm.kc, plan.band,
      plan.is_depthwise() ? 0 : 100 * *flops / (4.0 * plan.lanes) / EstimateCycles(plan.gemm), plan.cycles / 4100,
      compile);
  fflush(stdout);
  return (best + best_pad) * 1e6;
}

template <size_t n>
void MeasureAll(const std::string& cpu, const Layer (&layers)[n], const std::string& part) {
  double microseconds = 0, all_flops = 0, flops;
  for (const Layer& l : layers) {
    if (std::string(l.name).find(part) == std::string::npos) continue;
    microseconds += l.count * Measure(cpu, l, &flops);
    all_flops += l.count * flops;
  }
  printf("all: %.2f ms, %.1f GF/s\n", microseconds / 1e3, all_flops / microseconds / 1e3);
}

void MeasureShapes(const std::string& cpu, int num_shapes, char** shapes) {
  for (int i = 0; i < num_shapes; ++i) {
    Layer l{shapes[i], 0, 0, 0, 0, 0, 0, 0, 1};
    long v[11] = {};
    const char* square = "%ld,%ld,%ld,%ld,%ld,%ld,%ld";
    const char* any = "%ld,%ld,%ld,%ld,%ldx%ld,%ldx%ld,%ld,%ldx%ld";
    if (sscanf(shapes[i], any, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9, v + 10) == 11) {
      l = {shapes[i], v[1], v[2], v[3], v[4], v[6], v[8], v[9], 1, v[0], v[5], v[7], v[10]};
    } else if (sscanf(shapes[i], square, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6) == 7) {
      l = {shapes[i], v[0], v[1], v[2], v[3], v[4], v[5], v[6], 1};
    } else {
      fprintf(stderr, "neither c,m,groups,in,kernel,stride,pad nor n,c,m,groups,HxW,HxW,stride,HxW: %s\n", shapes[i]);
      continue;
    }
    double flops;
    Measure(cpu, l, &flops);
  }
}

}  // namespace
}  // namespace inlay::native

int main(int argc, char** argv) {
  std::string cpu = argc > 1 ? argv[1] : "", model = argc > 2 ? argv[2] : "resnet50", part = argc > 3 ? argv[3] : "";
  if (model == "resnet50") inlay::native::MeasureAll(cpu, inlay::native::kResNet50, part);
  if (model == "mobilenet") inlay::native::MeasureAll(cpu, inlay::native::kMobileNetV2, part);
  if (model == "grouped") inlay::native::MeasureAll(cpu, inlay::native::kGrouped, part);
  if (model == "shapes") inlay::native::MeasureShapes(cpu, argc - 3, argv + 3);
  if (model == "depthwise") inlay::native::MeasureAll(cpu, inlay::native::kDepthwise, part);
  return 0;
}
