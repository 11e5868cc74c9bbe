#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "core/runtime/executor.h"
#include "core/runtime/memory.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace inlay::runtime {
namespace {

using ::testing::HasSubstr;

constexpr int kN = 1000;

// y = a + b, on all threads.
void AddTask(void* closure, int64_t begin, int64_t end, int32_t) {
  auto** args = static_cast<float**>(closure);
  for (int64_t i = begin; i < end; ++i) args[2][i] = args[0][i] + args[1][i];
}
int32_t AddRun(const InlayCallContext* ctx, void* const* args) {
  ctx->parallel_for(ctx->pool, kN, &AddTask, const_cast<void**>(args));
  return INLAY_OK;
}

// y = x * (2 * w), with 2 * w kept in the state.
std::atomic<int> live_states{0};
int32_t ScaleInit(const InlayCallContext* ctx, void* const* args, void** state) {
  if (args[0] != nullptr || args[2] != nullptr) return INLAY_E_INTERNAL;
  auto* packed = static_cast<float*>(ctx->alloc(ctx->owner, kN * sizeof(float)));
  if (packed == nullptr || !IsAligned(packed)) return INLAY_E_NO_MEMORY;
  const auto* w = static_cast<const float*>(args[1]);
  for (int i = 0; i < kN; ++i) packed[i] += 2 * w[i];
  *state = packed;
  ++live_states;
  return INLAY_OK;
}
int32_t ScaleRun(const InlayCallContext* ctx, void* const* args) {
  if (!IsAligned(ctx->workspace) || ctx->workspace == nullptr) return INLAY_E_INTERNAL;
  if (ctx->alloc(ctx->owner, 64) != nullptr) return INLAY_E_INTERNAL;  // not here
  std::memset(ctx->workspace, 0xff, 256);
  const auto* packed = static_cast<const float*>(ctx->state);
  for (int i = 0; i < kN; ++i) static_cast<float*>(args[2])[i] = static_cast<const float*>(args[0])[i] * packed[i];
  return INLAY_OK;
}
void ScaleDestroy(void*) { --live_states; }

int32_t FailRun(const InlayCallContext* ctx, void* const*) {
  ctx->set_error(ctx->owner, INLAY_E_LIBRARY, "the library said no");
  ctx->set_error(ctx->owner, INLAY_E_INTERNAL, "and again");
  return INLAY_E_LIBRARY;
}
int32_t FailSilently(const InlayCallContext*, void* const*) { return INLAY_E_NO_MEMORY; }
int32_t FailInTask(const InlayCallContext* ctx, void* const*) {
  ctx->parallel_for(
      ctx->pool, 8,
      [](void* c, int64_t, int64_t, int32_t) {
        auto* context = static_cast<const InlayCallContext*>(c);
        context->set_error(context->owner, INLAY_E_INTERNAL, "from a task");
      },
      const_cast<InlayCallContext*>(ctx));
  return INLAY_OK;  // a set error counts all the same
}

const TensorType kVector{DType::kF32, {kN}};
constexpr int64_t kBytes = kN * 4;
constexpr int64_t kAligned = 4032;

// load: c = w + w; then out0 = ((x + c) * 2w) [through the arena], out1 = x, out2 = w.
ExecutionPlan Plan() {
  ExecutionPlan plan;
  plan.inputs = {{"x", kVector}};
  plan.outputs = {{"y", kVector}, {"x", kVector}, {"w", kVector}};
  plan.params = {{"w", kVector}};
  plan.param_load_only = {false};
  plan.functions = {{"add", 2, 1, false, 0}, {"scale", 2, 1, true, 256}};
  plan.buffers = {{BufferKind::kInput, 0, 0, kBytes},  {BufferKind::kOutput, 0, 0, kBytes},
                  {BufferKind::kOutput, 1, 0, kBytes}, {BufferKind::kOutput, 2, 0, kBytes},
                  {BufferKind::kParam, 0, 0, kBytes},  {BufferKind::kConstant, 0, 0, kBytes},
                  {BufferKind::kArena, 0, 256, kBytes}};
  plan.constant_bytes = kAligned;
  plan.arena_bytes = 256 + kAligned;
  plan.num_states = 1;
  plan.load_steps = {{StepKind::kRun, 0, -1, -1, {4, 4, 5}, "fold"}, {StepKind::kInit, 1, 0, -1, {-1, 4, -1}, "scale"}};
  plan.run_steps = {{StepKind::kRun, 0, -1, -1, {0, 5, 6}, "sum"},
                    {StepKind::kRun, 1, 0, 0, {6, 4, 1}, "scale"},
                    {StepKind::kCopy, -1, -1, -1, {0, 2}, ""},
                    {StepKind::kCopy, -1, -1, -1, {4, 3}, ""}};
  return plan;
}
const std::vector<FunctionPointers> kFunctions = {{&AddRun, nullptr, nullptr}, {&ScaleRun, &ScaleInit, &ScaleDestroy}};

struct Tensors {
  std::vector<float> x, w, y, x_again, w_again;
  Tensors() : x(kN), w(kN), y(kN), x_again(kN), w_again(kN) {
    for (int i = 0; i < kN; ++i) {
      x[i] = i;
      w[i] = 0.5f * i;
    }
  }
  Status Run(const Executor& executor) {
    const void* in[] = {x.data()};
    void* out[] = {y.data(), x_again.data(), w_again.data()};
    return executor.Run(in, out);
  }
  bool Right() const {
    for (int i = 0; i < kN; ++i) {
      if (y[i] != (x[i] + 2 * w[i]) * (2 * w[i]) || x_again[i] != x[i] || w_again[i] != w[i]) return false;
    }
    return true;
  }
};

TEST(GraphExecutor, RunsWithStateConstantsAndCopies) {
  for (int threads : {1, 3}) {
    Tensors t;
    auto executor = LoadExecutor(Plan(), kFunctions, {t.w.data()}, {threads});
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    EXPECT_EQ(live_states, 1);
    EXPECT_EQ((*executor)->num_threads(), threads);
    for (int round = 0; round < 3; ++round) {
      t.y.assign(kN, -1);
      const Status s = t.Run(**executor);
      ASSERT_TRUE(s.ok()) << s.message();
      EXPECT_TRUE(t.Right());
    }
    EXPECT_GE((*executor)->memory_bytes(), 3 * kBytes);
  }
  EXPECT_EQ(live_states, 0);
}

TEST(GraphExecutor, SecondRunAllocatesNothing) {
  Tensors t;
  auto executor = LoadExecutor(Plan(), kFunctions, {t.w.data()}, {1});
  ASSERT_TRUE(executor.ok());
  ASSERT_TRUE(t.Run(**executor).ok());
  const struct mallinfo2 before = mallinfo2();
  for (int round = 0; round < 100; ++round) ASSERT_TRUE(t.Run(**executor).ok());
  const struct mallinfo2 after = mallinfo2();
  EXPECT_EQ(before.uordblks, after.uordblks);
  EXPECT_EQ(before.hblks, after.hblks);
}

TEST(GraphExecutor, ManyThreadsAtOnce) {
  Tensors shared;
  auto executor = LoadExecutor(Plan(), kFunctions, {shared.w.data()}, {2});
  ASSERT_TRUE(executor.ok());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 8; ++n) {
    threads.emplace_back([&, n] {
      Tensors t;
      for (float& x : t.x) x += n;
      for (int round = 0; round < 100; ++round) {
        if (!t.Run(**executor).ok() || !t.Right()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(GraphExecutor, ErrorsOfCompiledCodeNameThePartition) {
  Tensors t;
  auto run = [&](InlayRunFunction f) {
    auto executor =
        LoadExecutor(Plan(), {{&AddRun, nullptr, nullptr}, {f, &ScaleInit, &ScaleDestroy}}, {t.w.data()}, {2});
    EXPECT_TRUE(executor.ok());
    const Status first = t.Run(**executor);
    EXPECT_EQ(t.Run(**executor).message(), first.message());  // an error does not stick
    return first;
  };
  EXPECT_EQ(run(&FailRun).message(), "partition 'scale' (scale_run): the library said no (code 3)");
  EXPECT_EQ(run(&FailRun).code(), Code::kInternal);
  EXPECT_EQ(run(&FailSilently).message(), "partition 'scale' (scale_run): returned error code 2");
  EXPECT_EQ(run(&FailSilently).code(), Code::kResourceExhausted);
  EXPECT_THAT(run(&FailInTask).message(), HasSubstr("from a task"));
}

TEST(GraphExecutor, AFailedInitLeavesNothingBehind) {
  Tensors t;
  ExecutionPlan plan = Plan();
  plan.num_states = 2;
  plan.functions.push_back({"bad", 2, 1, true, 0});
  plan.load_steps.push_back({StepKind::kInit, 2, 1, -1, {-1, 4, -1}, "bad"});
  const FunctionPointers bad = {&FailRun,
                                [](const InlayCallContext* ctx, void* const*, void**) -> int32_t {
                                  ctx->alloc(ctx->owner, 1 << 20);
                                  ctx->set_error(ctx->owner, INLAY_E_LIBRARY, "no primitive");
                                  return INLAY_E_LIBRARY;
                                },
                                [](void*) { std::abort(); }};
  auto executor = LoadExecutor(plan, {kFunctions[0], kFunctions[1], bad}, {t.w.data()}, {1});
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().message(), "partition 'bad' (bad_init): no primitive (code 3)");
  EXPECT_EQ(live_states, 0);
}

TEST(GraphExecutor, RefusesWhatDoesNotFit) {
  Tensors t;
  EXPECT_THAT(LoadExecutor(Plan(), {kFunctions[0]}, {t.w.data()}, {1}).status().message(), HasSubstr("2 functions"));
  EXPECT_THAT(LoadExecutor(Plan(), kFunctions, {}, {1}).status().message(), HasSubstr("1 params"));
  EXPECT_THAT(LoadExecutor(Plan(), kFunctions, {nullptr}, {1}).status().message(), HasSubstr("no data for param 'w'"));
  EXPECT_THAT(
      LoadExecutor(Plan(), {kFunctions[0], {&ScaleRun, nullptr, nullptr}}, {t.w.data()}, {1}).status().message(),
      HasSubstr("no code for function scale"));
  ExecutionPlan plan = Plan();
  plan.buffers[6].offset = 1 << 20;
  EXPECT_EQ(LoadExecutor(plan, kFunctions, {t.w.data()}, {1}).status().code(), Code::kInvalidArgument);
}

TEST(GraphExecutor, ArenaThatIsTooBig) {
  Tensors t;
  ExecutionPlan plan = Plan();
  plan.arena_bytes = int64_t{1} << 46;
  auto executor = LoadExecutor(plan, kFunctions, {t.w.data()}, {1});
  ASSERT_TRUE(executor.ok());
  const Status s = t.Run(**executor);
  // 64 TiB of address space may exist on some machine; then the run is simply right.
  if (!s.ok()) {
    EXPECT_EQ(s.code(), Code::kResourceExhausted);
  }
}

TEST(GraphExecutor, ProfileRunsAndTimesEveryStep) {
  for (int threads : {1, 2}) {
    Tensors t;
    auto executor = LoadExecutor(Plan(), kFunctions, {t.w.data()}, {threads});
    ASSERT_TRUE(executor.ok());
    const void* in[] = {t.x.data()};
    void* out[] = {t.y.data(), t.x_again.data(), t.w_again.data()};
    std::vector<int64_t> ns(5, -1);
    ASSERT_TRUE((*executor)->Profile(in, out, ns.data()).ok());
    EXPECT_TRUE(t.Right());
    for (int step = 0; step < 4; ++step) EXPECT_GE(ns[step], 0) << step;
    EXPECT_EQ(ns[4], -1);  // one a step, no more
  }
}

TEST(GraphExecutor, ProfileReportsErrorsAsRunDoes) {
  Tensors t;
  auto executor = LoadExecutor(Plan(), {kFunctions[0], {&FailRun, &ScaleInit, &ScaleDestroy}}, {t.w.data()}, {1});
  ASSERT_TRUE(executor.ok());
  const void* in[] = {t.x.data()};
  void* out[] = {t.y.data(), t.x_again.data(), t.w_again.data()};
  std::vector<int64_t> ns(4);
  EXPECT_EQ((*executor)->Profile(in, out, ns.data()).message(),
            "partition 'scale' (scale_run): the library said no (code 3)");
}

#if defined(__SSE__)
// The sum of each thread's smallest normal number times a tenth, which is denormal: 0 where denormals are flushed.
void DenormalTask(void* closure, int64_t begin, int64_t end, int32_t) {
  auto* y = static_cast<float*>(closure);
  for (int64_t i = begin; i < end; ++i) {
    volatile float x = 1.2e-38f;
    volatile float tenth = x * 0.1f;  // flushed when it is written
    volatile float read = 1e-39f;     // and zero when it is read
    y[i] = tenth + read * 1e38f;
  }
}
int32_t DenormalRun(const InlayCallContext* ctx, void* const* args) {
  ctx->parallel_for(ctx->pool, kN, &DenormalTask, args[2]);
  return INLAY_OK;
}
int32_t DenormalThenFail(const InlayCallContext* ctx, void* const* args) {
  DenormalRun(ctx, args);
  _mm_setcsr(0x1f80);  // not even what compiled code does to the mode gets out
  return INLAY_E_LIBRARY;
}

// What a thread of the caller computes: whether its own mode is as it was.
bool KeepsDenormals() {
  volatile float x = 1.2e-38f;
  return x * 0.1f > 0;
}

TEST(GraphExecutor, DenormalsAreZeroInsideOnEveryThreadAndTheCallersModeComesBack) {
  const unsigned original = _mm_getcsr();
  constexpr unsigned kDefault = 0x1f80, kFlushing = 0x1f80 | 0x8040, kUpwards = 0x1f80 | 0x4000 | 0x20;
  for (InlayRunFunction function : {&DenormalRun, &DenormalThenFail}) {
    for (int threads : {1, 2, 4}) {
      for (unsigned mode : {kDefault, kFlushing, kUpwards}) {
        Tensors t;
        _mm_setcsr(mode);
        auto executor =
            LoadExecutor(Plan(), {kFunctions[0], {function, &ScaleInit, &ScaleDestroy}}, {t.w.data()}, {threads});
        const unsigned after_load = _mm_getcsr();
        t.y.assign(kN, 1);
        const bool ok = t.Run(**executor).ok();
        const unsigned after = _mm_getcsr();
        const bool keeps = KeepsDenormals();
        _mm_setcsr(original);
        EXPECT_EQ(after_load, mode);
        EXPECT_EQ(after, mode) << threads << " threads";
        EXPECT_EQ(ok, function == &DenormalRun);
        EXPECT_EQ(keeps, mode != kFlushing);
        for (int i = 0; i < kN; ++i) ASSERT_EQ(t.y[i], 0.0f) << i << " of " << threads << " threads";
      }
    }
  }
}
#endif

}  // namespace
}  // namespace inlay::runtime
