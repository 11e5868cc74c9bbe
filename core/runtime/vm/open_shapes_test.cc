// Open shapes: what a run finds out about its inputs, and what executor vm does with it.
#include "core/runtime/open_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "core/runtime/executor.h"

namespace inlay::runtime {
namespace {

using ::testing::HasSubstr;
using Kind = ShapeRegister::Kind;

TensorType F32(std::vector<int64_t> shape) { return {DType::kF32, std::move(shape)}; }

// ids: f32[batch, seq], x: f32[2*batch, 4], mask: f32[batch, slice(seq,1,5,2)]; also known: seq-3, batch*seq.
constexpr int64_t kBatch = -1, kSeq = -2, kTwice = -3, kSlice = -4, kLess = -5;
OpenShapes Shapes() {
  OpenShapes shapes;
  shapes.registers = {{Kind::kInput, "batch", {0, 0, 1}, {}},
                      {Kind::kInput, "seq", {0, 1, 1}, {}},
                      {Kind::kSlice, "slice(seq,1,5,2)", {1, 5, 2}, {{1, {1}}}}};
  shapes.extents = {{"batch", {{1, {0}}}},           {"seq", {{1, {1}}}},
                    {"2*batch", {{2, {0}}}},         {"slice(seq,1,5,2)", {{1, {2}}}},
                    {"seq-3", {{1, {1}}, {-3, {}}}}, {"batch*seq", {{1, {0, 1}}}}};
  return shapes;
}
std::vector<NamedTensor> Inputs() {
  return {{"ids", F32({kBatch, kSeq})}, {"x", F32({kTwice, 4})}, {"mask", F32({kBatch, kSlice})}};
}

std::string MatchError(std::vector<TensorType> given) {
  ShapeValues values;
  const Status s = Shapes().Match(Inputs(), given, &values);
  EXPECT_TRUE(s.ok() || s.code() == Code::kInvalidArgument);
  return s.message();
}

TEST(OpenShapes, AreBoundByTheInputs) {
  ShapeValues values;
  ASSERT_TRUE(Shapes().Check(Inputs()).ok());
  ASSERT_TRUE(Shapes().Match(Inputs(), {F32({3, 5}), F32({6, 4}), F32({3, 2})}, &values).ok());
  EXPECT_THAT(values.registers, ::testing::ElementsAre(3, 5, 2));
  EXPECT_THAT(values.extents, ::testing::ElementsAre(3, 5, 6, 2, 2, 15));
  EXPECT_EQ(Shapes().Resolve(F32({kTwice, 7, kLess}), values), F32({6, 7, 2}));
  EXPECT_EQ(Shapes().ToString(F32({kTwice, 7, kLess})), "f32[2*batch, 7, seq-3]");
  ASSERT_TRUE(Shapes().Match(Inputs(), {F32({0, 5}), F32({0, 4}), F32({0, 2})}, &values).ok());
}

TEST(OpenShapes, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(MatchError({F32({3, 5})}), "expected 3 inputs, got 1");
  EXPECT_EQ(MatchError({F32({3, 5, 1}), F32({6, 4}), F32({3, 2})}),
            "input 'ids': expected f32[batch, seq], got f32[3, 5, 1]");
  EXPECT_EQ(MatchError({F32({3, 5}), F32({6, 5}), F32({3, 2})}), "input 'x': expected f32[2*batch, 4], got f32[6, 5]");
  EXPECT_EQ(MatchError({{DType::kI64, {3, 5}}, F32({6, 4}), F32({3, 2})}),
            "input 'ids': expected f32[batch, seq], got i64[3, 5]");
  EXPECT_EQ(MatchError({F32({3, -5}), F32({6, 4}), F32({3, 2})}),
            "input 'ids': expected f32[batch, seq], got f32[3, -5]");
  EXPECT_EQ(MatchError({F32({3, 5}), F32({7, 4}), F32({3, 2})}),
            "input 'x': dimension 0 is 7, but '2*batch' is 6 (batch = 3 from input 'ids')");
  EXPECT_EQ(MatchError({F32({3, 5}), F32({6, 4}), F32({4, 2})}),
            "input 'mask': dimension 0 is 4, but 'batch' is 3 from input 'ids'");
  EXPECT_EQ(MatchError({F32({3, 5}), F32({6, 4}), F32({3, 5})}),
            "input 'mask': dimension 1 is 5, but 'slice(seq,1,5,2)' is 2 (seq = 5 from input 'ids')");
  EXPECT_EQ(MatchError({F32({3, 2}), F32({6, 4}), F32({3, 1})}),
            "the model needs 'seq' to be 3 or more; it is 2 from input 'ids'");
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(MatchError({F32({huge, huge}), F32({2 * huge, 4}), F32({huge, 2})}), "the extent 'batch*seq' overflows");
}

// x: f32[h, w], an extent that is below 0 in the run, and what else is needed.
std::string NeedError(std::vector<int64_t> x, OpenExtent needed, OpenExtent other = {"0", {}}) {
  OpenShapes shapes;
  shapes.registers = {{Kind::kInput, "h", {0, 0, 1}, {}},
                      {Kind::kInput, "w", {0, 1, 1}, {}},
                      {Kind::kFloorDiv, "((h+1)/2)", {2}, {{1, {0}}, {1, {}}}}};
  shapes.extents = {{"h", {{1, {0}}}}, {"w", {{1, {1}}}}, std::move(needed), std::move(other)};
  const std::vector<NamedTensor> inputs = {{"x", F32({-1, -2})}};
  EXPECT_TRUE(shapes.Check(inputs).ok());
  ShapeValues values;
  return shapes.Match(inputs, {F32(std::move(x))}, &values).message();
}

TEST(OpenShapes, WhatTheModelNeedsIsSaidOfTheSymbol) {
  const std::string need = "the model needs ";
  EXPECT_EQ(NeedError({3, 5}, {"h-8", {{1, {0}}, {-8, {}}}}), need + "'h' to be 8 or more; it is 3 from input 'x'");
  EXPECT_EQ(NeedError({8, 5}, {"h-8", {{1, {0}}, {-8, {}}}}), "");
  EXPECT_EQ(NeedError({3, 9}, {"-w+8", {{-1, {1}}, {8, {}}}}), need + "'w' to be 8 or less; it is 9 from input 'x'");
  EXPECT_EQ(NeedError({3, 8}, {"-w+8", {{-1, {1}}, {8, {}}}}), "");
  EXPECT_EQ(NeedError({3, 0}, {"3*h-10", {{3, {0}}, {-10, {}}}}), need + "'h' to be 4 or more; it is 3 from input 'x'");
  EXPECT_EQ(NeedError({4, 0}, {"-3*h+10", {{-3, {0}}, {10, {}}}}),
            need + "'h' to be 3 or less; it is 4 from input 'x'");
  EXPECT_EQ(NeedError({3, 5}, {"h-w", {{1, {0}}, {-1, {1}}}}),
            need + "'h-w' to be 0 or more; it is -2 (h = 3 from input 'x', w = 5 from input 'x')");
  EXPECT_EQ(NeedError({3, 5}, {"h*h-10", {{1, {0, 0}}, {-10, {}}}}),
            need + "'h*h-10' to be 0 or more; it is -1 (h = 3 from input 'x')");
  EXPECT_EQ(NeedError({4, 5}, {"((h+1)/2)-3", {{1, {2}}, {-3, {}}}}),
            need + "'((h+1)/2)' to be 3 or more; it is 2 (h = 4 from input 'x')");
  EXPECT_EQ(NeedError({4, 5}, {"2*((h+1)/2)-h-1", {{2, {2}}, {-1, {0}}, {-1, {}}}}),
            need + "'2*((h+1)/2)-h-1' to be 0 or more; it is -1 (h = 4 from input 'x')");
  // What a file may say.
  EXPECT_EQ(NeedError({4, 5}, {"odd", {{-1, {}}}}), need + "'odd' to be 0 or more; it is -1");
  EXPECT_EQ(NeedError({4, 5}, {"odd", {{0, {0}}, {-1, {}}}}),
            need + "'odd' to be 0 or more; it is -1 (h = 4 from input 'x')");
  EXPECT_EQ(NeedError({4, 5}, {"odd", {{1, {0}}, {INT64_MIN, {}}}}),
            need + "'odd' to be 0 or more; it is -9223372036854775804 (h = 4 from input 'x')");
  EXPECT_EQ(NeedError({1, 5}, {"odd", {{INT64_MIN, {0}}}}),
            need + "'odd' to be 0 or more; it is -9223372036854775808 (h = 1 from input 'x')");
}

// Terms lie as the planner gives them: a number first, then by the names.
TEST(OpenShapes, WhatTheModelNeedsToBeEqualIsSaidOnce) {
  const std::string need = "the model needs ";
  const OpenExtent less{"h-w", {{1, {0}}, {-1, {1}}}}, more{"-h+w", {{-1, {0}}, {1, {1}}}};
  EXPECT_EQ(NeedError({5, 5}, less, more), "");
  const std::string from = " (h = 3 from input 'x', w = 5 from input 'x')";
  EXPECT_EQ(NeedError({3, 5}, less, more), need + "'h' and 'w' to be equal; they are 3 and 5" + from);
  EXPECT_EQ(NeedError({3, 5}, more, less), need + "'h' and 'w' to be equal; they are 3 and 5" + from);
  EXPECT_EQ(NeedError({5, 3}, less, more),
            need + "'h' and 'w' to be equal; they are 5 and 3 (h = 5 from input 'x', w = 3 from input 'x')");
  const OpenExtent even{"-2*((h+1)/2)+h*w+3", {{3, {}}, {-2, {2}}, {1, {0, 1}}}};
  const OpenExtent odd{"2*((h+1)/2)-h*w-3", {{-3, {}}, {2, {2}}, {-1, {0, 1}}}};
  EXPECT_EQ(NeedError({3, 5}, odd, even), need + "'2*((h+1)/2)' and 'h*w+3' to be equal; they are 4 and 18" + from);
  // A number.
  EXPECT_EQ(NeedError({3, 5}, {"h-8", {{-8, {}}, {1, {0}}}}, {"-h+8", {{8, {}}, {-1, {0}}}}),
            need + "'h' to be 8; it is 3 from input 'x'");
  EXPECT_EQ(NeedError({3, 5}, {"2*h-8", {{-8, {}}, {2, {0}}}}, {"-2*h+8", {{8, {}}, {-2, {0}}}}),
            need + "'2*h' to be 8; it is 6 (h = 3 from input 'x')");
  EXPECT_EQ(NeedError({3, 5}, {"-h-w", {{-1, {0}}, {-1, {1}}}}, {"h+w", {{1, {0}}, {1, {1}}}}),
            need + "'h+w' to be 0; it is 8" + from);
  // None is the other's negation.
  EXPECT_EQ(NeedError({3, 5}, less, less), need + "'h-w' to be 0 or more; it is -2" + from);
  EXPECT_EQ(NeedError({3, 5}, less, {"-h+w-1", {{-1, {}}, {-1, {0}}, {1, {1}}}}),
            need + "'h-w' to be 0 or more; it is -2" + from);
  // What a file may say.
  EXPECT_EQ(NeedError({4, 5}, {"odd", {{-1, {}}}}, {"odd", {{1, {}}}}), need + "'0' to be 1; it is 0");
  EXPECT_EQ(NeedError({1, 5}, {"odd", {{INT64_MIN, {0}}}}, {"odd", {{INT64_MIN, {0}}}}),
            need + "'odd' to be 0 or more; it is -9223372036854775808 (h = 1 from input 'x')");
  const int64_t half = int64_t{1} << 62;
  EXPECT_EQ(NeedError({1, 2}, {"odd", {{half, {0}}, {-half, {1}}, {half, {0}}, {-1, {}}}},
                      {"odd", {{-half, {0}}, {half, {1}}, {-half, {0}}, {1, {}}}}),
            need + "'odd' to be 0 or more; it is -1 (h = 1 from input 'x', w = 2 from input 'x')");
}

TEST(OpenShapes, AMultipleIsDivided) {
  OpenShapes shapes;  // x: f32[2*n+1]
  shapes.registers = {{Kind::kInput, "n", {0, 0, 2}, {{1, {}}}}};
  shapes.extents = {{"2*n+1", {{2, {0}}, {1, {}}}}};
  const std::vector<NamedTensor> inputs = {{"x", F32({-1})}};
  ASSERT_TRUE(shapes.Check(inputs).ok());
  ShapeValues values;
  ASSERT_TRUE(shapes.Match(inputs, {F32({7})}, &values).ok());
  EXPECT_EQ(values.registers[0], 3);
  EXPECT_EQ(shapes.Match(inputs, {F32({8})}, &values).message(), "input 'x': dimension 0 is 8; it must be 2*n+1");
  EXPECT_EQ(shapes.Match(inputs, {F32({0})}, &values).message(), "input 'x': dimension 0 is 0; it must be 2*n+1");
}

// --- running -------------------------------------------------------------------------------------------------------

int64_t Symbol(void* const* args, int at, int index) { return static_cast<const int64_t*>(args[at])[index]; }

// y[n] = x[n] + 1; fills its workspace of 4 * n bytes.
int32_t Increment(const InlayCallContext* ctx, void* const* args) {
  const int64_t n = Symbol(args, 2, 0);
  if (n == 0) return INLAY_E_INTERNAL;  // such a call is left out
  std::memset(ctx->workspace, 0xff, 4 * n);
  const auto* x = static_cast<const float*>(args[0]);
  auto* y = static_cast<float*>(args[1]);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
  return INLAY_OK;
}
// y[n, n] = x[i] + x[j]
int32_t Outer(const InlayCallContext*, void* const* args) {
  const int64_t n = Symbol(args, 2, 0);
  const auto* x = static_cast<const float*>(args[0]);
  auto* y = static_cast<float*>(args[1]);
  for (int64_t i = 0; i < n * n; ++i) y[i] = x[i / n] + x[i % n];
  return INLAY_OK;
}
// less = x[0] < 5
int32_t Below(const InlayCallContext*, void* const* args) {
  *static_cast<bool*>(args[1]) = *static_cast<const float*>(args[0]) < 5;
  return INLAY_OK;
}
const std::vector<FunctionPointers> kCode = {{&Increment}, {&Outer}, {&Below}};

constexpr int64_t kCall = 1, kCopy = 3, kSwap = 4, kBranch = 5, kJump = 6, kReturn = 7, kOpen = 8;
constexpr int64_t kN = -1, kBytes = -2;
VmRegister Slot(int64_t slot, std::vector<int64_t> shape) { return {RegisterKind::kSlot, slot, F32(std::move(shape))}; }

// main(x: f32[n]) -> (y: f32[n], z: f32[n, n]); f is another function of the bytecode.
ExecutionPlan Plan(VmFunction main, VmFunction f) {
  ExecutionPlan plan;
  plan.inputs = {{"x", F32({kN})}};
  plan.outputs = {{"y", F32({kN})}, {"z", F32({kN, kN})}};
  plan.shapes.registers = {{Kind::kInput, "n", {0, 0, 1}, {}}};
  plan.shapes.extents = {{"n", {{1, {0}}}}, {"4*n", {{4, {0}}}}};
  plan.functions = {{"increment", 1, 1, false, 0, {"", {}, {"f32[n]", "f32[n]"}}, {0}, -1 - kBytes},
                    {"outer", 1, 1, false, 0, {"", {}, {"f32[n]", "f32[n, n]"}}, {0}},
                    {"below", 1, 1, false, 0, {"", {}, {"f32[n]", "bool[]"}}, {0}}};
  for (int32_t i = 0; i < 3; ++i) {
    Step site;
    site.function = i;
    site.name = plan.functions[i].symbol;
    plan.run_steps.push_back(site);
  }
  plan.bytecode.functions = {std::move(main)};
  if (!f.code.empty()) plan.bytecode.functions.push_back(std::move(f));
  return plan;
}

// y = f(x) + 1 with f(x) = x + 1; z = outer(y), through a copy of a slot.
ExecutionPlan Chain() {
  VmFunction main = {"main",
                     1,
                     2,
                     {{RegisterKind::kParam, 0, F32({kN})},
                      {RegisterKind::kResult, 0, F32({kN})},
                      {RegisterKind::kResult, 0, F32({kN, kN})},
                      Slot(0, {kN}),
                      Slot(1, {kN, kN})},
                     0,
                     {kCall, 1, 0, 3,          // 0
                      kOpen, 0, -2 - 1, 3, 1,  // 4: the workspace shares slot 1
                      kOpen, 1, -1, 1, 4,      // 9
                      kCopy, 4, 2,             // 14
                      kReturn}};
  main.num_slots = 2;
  VmFunction f = {"f", 1,
                  1,   {{RegisterKind::kParam, 0, F32({kN})}, {RegisterKind::kResult, 0, F32({kN})}},
                  0,   {kOpen, 0, -2, 0, 1, kReturn}};
  f.num_slots = 1;
  return Plan(std::move(main), std::move(f));
}

// while (v[0] < 5) v = v + 1; y = v; z = outer(v)
ExecutionPlan Loop() {
  VmFunction main = {"main",
                     1,
                     2,
                     {{RegisterKind::kParam, 0, F32({kN})},
                      {RegisterKind::kResult, 0, F32({kN})},
                      {RegisterKind::kResult, 0, F32({kN, kN})},
                      Slot(0, {kN}),
                      Slot(1, {kN}),
                      {RegisterKind::kFrame, 0, {DType::kBool, {}}}},
                     64,
                     {kCopy,   0, 3,             // 0
                      kOpen,   2, -1,     3, 5,  // 3
                      kBranch, 5, 21,            // 8
                      kOpen,   0, -2 - 2, 3, 4,  // 11
                      kSwap,   3, 4,             // 16
                      kJump,   3,                // 19
                      kCopy,   3, 1,             // 21
                      kOpen,   1, -1,     3, 2,  // 24
                      kReturn}};
  main.num_slots = 3;
  return Plan(std::move(main), {});
}

std::unique_ptr<Executor> Load(const ExecutionPlan& plan) {
  StatusOr<ExecutionPlan> read = ExecutionPlan::FromJson(plan.ToJson());
  EXPECT_TRUE(read.ok()) << read.status().message();
  if (!read.ok()) return nullptr;
  auto executor = LoadExecutor(std::move(*read), kCode, {}, {1});
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return executor.ok() ? std::move(*executor) : nullptr;
}

// All of y and z for x = 0.5, 1.5, ...
Status RunOn(const Executor& executor, int64_t n, std::vector<float>* y, std::vector<float>* z) {
  CallTypes types;
  const ExecutionPlan& plan = executor.plan();
  if (Status s = types.Bind(plan.shapes, plan.inputs, plan.outputs, {F32({n})}); !s.ok()) return s;
  EXPECT_EQ(types.outputs()[1].type, F32({n, n}));
  std::vector<float> x(n + 1);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) + 0.5f;
  y->assign(n + 1, -1);
  z->assign(n * n + 1, -1);
  const void* in[] = {x.data()};
  void* out[] = {y->data(), z->data()};
  return executor.Run(in, out, types.shapes());
}

bool RunsWell(const Executor& executor, int64_t n, float added) {
  std::vector<float> y, z;
  const Status s = RunOn(executor, n, &y, &z);
  EXPECT_TRUE(s.ok()) << s.message();
  bool good = s.ok() && y[n] == -1 && z[n * n] == -1;  // nothing is written behind the ends
  for (int64_t i = 0; good && i < n; ++i) good = y[i] == static_cast<float>(i) + 0.5f + added;
  for (int64_t i = 0; good && i < n * n; ++i) good = z[i] == y[i / n] + y[i % n];
  return good;
}

TEST(VmOpenShapes, EverySizeRuns) {
  auto chain = Load(Chain()), loop = Load(Loop());
  ASSERT_TRUE(chain != nullptr && loop != nullptr);
  for (int64_t n : {1, 2, 300, 7, 0, 17, 16, 301, 3}) {
    EXPECT_TRUE(RunsWell(*chain, n, 2)) << n;
    EXPECT_TRUE(n == 0 || RunsWell(*loop, n, 5)) << n;
  }
}

TEST(VmOpenShapes, WhatWasThereIsUsedAgain) {
  auto executor = Load(Chain());
  ASSERT_NE(executor, nullptr);
  ASSERT_TRUE(RunsWell(*executor, 100, 2));
  const int64_t bytes = executor->memory_bytes();
  EXPECT_GE(bytes, 4 * 100 * 101);
  for (int64_t n : {100, 1, 99, 50, 100}) {
    ASSERT_TRUE(RunsWell(*executor, n, 2));
    EXPECT_EQ(executor->memory_bytes(), bytes) << n;
  }
  ASSERT_TRUE(RunsWell(*executor, 200, 2));
  EXPECT_GT(executor->memory_bytes(), bytes);
  EXPECT_LT(executor->memory_bytes(), 4 * 200 * 201 + 64 * 1024);  // the smaller frame is gone
}

TEST(VmOpenShapes, ManyThreadsAtOnce) {
  auto executor = Load(Loop());
  ASSERT_NE(executor, nullptr);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 100; ++i) wrong += !RunsWell(*executor, 1 + (7 * t + i) % 40, 5);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(VmOpenShapes, HostileSizesAreErrors) {
  auto executor = Load(Chain());
  ASSERT_NE(executor, nullptr);
  const ExecutionPlan& plan = executor->plan();
  CallTypes types;
  auto bind = [&](int64_t n) { return types.Bind(plan.shapes, plan.inputs, plan.outputs, {F32({n})}); };
  EXPECT_THAT(bind(int64_t{1} << 32).message(), HasSubstr("'z' would be"));
  EXPECT_THAT(bind(INT64_MAX).message(), HasSubstr("overflows"));
  EXPECT_EQ(bind(-1).code(), Code::kInvalidArgument);
  const void* in[] = {nullptr};
  void* out[] = {nullptr, nullptr};
  EXPECT_EQ(executor->Run(in, out).message(), "the model's shapes are open: a run must give them");
  ASSERT_TRUE(bind(int64_t{1} << 26).ok());  // 2^54 bytes
  const Status s = executor->Run(in, out, types.shapes());
  EXPECT_EQ(s.code(), Code::kResourceExhausted);
  EXPECT_EQ(s.message(), "a tensor of 'main' would be too large");
  EXPECT_TRUE(RunsWell(*executor, 5, 2));  // and is as good as before
}

TEST(VmOpenShapes, DamageIsRefused) {
  struct Case {
    const char* message;
    std::function<void(ExecutionPlan*)> damage;
  };
  auto main = [](ExecutionPlan* p) -> VmFunction& { return p->bytecode.functions[0]; };
  const Case cases[] = {
      {"has no such source", [](ExecutionPlan* p) { p->shapes.registers[0].args = {1, 0, 1}; }},
      {"has no such source", [](ExecutionPlan* p) { p->shapes.registers[0].args = {0, 1, 1}; }},
      {"has no such source", [](ExecutionPlan* p) { p->shapes.registers[0].args = {0, 0, 0}; }},
      {"has no such source", [](ExecutionPlan* p) { p->shapes.registers[0].args = {0, 0}; }},
      {"comes later", [](ExecutionPlan* p) { p->shapes.registers[0].sum = {{1, {0}}}; }},
      {"missing register", [](ExecutionPlan* p) { p->shapes.extents[1].sum = {{1, {1}}}; }},
      {"missing register", [](ExecutionPlan* p) { p->shapes.extents[1].sum = {{1, {-1}}}; }},
      {"impossible shape", [](ExecutionPlan* p) { p->inputs[0].type.shape = {-3}; }},
      {"impossible shape", [](ExecutionPlan* p) { p->shapes = {}; }},
      {"function outer", [](ExecutionPlan* p) { p->functions[1].symbols = {1}; }},
      {"impossible workspace", [](ExecutionPlan* p) { p->functions[1].workspace_extent = 2; }},
      {"impossible workspace", [](ExecutionPlan* p) { p->functions[0].workspace_bytes = 64; }},
      {"impossible type", [&](ExecutionPlan* p) { main(p).registers[3].type.shape = {-9}; }},
      {"is in no slot", [&](ExecutionPlan* p) { main(p).registers[3].at = 2; }},
      {"is in no slot", [&](ExecutionPlan* p) { main(p).registers[3].at = -1; }},
      {"is in no slot", [&](ExecutionPlan* p) { main(p).registers[3].type.shape = {4}; }},
      {"impossible number of slots", [&](ExecutionPlan* p) { main(p).num_slots = 1000; }},
      {"impossible number of slots", [&](ExecutionPlan* p) { main(p).num_slots = -1; }},
      {"a size must be known", [&](ExecutionPlan* p) { main(p).registers[3].kind = RegisterKind::kFrame; }},
      {"workspace in no slot", [&](ExecutionPlan* p) { main(p).code[6] = -1; }},
      {"workspace in no slot", [&](ExecutionPlan* p) { main(p).code[6] = -4; }},
      {"is of the wrong kind for outer", [&](ExecutionPlan* p) { main(p).code[9] = 0; }},
      {"gives outer f32[n, n] for f32[n]", [&](ExecutionPlan* p) { main(p).code[12] = 4; }},
      {"gives outer an open shape", [&](ExecutionPlan* p) { p->functions[1].symbols.clear(), main(p).code[9] = 0; }},
      {"is no proper copy", [&](ExecutionPlan* p) { main(p).code[15] = 3; }},
      {"does not fit 'f'", [&](ExecutionPlan* p) { main(p).code[3] = 4; }},
      {"other inputs or outputs", [](ExecutionPlan* p) { p->outputs[0].type.shape = {kBytes}; }},
      {"without bytecode", [](ExecutionPlan* p) { p->bytecode = {}; }},
  };
  for (const Case& c : cases) {
    ExecutionPlan plan = Chain();
    ASSERT_TRUE(plan.Check().ok()) << plan.Check().message();
    c.damage(&plan);
    const Status s = plan.Check();
    EXPECT_EQ(s.code(), Code::kInvalidArgument) << c.message;
    EXPECT_THAT(s.message(), HasSubstr(c.message));
  }
}

// Words changed at random: refused, or run to some end.
TEST(VmOpenShapes, Fuzz) {
  std::mt19937 random(1);
  int ran = 0, refused = 0;
  for (int round = 0; round < 10000; ++round) {
    ExecutionPlan plan = Chain();
    VmFunction& f = plan.bytecode.functions[random() % 2];
    const auto value = static_cast<int64_t>(random() % 12) - 5;
    switch (random() % 6) {
      case 0:
        f.registers[random() % f.registers.size()].at = value;
        break;
      case 1:
        f.registers[random() % f.registers.size()].kind = static_cast<RegisterKind>(random() % 5);
        break;
      case 2:
        f.num_slots = static_cast<int32_t>(value);
        break;
      case 3:
        plan.shapes.registers[0].args[random() % 3] = value;
        break;
      default:
        f.code[random() % f.code.size()] = value;
    }
    if (!plan.Check().ok()) {
      ++refused;
      continue;
    }
    bool calls_itself = false;
    for (size_t pc = 0; pc < plan.bytecode.functions[1].code.size();
         pc += InstructionWords(plan.bytecode, plan, plan.bytecode.functions[1], pc)) {
      const int64_t op = plan.bytecode.functions[1].code[pc];
      calls_itself = calls_itself || op == kCall || op == kJump || op == kBranch;
    }
    const VmFunction& main = plan.bytecode.functions[0];
    for (size_t pc = 0; pc < main.code.size(); pc += InstructionWords(plan.bytecode, plan, main, pc)) {
      calls_itself = calls_itself || main.code[pc] == kJump || (main.code[pc] == kCall && main.code[pc + 1] == 0);
    }
    if (calls_itself) continue;
    auto executor = Load(plan);
    ASSERT_NE(executor, nullptr);
    std::vector<float> y, z;
    (void)RunOn(*executor, 5, &y, &z).ok();
    ++ran;
  }
  EXPECT_GT(ran, 50);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace inlay::runtime
