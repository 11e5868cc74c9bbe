// The contraction kernels against plain loops, on shapes that are no multiple of anything, for AVX-512 and AVX2.
#include "core/backends/native/gemm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <tuple>

#include "core/backends/native/packing.h"
#include "core/backends/native/rounding.h"
#include "core/backends/native/testing/cores.h"
#include "core/backends/native/testing/kernel_jit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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
  int64_t batch, m, n, k;
  bool transpose_b = false;
  ColumnSource source = ColumnSource::kPacked;
  bool inline_epilogue = false;
  int64_t force_kc = 0, force_mc = 0;
  bool cut = false;
  bool prefetch = false;
  Core (*with)(Core) = Unchanged;
  bool ahead = false;  // no line of the result that nobody asked for
  bool transpose_output = false;
  int64_t share_mr = 0;  // rows of a tile, the last of which have one less
};

template <typename T>
struct Buffer {
  explicit Buffer(int64_t n) : size(n), data(static_cast<T*>(aligned_alloc(64, (n * sizeof(T) + 127) / 64 * 64))) {
    memset(static_cast<void*>(data), 0, n * sizeof(T));
  }
  ~Buffer() { free(data); }
  int64_t size;
  T* data;
};

template <typename T>
Type ElementType(mlir::OpBuilder& b);
template <>
Type ElementType<float>(mlir::OpBuilder& b) {
  return b.getF32Type();
}
template <>
Type ElementType<double>(mlir::OpBuilder& b) {
  return b.getF64Type();
}
template <>
Type ElementType<int8_t>(mlir::OpBuilder& b) {
  return b.getI8Type();
}
template <>
Type ElementType<int32_t>(mlir::OpBuilder& b) {
  return b.getI32Type();
}
template <>
Type ElementType<int64_t>(mlir::OpBuilder& b) {
  return b.getI64Type();
}

// Integers of up to 8 bits, held in the 16-bit float formats.
struct Half {
  Half() = default;
  explicit Half(int x) {
    int e = 0;
    while (abs(x) >> (e + 1)) ++e;
    bits = x == 0 ? 0 : (x < 0) << 15 | (e + 15) << 10 | ((abs(x) << (10 - e)) & 1023);
  }
  operator float() const {
    float magnitude = bits == 0 ? 0 : std::ldexp(1024 + (bits & 1023), (bits >> 10 & 31) - 25);
    return bits >> 15 ? -magnitude : magnitude;
  }
  uint16_t bits = 0;
};
struct Bfloat {
  Bfloat() = default;
  explicit Bfloat(int x) {
    float f = x;
    uint32_t u;
    memcpy(&u, &f, 4);
    bits = u >> 16;
  }
  operator float() const {
    uint32_t u = bits << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
  }
  uint16_t bits = 0;
};
template <>
Type ElementType<Half>(mlir::OpBuilder& b) {
  return b.getF16Type();
}
template <>
Type ElementType<Bfloat>(mlir::OpBuilder& b) {
  return b.getBF16Type();
}

// C = P Q + bias (columns), compiled and run; then compared with plain loops. `Packed`: of Q's elements in kPacked.
template <typename T, typename Acc = T, typename Packed = Acc>
void Check(const std::string& cpu, const Case& c) {
  SCOPED_TRACE(cpu + " batch " + std::to_string(c.batch) + " m " + std::to_string(c.m) + " n " + std::to_string(c.n) +
               " k " + std::to_string(c.k));
  KernelJit jit(cpu);
  const Core core = c.with(jit.core());
  GemmPlan plan = c.transpose_output ? PlanTransposedGemm(core, sizeof(Acc), c.batch, c.m, c.n, c.k, 0, kLineBytes)
                                     : PlanGemm(core, c.source, sizeof(Acc), c.batch, c.m, c.n, c.k);
  if (c.share_mr > 0) {
    plan.mr = c.share_mr;
    plan.shares_tail = true;
    plan.mc = c.m;
    EXPECT_GT(plan.lower_tiles(), 0);
  }
  if (c.force_kc) plan.kc = c.force_kc;
  if (c.force_mc) plan.mc = RoundUp(c.force_mc, plan.mr);
  if (plan.mc >= plan.m) plan.mc = plan.m;
  if (c.cut) CutForThreads(&plan);
  plan.prefetch |= c.prefetch;
  if (c.cut) {
    EXPECT_GT(plan.row_blocks(), 1);
  }
  Buffer<T> a(c.batch * c.m * c.k), b(c.batch * c.k * c.n);
  Buffer<Acc> bias(c.n), out(c.batch * c.m * c.n + 64), asked(out.size);
  Buffer<Packed> packed(plan.packed_elements());
  Buffer<char> scratch(plan.scratch_bytes() + 64);
  memset(scratch.data, 77, scratch.size);
  std::mt19937 random(7);
  for (int64_t i = 0; i < a.size; ++i) a.data[i] = static_cast<T>(static_cast<int>(random() % 17) - 8);
  for (int64_t i = 0; i < b.size; ++i) b.data[i] = static_cast<T>(static_cast<int>(random() % 13) - 6);
  for (int64_t i = 0; i < c.n; ++i) bias.data[i] = static_cast<Acc>(i % 5);
  for (int64_t i = 0; i < out.size; ++i) out.data[i] = asked.data[i] = static_cast<Acc>(77);

  auto matrix = [&](KernelBuilder& kb, Value pointer) {
    StridedMatrix q;
    q.pointer = pointer;
    q.element = ElementType<T>(kb.b);
    q.k_stride = c.transpose_b ? 1 : c.n;
    q.j_stride = c.transpose_b ? c.k : 1;
    return q;
  };
  KernelJit::Function pack = jit.Compile(2, [&](KernelBuilder& kb, const std::vector<Value>& p) {
    kb.For(c.batch, [&](Value batch) {
      StridedMatrix q = matrix(kb, p[0]);
      q.pointer = kb.At(q.pointer, kb.Mul(batch, c.k * c.n), q.element);
      EmitPackColumns(kb, plan, q, ElementType<Packed>(kb.b),
                      kb.At(p[1], kb.Mul(batch, plan.k * plan.packed_columns()), ElementType<Packed>(kb.b)));
    });
  });
  KernelJit::Function run = jit.Compile(7, [&](KernelBuilder& kb, const std::vector<Value>& p) {
    GemmKernel g;
    g.plan = plan;
    g.accumulator = ElementType<Acc>(kb.b);
    g.inline_epilogue = c.inline_epilogue;
    g.transpose_output = c.transpose_output;
    const int64_t rows = c.transpose_output ? c.n : c.m, columns = c.transpose_output ? c.m : c.n;
    auto element = [=, &g](KernelBuilder& kb, Value pointer, Value batch, Value row, Value column) {
      return kb.At(pointer, kb.Add(kb.Mul(kb.Add(kb.Mul(batch, rows), row), columns), column), g.accumulator);
    };
    g.p.pointer = p[0];
    g.p.element = ElementType<T>(kb.b);
    g.p.row_stride = c.k;
    g.p.batch_offset = [&](KernelBuilder& kb, Value batch) { return kb.Mul(batch, c.m * c.k); };
    g.q.pointer = c.source == ColumnSource::kPacked ? p[2] : p[1];
    g.q.element = c.source == ColumnSource::kPacked ? ElementType<Packed>(kb.b) : ElementType<T>(kb.b);
    const StridedMatrix q = matrix(kb, p[1]);
    g.q.k_stride = q.k_stride.value();
    g.q.column_stride = q.j_stride.value();
    int64_t q_batch = c.source == ColumnSource::kPacked ? plan.k * plan.packed_columns() : c.k * c.n;
    g.q.batch_offset = [=](KernelBuilder& kb, Value batch) { return kb.Mul(batch, q_batch); };
    g.epilogue = [&](KernelBuilder& kb, Value batch, Value row, Value column, Value acc) {
      Value x = c.transpose_output ? kb.Load(g.accumulator, kb.At(p[3], row, g.accumulator))
                                   : kb.Load(acc.getType(), kb.At(p[3], column, g.accumulator));
      if (x.getType() != acc.getType()) x = kb.Splat(x, acc.getType());
      Value sum = mlir::isa<mlir::FloatType>(g.accumulator)
                      ? kb.b.create<mlir::arith::AddFOp>(kb.loc, acc, x).getResult()
                      : kb.Add(acc, x);
      kb.Store(sum, element(kb, p[4], batch, row, column));
    };
    if (c.ahead) {
      g.ahead = [&](KernelBuilder& kb, Value batch, Value row, Value column) {
        kb.Store(kb.Zero(g.accumulator), element(kb, p[6], batch, row, column));
      };
    }
    EmitGemmTasks(kb, g, kb.Int(0), kb.Int(plan.tasks()), p[5]);
  });
  void* pack_args[] = {b.data, packed.data};
  if (c.source == ColumnSource::kPacked) pack(pack_args);
  void* args[] = {a.data, b.data, packed.data, bias.data, out.data, scratch.data, asked.data};
  run(args);
  for (int64_t s = 0; s < c.batch; ++s) {
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        Acc want = bias.data[j];
        for (int64_t k = 0; k < c.k; ++k) {
          Acc y = static_cast<Acc>(c.transpose_b ? b.data[(s * c.n + j) * c.k + k] : b.data[(s * c.k + k) * c.n + j]);
          want = static_cast<Acc>(want + static_cast<Acc>(a.data[(s * c.m + i) * c.k + k]) * y);
        }
        const int64_t at = c.transpose_output ? (s * c.n + j) * c.m + i : (s * c.m + i) * c.n + j;
        ASSERT_EQ(want, out.data[at]) << "batch " << s << " row " << i << " column " << j;
      }
    }
  }
  for (int64_t i = c.batch * c.m * c.n; i < out.size; ++i) {
    ASSERT_EQ(out.data[i], static_cast<Acc>(77));
    ASSERT_EQ(asked.data[i], static_cast<Acc>(77));
  }
  for (int64_t i = plan.scratch_bytes(); i < scratch.size; ++i) ASSERT_EQ(scratch.data[i], 77);
  const int64_t columns = c.transpose_output ? c.m : c.n, line = kLineBytes / static_cast<int64_t>(sizeof(Acc));
  for (int64_t i = 0, last = -line; c.ahead && i < c.batch * c.m * c.n; ++i) {
    if (i % columns == 0) last = i - line;
    if (asked.data[i] == static_cast<Acc>(0)) last = i;
    ASSERT_LT(i - last, line) << "row " << i / columns << " column " << i % columns;
  }
}

class GemmTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "x86-64-v4" && !__builtin_cpu_supports("avx512vl")) GTEST_SKIP() << "no AVX-512 here";
    if (GetParam() == "x86-64-v3" && !__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  }
};

TEST_P(GemmTest, OddShapesPacked) {
  for (int64_t m : {1, 2, 7, 13, 37}) {
    for (int64_t n : {1, 16, 17, 31, 97}) Check<float>(GetParam(), {1, m, n, 19});
  }
}

TEST_P(GemmTest, ManyPanelsBesideOneThatIsPartlyPadding) {
  for (int64_t m : {5, 6, 8, 19}) {
    for (int64_t n : {331, 346, 354, 383}) Check<float>(GetParam(), {1, m, n, 20, false, ColumnSource::kPacked, true});
  }
}

TEST_P(GemmTest, BlockedInKAndRows) {
  Check<float>(GetParam(), {1, 67, 101, 97, false, ColumnSource::kPacked, false, 31, 0});
  Check<float>(GetParam(), {1, 67, 101, 97, false, ColumnSource::kPacked, true, 31, 20});
  Check<float>(GetParam(), {2, 64, 64, 64, true, ColumnSource::kPacked, true, 0, 20});
}

// Whole tiles take four steps of k at once where four divide k and its blocks; few tiles share a long next panel.
TEST_P(GemmTest, StepsOfFour) {
  for (int64_t k : {4, 63, 64, 66, 128}) {
    for (int64_t m : {6, 7, 43}) {
      Check<float>(GetParam(), {1, m, 80, k, false, ColumnSource::kPacked, true, 0, 0, false, true});
    }
    Check<float>(GetParam(), {1, 43, 80, k, false, ColumnSource::kPacked, false, 20, 0, false, true});
    Check<float>(GetParam(), {1, 43, 80, k, false, ColumnSource::kPacked, false, 18, 12, false, true});
  }
}

// In blocks of rows too, of which one has tiles of both kinds, or the smaller ones alone; and of k.
TEST_P(GemmTest, LastTilesShareTheTail) {
  for (auto with : {Unchanged, WithFarCaches}) {
    for (const ColumnSource source : {ColumnSource::kPacked, ColumnSource::kDirect, ColumnSource::kOnTheFly}) {
      for (const auto& [m, mr] : {std::pair<int64_t, int64_t>{50, 6}, {16, 5}, {5, 2}}) {
        Case c{2, m, 70, 24, false, source, /*inline_epilogue=*/true};
        c.share_mr = mr;
        c.with = with;
        c.ahead = c.prefetch = true;
        for (const bool transposed : {false, true}) {
          if (transposed && source != ColumnSource::kPacked) continue;
          c.transpose_output = transposed;
          for (const int64_t rows : {m, 2 * mr}) {
            c.force_mc = rows;
            c.force_kc = rows == m ? 0 : 9;
            Check<float>(GetParam(), c);
          }
        }
      }
      Case many{1, 1063, 34, 260, false, source};
      many.share_mr = 6;
      many.with = with;
      Check<float>(GetParam(), many);
      many.cut = source != ColumnSource::kDirect;
      Check<float>(GetParam(), many);
    }
  }
}

TEST_P(GemmTest, TransposedOutput) {
  for (int64_t m : {1, 7, 31, 196, 333}) {
    for (int64_t n : {1, 17, 64}) {
      Case c{1, m, n, 40};
      c.transpose_output = c.ahead = true;
      c.inline_epilogue = m % 2 == 0;
      for (auto with : {Unchanged, WithOneMultiplyAdd}) {
        c.with = with;
        c.force_kc = 0;
        Check<float>(GetParam(), c);
        c.force_kc = 16;  // three blocks
        Check<float>(GetParam(), c);
      }
    }
  }
}

TEST_P(GemmTest, TransposedOutputInBlocksOfRows) {
  for (int64_t rows : {48, 84, 100}) {
    for (int64_t kc : {0, 9}) {
      Case c{2, 333, 64, 27};
      c.transpose_output = c.ahead = true;
      c.inline_epilogue = rows == 84;
      c.force_mc = rows;
      c.force_kc = kc;
      Check<float>(GetParam(), c);
      Check<double>(GetParam(), c);
    }
  }
}

TEST_P(GemmTest, TransposedB) {
  Check<float>(GetParam(), {1, 5, 67, 53, true});
  Check<float>(GetParam(), {3, 33, 47, 64, true, ColumnSource::kOnTheFly});
  Check<float>(GetParam(), {3, 9, 15, 5, true, ColumnSource::kOnTheFly});
}

TEST_P(GemmTest, DirectAndOnTheFly) {
  Check<float>(GetParam(), {2, 29, 71, 23, false, ColumnSource::kDirect, true});
  Check<float>(GetParam(), {2, 29, 64, 23, false, ColumnSource::kDirect, true});
  Check<float>(GetParam(), {2, 29, 3, 23, false, ColumnSource::kDirect});
  Check<float>(GetParam(), {2, 29, 71, 123, false, ColumnSource::kOnTheFly, true, 40, 0});
}

// Rows of Q are copied panel by panel, of which the next is asked for: the last has none.
TEST_P(GemmTest, OnTheFlyFromRows) {
  for (ColumnSource source : {ColumnSource::kOnTheFly, ColumnSource::kDirect}) {
    for (int64_t n : {3, 64, 71}) {
      Check<float>(GetParam(), {2, 29, n, 123, false, source, true, 0, 0, false, true});
      Check<float>(GetParam(), {2, 1, n, 5, false, source, true, 0, 0, false, true});
    }
  }
  Check<float>(GetParam(), {2, 29, 71, 123, false, ColumnSource::kOnTheFly, true, 40, 12, false, true});
  Check<Half, float>(GetParam(), {2, 29, 71, 123, false, ColumnSource::kOnTheFly, true, 0, 0, false, true});
}

TEST_P(GemmTest, CutForThreads) {
  for (int64_t m : {150, 213}) {
    for (ColumnSource source : {ColumnSource::kPacked, ColumnSource::kDirect}) {
      Check<float>(GetParam(), {1, m, 45, 501, false, source, false, 0, 0, true});
      Check<float>(GetParam(), {2, m, 32, 501, false, source, true, 0, 0, true});
      Check<float>(GetParam(), {1, m, 96, 301, false, source, true, 0, 0, true});  // panels and blocks share factors
    }
    Check<float>(GetParam(), {1, m, 45, 900, false, ColumnSource::kPacked, false, 128, 0, true});  // k is blocked
  }
  Check<float>(GetParam(), {1, 1792, 20, 201, false, ColumnSource::kOnTheFly, false, 0, 0, true});
}

TEST_P(GemmTest, EmptyK) { Check<float>(GetParam(), {1, 3, 20, 0}); }

TEST_P(GemmTest, OtherTypes) {
  Check<double>(GetParam(), {2, 11, 29, 17});
  Check<int32_t>(GetParam(), {2, 11, 29, 17});
  Check<int64_t>(GetParam(), {1, 11, 29, 17, true});
  Check<int8_t>(GetParam(), {1, 11, 129, 17});
  if (GetParam() != "x86-64") {  // without F16C a half is converted by a library
    Check<Half, float>(GetParam(), {1, 11, 29, 17});
    Check<Half, float>(GetParam(), {2, 11, 29, 37, true, ColumnSource::kOnTheFly});
    Check<Half, float>(GetParam(), {2, 11, 29, 37, false, ColumnSource::kDirect});
    for (int64_t m : {1, 3, 8}) {
      Check<Half, float, Half>(GetParam(), {2, m, 67, 37});
      Check<Half, float, Half>(GetParam(), {1, m, 150, 300, true, ColumnSource::kPacked, false, 128});
    }
  }
  Check<Bfloat, float>(GetParam(), {1, 11, 29, 17});
  Check<Bfloat, float>(GetParam(), {2, 11, 29, 37, false, ColumnSource::kDirect});
  Check<Bfloat, float, Bfloat>(GetParam(), {2, 3, 67, 37, true});
  Check<Bfloat, float, Bfloat>(GetParam(), {1, 1, 700, 128});
}

// A model's packed weights span more than a GEPArg's 29 bits of constant.
TEST(KernelBuilderTest, FarConstantOffsets) {
  constexpr int64_t kBytes = int64_t{3} << 30;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  KernelJit jit("x86-64");
  const int64_t offsets[] = {(1 << 28) - 1, 1 << 28, (1 << 29) + 3, int64_t{5} << 29};  // bytes
  auto run = jit.Compile(1, [&](KernelBuilder& kb, const std::vector<Value>& p) {
    for (int64_t offset : offsets) {
      Value byte = kb.b.create<mlir::arith::ConstantIntOp>(kb.loc, 7, 8);
      kb.Store(byte, kb.At(p[0], offset, kb.b.getI8Type()));
    }
  });
  void* args[] = {memory};
  run(args);
  for (int64_t offset : offsets) EXPECT_EQ(static_cast<char*>(memory)[offset], 7) << offset;
  munmap(memory, kBytes);
}

// Where caches are far also blocks of k, and steps of four of any tile. A line of each of the next panel's rows asked
// for at a time.
TEST_P(GemmTest, RowsAreAskedForInSteps) {
  for (auto with : {WithFarCaches, WithOneMultiplyAdd}) {
    for (auto [m, n, k] : {std::tuple{64, 70, 3084}, {33, 41, 3083}, {70, 100, 36}, {7, 19, 40}, {1063, 34, 260}}) {
      Case c{1, m, n, k};
      c.with = with;
      Check<float>(GetParam(), c);
      for (ColumnSource source : {ColumnSource::kDirect, ColumnSource::kOnTheFly}) {
        Case rows{2, m, n, k % 1000, false, source};
        rows.with = with;
        rows.prefetch = true;
        Check<float>(GetParam(), rows);
      }
    }
  }
}

// Few steps for a tile's lines and many, none at all, and blocks of k.
TEST_P(GemmTest, ResultsAreAskedForInSteps) {
  for (auto with : {Unchanged, WithFarCaches, WithOneMultiplyAdd}) {
    for (const int64_t k : {0, 1, 3, 20, 64, 147}) {
      for (const ColumnSource source : {ColumnSource::kPacked, ColumnSource::kDirect, ColumnSource::kOnTheFly}) {
        for (const int64_t n : {67, 96}) {
          Case c{1, 57, n, k, false, source, /*inline_epilogue=*/n == 96};
          c.ahead = true;
          c.with = with;
          Check<float>(GetParam(), c);
          c.force_kc = 33;
          if (k > 33) Check<float>(GetParam(), c);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpus, GemmTest, ::testing::Values("x86-64", "x86-64-v3", "x86-64-v4"),
                         [](const auto& info) { return "cpu" + std::to_string(info.index); });

}  // namespace
}  // namespace inlay::native
