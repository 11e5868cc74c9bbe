// Convolutions against plain loops: strides, dilations, groups, 1 to 3 axes, transposed, depthwise.
#include "core/backends/native/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "core/backends/native/testing/cores.h"
#include "core/backends/native/testing/kernel_jit.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinTypes.h"

namespace inlay::native {
namespace {

using mlir::Type;
using mlir::Value;
using testing::KernelJit;
using testing::Unchanged;
using testing::WithFarCaches;
using testing::WithOneMultiplyAdd;

struct Case {
  int64_t n, c, m, groups;
  Spatial in, kernel, stride, dilation, pad, pad_end;
  bool transposed = false;
  int64_t output_padding = 0;
};

std::vector<float> Random(int64_t n, int seed) {
  std::mt19937 random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return v;
}

Spatial OutputExtent(const Case& c) {
  Spatial out;
  for (int d = 0; d < 3; ++d) {
    int64_t window = (c.kernel[d] - 1) * c.dilation[d] + 1;
    out[d] = c.transposed ? (c.in[d] - 1) * c.stride[d] + window - c.pad[d] - c.pad_end[d] +
                                (c.in[d] == 1 ? 0 : c.output_padding)
                          : (c.in[d] + c.pad[d] + c.pad_end[d] - window) / c.stride[d] + 1;
  }
  return out;
}

// Scatter form of the transposed convolution, gather form of the other: neither is how the kernels do it.
std::vector<float> Reference(const Case& c, const Spatial& out, const std::vector<float>& x,
                             const std::vector<float>& w) {
  std::vector<float> y(c.n * c.m * out[0] * out[1] * out[2]);
  int64_t mg = c.m / c.groups, cg = c.c / c.groups, taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  auto at = [](const Spatial& e, int64_t d, int64_t h, int64_t i) { return (d * e[1] + h) * e[2] + i; };
  const Spatial& from = c.transposed ? c.in : out;
  const Spatial& to = c.transposed ? out : c.in;
  for (int64_t n = 0; n < c.n; ++n)
    for (int64_t m = 0; m < c.m; ++m)
      for (int64_t ch = 0; ch < cg; ++ch) {
        int64_t g = m / mg, input = g * cg + ch;
        const float* kernel = c.transposed ? &w[(input * mg + m % mg) * taps] : &w[(m * cg + ch) * taps];
        const float* image = &x[(n * c.c + input) * c.in[0] * c.in[1] * c.in[2]];
        float* result = &y[(n * c.m + m) * out[0] * out[1] * out[2]];
        for (int64_t d = 0; d < from[0]; ++d)
          for (int64_t h = 0; h < from[1]; ++h)
            for (int64_t i = 0; i < from[2]; ++i)
              for (int64_t kd = 0; kd < c.kernel[0]; ++kd)
                for (int64_t kh = 0; kh < c.kernel[1]; ++kh)
                  for (int64_t kw = 0; kw < c.kernel[2]; ++kw) {
                    int64_t a = d * c.stride[0] + kd * c.dilation[0] - c.pad[0];
                    int64_t b = h * c.stride[1] + kh * c.dilation[1] - c.pad[1];
                    int64_t e = i * c.stride[2] + kw * c.dilation[2] - c.pad[2];
                    if (a < 0 || b < 0 || e < 0 || a >= to[0] || b >= to[1] || e >= to[2]) continue;
                    float weight = kernel[(kd * c.kernel[1] + kh) * c.kernel[2] + kw];
                    if (c.transposed) {
                      result[at(to, a, b, e)] += image[at(from, d, h, i)] * weight;
                    } else {
                      result[at(from, d, h, i)] += image[at(to, a, b, e)] * weight;
                    }
                  }
      }
  return y;
}

// No line of the result that nobody asked for before its tile was computed. `asked`: 0 where somebody did.
void ExpectAskedFor(const ConvPlan& plan, const std::vector<float>& asked) {
  const ConvShape& shape = plan.shape;
  if (plan.method == ConvMethod::kBands || plan.is_depthwise()) return;
  constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(float));
  for (int64_t plane = 0; plane < shape.n * shape.m; ++plane) {
    int64_t last = -kLine;
    for (int64_t i = 0; i < shape.pixels(); ++i) {
      if (asked[plane * shape.pixels() + i] == 0) last = i;
      ASSERT_LT(i - last, kLine) << "plane " << plane << " pixel " << i;
    }
  }
}

// The result, and 32 elements more that nothing should write.
std::vector<float> Compute(const std::string& cpu, const ConvShape& shape, const std::vector<float>& x,
                           const std::vector<float>& w, bool inline_epilogue, bool cut = false,
                           Core (*with)(Core) = Unchanged) {
  KernelJit jit(cpu);
  ConvPlan plan = PlanConv(with(jit.core()), shape, 4);
  if (cut) {
    const int64_t uncut = plan.tasks();
    CutForThreads(&plan);
    EXPECT_GT(plan.tasks(), uncut);
  }
  std::vector<float> y(shape.n * shape.m * shape.pixels() + 32, 77.0f), asked = y;
  std::vector<float> packed(plan.packed_weight_elements() + 1);
  // NaN wherever nothing was written: what is read beyond the padding must not count.
  std::vector<float> padded(plan.padded_elements() + 1, NAN), scratch(plan.scratch_bytes() / 4 + 16, NAN);
  auto run = jit.Compile(7, [&](KernelBuilder& kb, const std::vector<Value>& p) {
    Type f32 = kb.b.getF32Type();
    ConvKernel kernel;
    kernel.plan = plan;
    kernel.accumulator = kernel.input_elements.stored = kernel.weight_element = f32;
    kernel.inline_epilogue = inline_epilogue;
    kernel.input = p[0];
    kernel.weights = p[1];
    if (plan.method != ConvMethod::kDepthwise) {
      EmitPackConvWeights(kb, plan, p[1], f32, f32, p[2]);
      kernel.weights = p[2];
    }
    if (plan.padded_input) {
      EmitPadInput(kb, plan, p[0], {f32}, f32, kb.Int(0), kb.Int(plan.copy_tasks()), p[3]);
      kernel.input = p[3];
    }
    auto element = [&](KernelBuilder& kb, Value pointer, Value batch, Value row, Value column) {
      Value channel = kb.Add(kb.Mul(batch, shape.m / shape.groups), row);
      return kb.At(pointer, kb.Add(kb.Mul(channel, shape.pixels()), column), f32);
    };
    kernel.epilogue = [&](KernelBuilder& kb, Value batch, Value row, Value column, Value acc) {
      kb.Store(acc, element(kb, p[4], batch, row, column));
    };
    kernel.ahead = [&](KernelBuilder& kb, Value batch, Value row, Value column) {
      kb.Store(kb.Zero(f32), element(kb, p[6], batch, row, column));
    };
    EmitConvTasks(kb, kernel, kb.Int(0), kb.Int(plan.tasks()), p[5]);
  });
  void* args[] = {const_cast<float*>(x.data()),
                  const_cast<float*>(w.data()),
                  packed.data(),
                  padded.data(),
                  y.data(),
                  scratch.data(),
                  asked.data()};
  run(args);
  ExpectAskedFor(plan, asked);
  for (size_t i = y.size() - 32; i < y.size(); ++i) EXPECT_EQ(asked[i], 77.0f);
  return y;
}

// cut: into more tasks, for threads.
ConvShape ShapeOf(const Case& c) {
  const Spatial out = OutputExtent(c);
  if (!c.transposed) return {c.n, c.c, c.m, c.groups, c.in, c.kernel, c.stride, c.dilation, c.pad, out};
  return TransposedConvShape(c.n, c.c, c.m, c.groups, c.in, c.kernel, c.stride, c.dilation, c.pad, out);
}

void Check(const std::string& cpu, const Case& c, bool cut = false, Core (*with)(Core) = Unchanged) {
  Spatial out = OutputExtent(c);
  SCOPED_TRACE(cpu + " in " + std::to_string(c.c) + "x" + std::to_string(c.in[1]) + "x" + std::to_string(c.in[2]) +
               " out " + std::to_string(c.m) + "x" + std::to_string(out[1]) + "x" + std::to_string(out[2]) +
               " kernel " + std::to_string(c.kernel[1]) + "x" + std::to_string(c.kernel[2]));
  const ConvShape shape = ShapeOf(c);
  std::vector<float> x = Random(c.n * c.c * shape.in_elements(), 1), w = Random(c.m * c.c / c.groups * shape.taps(), 2);
  std::vector<float> want = Reference(c, out, x, w);
  want.resize(want.size() + 32, 77.0f);
  std::vector<float> y = Compute(cpu, shape, x, w, c.n == 2, cut, with);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(want[i], y[i]) << "at " << i;
}

const Spatial k1{1, 1, 1}, k0{0, 0, 0}, k011{0, 1, 1}, k133{1, 3, 3}, k122{1, 2, 2};

class ConvTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "x86-64-v4" && !__builtin_cpu_supports("avx512vl")) GTEST_SKIP() << "no AVX-512 here";
    if (GetParam() == "x86-64-v3" && !__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  }
};

TEST_P(ConvTest, Pointwise) {
  Check(GetParam(), {1, 5, 19, 1, {1, 7, 7}, k1, k1, k1, k0, k0});
  Check(GetParam(), {2, 5, 13, 1, {1, 8, 12}, k1, k1, k1, k0, k0});
  Check(GetParam(), {1, 5, 13, 1, {1, 14, 14}, k1, k122, k1, k0, k0});
}

// Of enough rows to be worth it: panels, a rest of one, blocks of k, groups.
TEST_P(ConvTest, PointwiseWithCopiedPixels) {
  for (int64_t extent : {1, 7, 16, 33}) {
    Check(GetParam(), {2, 19, 70, 1, {1, extent, extent}, k1, k1, k1, k0, k0});
    Check(GetParam(), {1, 300, 49, 1, {1, extent, extent}, k1, k1, k1, k0, k0});
  }
  Check(GetParam(), {1, 3300, 48, 1, {1, 5, 9}, k1, k1, k1, k0, k0});
  Check(GetParam(), {2, 32, 128, 2, {1, 20, 20}, k1, k1, k1, k0, k0});
}

TEST_P(ConvTest, ThreeByThree) {
  for (int64_t extent : {1, 2, 7, 14, 28, 37}) {
    Check(GetParam(), {1, 5, 19, 1, {1, extent, extent}, k133, k1, k1, k011, k011});
    Check(GetParam(), {2, 3, 9, 1, {1, extent, extent}, k133, k122, k1, k011, k011});
  }
  Check(GetParam(), {1, 90, 19, 1, {1, 9, 33}, k133, k1, k1, k011, k011});  // k is blocked
}

TEST_P(ConvTest, NoChannels) {
  for (int64_t extent : {4, 7, 14}) Check(GetParam(), {1, 0, 150, 1, {1, extent, extent}, k1, k1, k1, k0, k0});
}

TEST_P(ConvTest, PixelRows) {
  // Many output channels, few pixels.
  for (int64_t extent : {4, 7, 14}) {
    Check(GetParam(), {2, 7, 150, 1, {1, extent, extent}, k133, k1, k1, k011, k011});
    Check(GetParam(), {1, 66, 101, 1, {1, extent, extent}, k1, k1, k1, k0, k0});
    Check(GetParam(), {1, 12, 202, 2, {1, 2 * extent, 2 * extent}, k1, k122, k1, k0, k0});
  }
  // Blocks of k, for L2 or for L1.
  Check(GetParam(), {1, 400, 40, 1, {1, 7, 7}, k133, k1, k1, k011, k011});
  Check(GetParam(), {1, 100, 40, 1, {1, 28, 28}, k133, k122, k1, k011, k011});
  for (int64_t channels : {95, 96, 331}) Check(GetParam(), {2, channels, 50, 1, {1, 7, 7}, k1, k1, k1, k0, k0});
  Check(GetParam(), {1, 9, 70, 1, {3, 7, 7}, {3, 3, 3}, k1, {1, 1, 2}, {1, 1, 2}, {1, 1, 2}});
}

// Tiles that cross image rows where L2 is late, the last one too; in blocks of k, by strides, dilations, groups,
// images.
TEST_P(ConvTest, PixelsAcrossImageRows) {
  const Spatial k022{0, 2, 2}, k155{1, 5, 5};
  for (int64_t extent : {5, 7, 13, 14}) {
    Check(GetParam(), {2, 330, 40, 1, {1, extent, extent + 2}, k133, k1, k1, k011, k011});
    Check(GetParam(), {1, 150, 49, 1, {1, 2 * extent, 2 * extent + 1}, k133, k122, k1, k011, k0});
    Check(GetParam(), {2, 300, 96, 2, {1, extent, extent}, k155, k1, k122, {0, 4, 4}, {0, 4, 4}});
    Check(GetParam(), {1, 300, 33, 1, {1, extent + 3, extent}, {1, 3, 2}, k1, k1, k011, k022});
  }
}

// Which tiles read from a copy where L2 is late: whole vectors of pixels and parts of them, strides, runs of channels
// that are not full, several tasks.
TEST_P(ConvTest, PixelsAsTilesReadThem) {
  for (int64_t extent : {1, 7, 10, 14}) {
    Check(GetParam(), {2, 403, 333, 1, {1, extent, extent}, k1, k1, k1, k0, k0});
    Check(GetParam(), {1, 804, 40, 2, {1, extent, extent}, k1, k1, k1, k0, k0});
    Check(GetParam(), {1, 403, 333, 1, {1, 2 * extent, 2 * extent - 1}, k1, k122, k1, k0, k0});
  }
  Check(GetParam(), {1, 403, 80, 1, {3, 8, 7}, k1, {2, 3, 1}, k1, k0, k0});
}

// Rows of pixels, and of weights as they lie and reversed, of groups, in blocks.
TEST_P(ConvTest, LastTilesShareTheTail) {
  const Case pixels{1, 403, 512, 1, {1, 7, 7}, k1, k1, k1, k0, k0}, strided{2, 403, 333, 1, {1, 14, 13}, k1, k122, k1},
      outputs{2, 32, 128, 1, {1, 30, 29}, k1, k1, k1}, grouped{1, 64, 256, 2, {1, 30, 30}, k1, k1, k1},
      taps{1, 20, 50, 1, {1, 30, 29}, k133, k1, k1, k011, k011},
      reversed{1, 20, 50, 1, {1, 30, 29}, k133, k122, k1, k011, k011, true};
  const Core core{32, 16, 32 << 10, 512 << 10};
  int64_t sharing = 0;
  for (const Case& c : {pixels, strided, outputs, grouped, taps, reversed}) {
    sharing += PlanConv(core, ShapeOf(c), 4).gemm.lower_tiles() > 0 ? 1 : 0;
    Check(GetParam(), c);
  }
  EXPECT_GE(sharing, 4);
  if (GetParam() != "x86-64") Check(GetParam(), {1, 300, 512, 1, {1, 30, 30}, k1, k1, k1}, /*cut=*/true);
}

TEST_P(ConvTest, PixelsAskedFor) {
  const auto check = [](const Case& c) {
    for (auto with : {WithFarCaches, WithOneMultiplyAdd}) Check(GetParam(), c, false, with);
  };
  // More pixels than half of L2: the next panel's are asked for.
  check({1, 300, 49, 1, {1, 33, 33}, k1, k1, k1, k0, k0});
  check({2, 300, 70, 1, {1, 32, 32}, k1, k1, k1, k0, k0});
  // More weights than a part of L2: blocks of rows.
  check({1, 500, 333, 1, {1, 28, 28}, k1, k1, k1, k0, k0});
  for (int64_t extent : {7, 14}) {
    check({2, 50, 70, 1, {1, extent, extent}, k133, k1, k1, k011, k011});
    check({1, 331, 50, 1, {1, extent, extent}, k1, k1, k1, k0, k0});
  }
  check({1, 50, 40, 1, {1, 28, 28}, k133, k122, k1, k011, k011});
  // Read in place, what the tile below reads asked for.
  check({1, 48, 48, 2, {1, 112, 112}, k133, k122, k1, k011, k011});
}

// With 16 registers, where LLVM reorders the loads of a tile as it likes, accumulators go to the stack and back. As in
// a model: its scratch lies on the stack, and which tasks there are is not known.
TEST(ConvKernelTest, AccumulatorsStayInRegisters) {
  KernelJit jit("x86-64-v3");
  for (const auto& [channels, extent, kernel_extent, stride] :
       {std::tuple{128, 12, 2, 1}, {64, 16, 2, 1}, {96, 10, 2, 1}, {64, 16, 4, 2}, {64, 12, 3, 1}, {64, 24, 5, 1}}) {
    SCOPED_TRACE(std::to_string(kernel_extent) + "x" + std::to_string(kernel_extent));
    const int64_t in_extent = (extent - 1) * stride + kernel_extent;
    const Spatial in{1, in_extent, in_extent}, out{1, extent, extent};
    const ConvShape shape{1, channels, 64, 1, in, {1, kernel_extent, kernel_extent}, {1, stride, stride}, k1, k0, out};
    const ConvPlan plan = PlanConv(jit.core(), shape, 4);
    std::istringstream assembly(jit.Assembly(4, [&](KernelBuilder& kb, const std::vector<Value>& p) {
      ConvKernel kernel;
      kernel.plan = plan;
      kernel.accumulator = kernel.input_elements.stored = kernel.weight_element = kb.b.getF32Type();
      kernel.input = p[0];
      kernel.weights = p[1];
      kernel.epilogue = [&](KernelBuilder& kb, Value, Value row, Value column, Value acc) {
        kb.Store(acc, kb.At(p[2], kb.Add(kb.Mul(row, extent * extent), column), kb.b.getF32Type()));
      };
      const Value scratch = kb.b.create<mlir::LLVM::AllocaOp>(kb.loc, p[0].getType(), kb.b.getI8Type(),
                                                              kb.Int(plan.scratch_bytes()), kLineBytes);
      const Value last = kb.Load(kb.b.getI64Type(), p[3]);
      EmitConvTasks(kb, kernel, kb.Int(0), last, scratch);
    }));
    // Vectors on the stack between two multiply-adds that nothing else stands between.
    int on_stack = 0, since_product = 0, products = 0, all_products = 0;
    for (std::string line; std::getline(assembly, line);) {
      if (line.find("vfmadd") != std::string::npos) {
        if (products > 0) on_stack += since_product;
        since_product = 0;
        ++products;
        ++all_products;
      } else if (line.find(':') != std::string::npos) {
        products = 0;  // of the code from this label on
      } else if (line.find("ymm") != std::string::npos && line.find("(%rsp)") != std::string::npos) {
        ++since_product;
      }
    }
    EXPECT_GT(all_products, 0);
    EXPECT_EQ(on_stack, 0) << "by method " << static_cast<int>(plan.method);
  }
}

TEST_P(ConvTest, GroupedPixelRows) {
  // Tiles of a part of an image row, of one, of several, of a rest of them.
  for (int64_t extent : {5, 7, 14, 28, 33}) {
    Check(GetParam(), {1, 48, 48, 3, {1, extent, extent}, k133, k1, k1, k011, k011});
    Check(GetParam(), {2, 32, 32, 2, {1, 2 * extent, 2 * extent}, k133, k122, k1, k011, k011});
  }
  // Read in place: segments of a row, padding on one side, strides, dilation, pads that crop.
  Check(GetParam(), {1, 32, 32, 2, {1, 9, 84}, k133, k1, k1, k011, k011});
  Check(GetParam(), {1, 32, 32, 2, {1, 20, 21}, {1, 5, 5}, {1, 3, 3}, k1, {0, 3, 4}, {0, 1, 0}});
  Check(GetParam(), {1, 32, 32, 2, {1, 14, 14}, k133, k1, {1, 3, 3}, {0, 3, 3}, {0, 3, 3}});
  Check(GetParam(), {1, 32, 32, 2, {1, 16, 16}, k133, k1, k1, {0, -1, -1}, {0, 1, 1}});
  Check(GetParam(), {1, 32, 32, 2, {1, 2, 7}, k133, k1, {1, 1, 2}, {0, 1, 2}, {0, 1, 2}});
  Check(GetParam(), {1, 32, 32, 2, {3, 5, 7}, {3, 3, 3}, k1, k1, {1, 1, 1}, {1, 1, 1}});
}

TEST_P(ConvTest, Bands) {
  const Spatial k155{1, 5, 5}, k144{1, 4, 4}, k022{0, 2, 2};
  for (int64_t channels : {4, 6, 24}) {  // of a group; rows of a tile, a rest of them
    for (int64_t extent : {7, 31}) {
      Check(GetParam(), {1, 2 * channels, 2 * channels, 2, {1, extent, extent}, k133, k1, k1, k011, k011});
      Check(GetParam(), {2, 2 * channels, 6 * channels, 2, {1, 2 * extent, extent}, k133, k122, k1, k011, k011});
    }
  }
  Check(GetParam(), {1, 8, 8, 2, {1, 37, 100}, k133, k1, k122, k022, k022});
  Check(GetParam(), {1, 8, 8, 2, {1, 37, 50}, k155, k133, k1, k022, k022});                        // stride 3
  Check(GetParam(), {1, 8, 8, 2, {1, 37, 150}, k144, k144, k1, k0, k0});                           // stride 4
  Check(GetParam(), {1, 8, 8, 2, {1, 20, 30}, k133, {1, 2, 1}, {1, 2, 3}, {0, 3, 0}, {0, 1, 4}});  // uneven pads
  Check(GetParam(), {1, 8, 8, 2, {1, 20, 30}, k133, k122, k1, {0, -2, -3}, {0, -1, 0}});           // which crop
  Check(GetParam(), {1, 8, 6, 2, {1, 9, 21}, {1, 1, 5}, k1, k1, {0, 0, 2}, {0, 0, 2}});            // one axis
  Check(GetParam(), {1, 3, 20, 1, {1, 224, 224}, k133, k122, k1, k011, k011});                     // in bands
  Check(GetParam(), {2, 16, 20, 1, {1, 120, 111}, k133, k122, k1, k011, k011});
  Check(GetParam(), {1, 6, 6, 2, {1, 40, 40}, k133, k1, k1, {0, 90, 90}, {0, 3, 90}});  // rows of nothing but padding
}

TEST_P(ConvTest, Strides) {
  Check(GetParam(), {1, 3, 10, 1, {1, 32, 30}, {1, 7, 7}, k122, k1, {0, 3, 3}, {0, 3, 3}});
  Check(GetParam(), {1, 3, 10, 1, {1, 32, 30}, {1, 4, 4}, {1, 4, 4}, k1, k0, k0});
  Check(GetParam(), {1, 3, 10, 1, {1, 32, 31}, {1, 2, 3}, {1, 3, 2}, {1, 2, 3}, {0, 0, 2}, {0, 1, 0}});
  Check(GetParam(), {1, 3, 10, 1, {1, 20, 20}, {1, 11, 11}, {1, 1, 4}, k1, {0, 2, 2}, {0, 2, 2}});
}

TEST_P(ConvTest, GroupsAndDilation) {
  Check(GetParam(), {2, 6, 9, 3, {1, 13, 11}, k133, k1, k1, k011, k011});
  Check(GetParam(), {2, 4, 6, 2, {1, 6, 6}, k1, k1, k1, k0, k0});
  Check(GetParam(), {1, 4, 6, 1, {1, 13, 11}, k133, k1, k122, {0, 2, 2}, {0, 2, 2}});
}

TEST_P(ConvTest, OneAndThreeAxes) {
  Check(GetParam(), {2, 4, 6, 1, {1, 1, 35}, {1, 1, 5}, {1, 1, 2}, k1, {0, 0, 2}, {0, 0, 1}});
  Check(GetParam(), {1, 3, 5, 1, {5, 6, 7}, {3, 3, 3}, k1, k1, {1, 1, 1}, {1, 1, 1}});
  Check(GetParam(), {1, 3, 5, 1, {5, 6, 7}, {2, 3, 2}, {2, 1, 2}, k1, {0, 1, 1}, {0, 0, 1}});
  Check(GetParam(), {1, 4, 4, 4, {5, 6, 7}, {3, 2, 3}, {2, 1, 1}, k1, {1, 1, 1}, {1, 1, 1}});
}

// Slices and rows of kernels that see padding alone are left out: by panels and by tiles, of one row and across rows
// and slices, in blocks of k; by strides, dilations, groups, of images that no row of the kernel sees, and reversed.
TEST_P(ConvTest, SkippedPadding) {
  const Spatial k333{3, 3, 3}, k111{1, 1, 1}, k255{2, 5, 5}, k177{1, 7, 7};
  const std::vector<Case> cases = {
      {2, 5, 19, 1, {1, 7, 40}, {1, 8, 8}, k1, k1, {0, 3, 3}, {0, 3, 3}},
      {1, 5, 19, 1, {1, 3, 127}, k133, k1, {1, 4, 1}, {0, 4, 1}, {0, 4, 1}},
      {1, 90, 19, 1, {1, 9, 33}, {1, 13, 3}, k1, k1, {0, 6, 1}, {0, 6, 1}},
      {2, 260, 9, 1, {1, 2, 61}, {1, 5, 5}, k122, k1, {0, 2, 2}, {0, 2, 2}},
      {2, 12, 150, 1, {2, 7, 7}, k333, k1, k1, k111, k111},
      {1, 330, 40, 1, {1, 7, 7}, k333, k1, k1, k111, k111},
      {1, 300, 20, 1, {2, 4, 40}, k333, k1, k1, k111, k111},  // blocks of k across the kernel's slices
      {1, 40, 70, 1, {4, 10, 10}, {5, 5, 5}, {2, 2, 2}, k1, {2, 2, 2}, {2, 2, 2}},
      {2, 12, 33, 1, {8, 13, 13}, {2, 2, 2}, k1, {4, 4, 4}, {2, 2, 2}, {2, 2, 2}},
      {1, 6, 34, 2, {2, 5, 19}, k255, {2, 1, 1}, k1, {0, 3, 2}, {3, 3, 2}},
      {1, 130, 64, 1, {1, 6, 5}, k177, k1, k1, {0, 3, 3}, {0, 3, 3}},
      {1, 40, 64, 1, {1, 5, 4}, k133, k1, {1, 3, 3}, {0, 9, 3}, {0, 2, 3}},
      {1, 7, 9, 1, {2, 3, 20}, {2, 1, 3}, k1, k1, {5, 0, 1}, {4, 0, 1}},
      {2, 12, 34, 2, {1, 2, 33}, {1, 4, 4}, k122, k1, k0, k0, true},
      {1, 5, 20, 1, {2, 3, 21}, k333, {2, 2, 1}, k1, k0, k0, true},
  };
  std::map<ConvMethod, int> skipping;
  for (const Case& c : cases) {
    const ConvPlan plan = PlanConv(Core{32, 16, 32 << 10, 512 << 10}, ShapeOf(c), 4);
    if (plan.skips_padding) ++skipping[plan.method];
    Check(GetParam(), c);
  }
  EXPECT_GE(skipping[ConvMethod::kPanels], 5);
  EXPECT_GE(skipping[ConvMethod::kPixelRows], 3);
}

// Sequences of few channels, in parts of a row: the last one shorter, windows that see either end, both or none of x,
// phases of strides (three: element by element), dilations, groups, more rows than a tile's, one channel.
TEST_P(ConvTest, SequencesInParts) {
  const auto sequence = [](int64_t n, int64_t c, int64_t m, int64_t groups, int64_t length, int64_t kernel,
                           int64_t stride, int64_t dilation, int64_t pad, int64_t pad_end) {
    return Case{n,
                c,
                m,
                groups,
                {1, 1, length},
                {1, 1, kernel},
                {1, 1, stride},
                {1, 1, dilation},
                {0, 0, pad},
                {0, 0, pad_end}};
  };
  std::vector<Case> cases;
  for (int64_t n : {1, 2}) {
    for (int64_t length : {2000, 5003}) {
      cases.push_back(sequence(n, 6, 6, 1, length, 11, 1, 1, 5, 5));
      cases.push_back(sequence(n, 5, 13, 1, length, 7, 1, 3, 18, 0));
      cases.push_back(sequence(n, 8, 1, 1, length, 7, 1, 1, 0, 6));
      cases.push_back(sequence(n, 1, 9, 1, length, 7, 1, 1, 3, 3));
      cases.push_back(sequence(n, 12, 8, 2, length, 3, 1, 200, 300, 200));
      cases.push_back(sequence(n, 6, 7, 1, length, 8, 4, 1, 2, 2));
      cases.push_back(sequence(n, 6, 7, 1, length, 5, 2, 2, 4, 3));
      cases.push_back(sequence(n, 4, 5, 1, length, 9, 3, 1, 4, 4));
      cases.push_back(sequence(n, 6, 7, 1, length, 1, 2, 1, 3, 0));
    }
  }
  cases.push_back(sequence(1, 32, 1, 1, 270001, 7, 1, 1, 3, 3));  // in some 150 parts
  int in_parts = 0, strided = 0, of_three = 0;
  for (const Case& c : cases) {
    const ConvPlan plan = PlanConv(Core{32, 16, 32 << 10, 512 << 10}, ShapeOf(c), 4);
    in_parts += plan.cuts_row();
    strided += plan.cuts_row() && c.stride[2] > 1;
    of_three += plan.cuts_row() && c.stride[2] == 3;
    Check(GetParam(), c);
  }
  EXPECT_GE(in_parts, 20);
  EXPECT_GE(strided, 4);
  EXPECT_GE(of_three, 1);
}

// Of rows that are no whole number of vectors, panels within one and across two.
TEST_P(ConvTest, PanelsWithinRows) {
  for (int64_t width : {49, 64, 97, 113}) {
    Check(GetParam(), {2, 6, 19, 1, {1, 5, width}, k133, k1, k1, k011, k011});
    Check(GetParam(), {1, 6, 19, 1, {2, 5, 2 * width}, {2, 3, 3}, k122, k1, k011, k011});
    // Rows that adjoin in their planes: in all of an image, and in its slices.
    Check(GetParam(), {2, 6, 19, 1, {1, 5, width}, {1, 3, 1}, k1, k1, {0, 1, 0}, {0, 1, 0}});
    Check(GetParam(), {1, 6, 19, 1, {2, 5, width}, {1, 3, 1}, k1, k1, {0, 1, 0}, {0, 1, 0}});
  }
}

TEST_P(ConvTest, Depthwise) {
  for (int64_t extent : {1, 3, 7, 14, 30}) {
    Check(GetParam(), {1, 5, 5, 5, {1, extent, extent}, k133, k1, k1, k011, k011});
    Check(GetParam(), {2, 3, 6, 3, {1, extent, extent}, {1, 5, 5}, k122, k1, {0, 2, 2}, {0, 2, 2}});
  }
  for (int64_t width : {16, 32, 40, 57}) {  // whole vectors a row, several, a rest
    Check(GetParam(), {1, 3, 3, 3, {1, 9, width}, k133, k1, k1, k011, k011});
    Check(GetParam(), {1, 3, 6, 3, {1, 9, 2 * width}, k133, k122, k1, k011, k011});
    Check(GetParam(), {2, 2, 2, 2, {1, 6, width}, {1, 2, 4}, k122, k1, k0, {0, 1, 2}});
    Check(GetParam(), {1, 2, 2, 2, {1, 4, width}, {1, 5, 5}, k1, k1, {0, 4, 4}, {0, 3, 3}});
  }
  Check(GetParam(),
        {1, 2, 2, 2, {1, 1, 40001}, k133, k1, k1, k011, k011});  // a row that is too long for a task's stack
  Check(GetParam(), {1, 2, 2, 2, {1, 31, 20}, k133, {1, 1, 2}, k1, k011, k011});
  Check(GetParam(), {1, 2, 2, 2, {1, 131, 150}, k133, k1, {1, 2, 2}, {0, 2, 2}, {0, 2, 2}});  // in bands
  Check(GetParam(), {1, 2, 2, 2, {1, 131, 150}, k133, k1, k1, k011, k011});
  Check(GetParam(), {1, 2, 4, 2, {1, 301, 299}, k133, k122, k1, k011, k011});
  Check(GetParam(), {1, 3, 3, 3, {1, 16, 15}, {1, 7, 7}, k1, k1, {0, 3, 3}, {0, 3, 3}});
}

TEST_P(ConvTest, DepthwiseKernelSizes) {
  for (int64_t kernel : {2, 7, 11, 12, 31}) {
    const Spatial taps{1, kernel, kernel}, pad{0, kernel / 2, kernel / 2},
        pad_end{0, (kernel - 1) / 2, (kernel - 1) / 2};
    for (int64_t extent : {1, 7, 33}) {  // kernels larger than the image, too
      Check(GetParam(), {1, 3, 3, 3, {1, extent, extent + 2}, taps, k1, k1, pad, pad_end});
      Check(GetParam(), {1, 19, 38, 19, {1, extent, extent}, taps, k122, k1, pad, pad_end});
    }
    Check(GetParam(), {1, 37, 37, 37, {1, 13, 9}, taps, {1, 3, 3}, k1, pad, pad_end});
    Check(GetParam(), {1, 17, 17, 17, {1, 40, 9}, {1, kernel, 3}, {1, 1, 2}, k1, {0, 1, 0}, {0, kernel, 2}});
    Check(GetParam(), {1, 2, 2, 2, {1, 1, 77}, {1, 1, kernel}, k1, {1, 1, 2}, {0, 0, kernel}, {0, 0, kernel}});
  }
}

TEST_P(ConvTest, DepthwiseChannels) {
  for (int64_t channels : {16, 31}) {
    for (int64_t extent : {7, 10, 14}) {
      Check(GetParam(),
            {2, channels, channels, channels, {1, extent, extent}, {1, 7, 7}, k1, k1, {0, 3, 3}, {0, 3, 3}});
      Check(GetParam(), {1, channels, 3 * channels, channels, {1, extent, extent}, k133, k122, k1, k0, {0, 2, 1}});
    }
  }
  Check(GetParam(),
        {1, 40, 40, 40, {1, 5, 6}, {1, 5, 5}, k1, k1, {0, 9, 7}, {0, 8, 6}});  // rows of nothing but padding
  Check(GetParam(), {1, 33, 66, 33, {1, 6, 5}, k133, k1, k1, k011, k011, true});
}

// Bands and squares that begin earlier, channels that do not fill a vector, several filters a channel.
TEST_P(ConvTest, DepthwiseLines) {
  for (int64_t width : {16, 37, 130, 601}) {
    for (int64_t kernel : {9, 31, 64}) {
      const Spatial taps{1, 1, kernel}, pad{0, 0, kernel / 2}, pad_end{0, 0, (kernel - 1) / 2};
      Check(GetParam(), {2, 33, 33, 33, {1, 1, width}, taps, k1, k1, pad, pad_end});
      Check(GetParam(), {1, 16, 32, 16, {1, 3, width}, taps, k1, k1, {0, 0, kernel - 1}, k0});
      Check(GetParam(), {1, 16, 16, 16, {1, 5, width + kernel}, taps, k122, k1, {0, 0, -1}, k0});
    }
  }
  Check(GetParam(), {1, 16, 32, 16, {1, 2, 50}, {1, 1, 20}, k1, k1, {0, 0, 40}, {0, 0, 70}});
  Check(GetParam(), {1, 16, 32, 16, {1, 2, 50}, {1, 1, 20}, k1, k1, {0, 0, 4}, {0, 0, 7}, true});
}

// Few panels are cut along rows too, be those weights or pixels.
TEST_P(ConvTest, FewPanelsInMoreTasks) {
  if (GetParam() == "x86-64") GTEST_SKIP() << "its panels are many";
  Check(GetParam(), {1, 64, 384, 1, {1, 14, 14}, k1, k1, k1, k0, k0}, /*cut=*/true);
  Check(GetParam(), {1, 384, 96, 1, {1, 14, 14}, k1, k1, k1, k0, k0}, /*cut=*/true);
}

// What lies beside an image's row or plane belongs to other results: a NaN there must not reach them.
TEST_P(ConvTest, DepthwiseNaNStaysInItsWindows) {
  for (int64_t stride : {1, 2}) {
    for (int64_t extent : {7, 14, 16, 35, 50}) {
      const int64_t channels = 18, out = (extent - 1) / stride + 1;
      const Spatial pad{0, 2, 2};
      ConvShape shape{1,  channels, channels,     channels, {1, extent, extent}, {1, 5, 5}, {1, stride, stride},
                      k1, pad,      {1, out, out}};
      std::vector<float> x = Random(channels * extent * extent, 1), w(channels * 25, 1.0f);
      const int64_t row = extent / 2, column = extent - 1;
      for (int64_t c = 0; c < channels; c += 2) x[(c * extent + row) * extent + column] = NAN;
      std::vector<float> y = Compute(GetParam(), shape, x, w, true);
      for (int64_t i = 0; i < channels * out * out; ++i) {
        int64_t c = i / out / out, h = i / out % out * stride, l = i % out * stride;
        bool sees = c % 2 == 0 && std::abs(h - row) <= 2 && std::abs(l - column) <= 2;
        ASSERT_EQ(sees, std::isnan(y[i])) << "extent " << extent << " stride " << stride << " at " << i;
      }
    }
  }
}

TEST_P(ConvTest, Transposed) {
  Check(GetParam(), {1, 4, 6, 1, {1, 6, 5}, k133, k122, k1, k011, k011, true, 1});
  Check(GetParam(), {2, 4, 6, 2, {1, 6, 5}, {1, 4, 4}, k122, k1, k011, k011, true});
  Check(GetParam(), {1, 4, 6, 1, {1, 6, 5}, k1, k122, k1, k0, k0, true});
  Check(GetParam(), {1, 4, 4, 4, {1, 6, 5}, k133, k122, k1, k011, k011, true});
  Check(GetParam(), {1, 2, 3, 1, {1, 6, 5}, {1, 2, 2}, k1, k1, {0, 2, 2}, {0, 1, 1}, true});  // pads crop
  Check(GetParam(), {1, 2, 3, 1, {3, 4, 5}, {2, 3, 3}, {2, 2, 1}, k1, {0, 1, 1}, {0, 1, 1}, true});
}

INSTANTIATE_TEST_SUITE_P(Cpus, ConvTest, ::testing::Values("x86-64", "x86-64-v3", "x86-64-v4"),
                         [](const auto& info) { return "cpu" + std::to_string(info.index); });

}  // namespace
}  // namespace inlay::native
