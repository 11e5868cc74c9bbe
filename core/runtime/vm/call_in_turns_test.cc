// A function that takes a few rows of the batch, called in turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/executor.h"
#include "core/runtime/open_shapes.h"
#include "core/runtime/vm/bytecode.h"

namespace inlay::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRow = 16;  // floats: 64 bytes
constexpr int64_t kKernel = 0, kReturn = 7, kCallInTurns = 9;
constexpr int64_t kN = -1;

TensorType F32(std::vector<int64_t> shape) { return {DType::kF32, std::move(shape)}; }

// args: a row, a row for all, the sum. The 7th call fails.
int g_calls = 0;
int32_t Add(const InlayCallContext* ctx, void* const* args) {
  if (++g_calls == 7) {
    ctx->set_error(ctx->owner, INLAY_E_LIBRARY, "seven");
    return INLAY_E_LIBRARY;
  }
  const auto *a = static_cast<const float*>(args[0]), *b = static_cast<const float*>(args[1]);
  for (int64_t i = 0; i < kRow; ++i) static_cast<float*>(args[2])[i] = a[i] + b[i];
  return INLAY_OK;
}
const std::vector<FunctionPointers> kCode = {{&Add}};

// main(x: f32[rows, 16], b: f32[1, 16]) -> y, by f for one row; `rows` may be open.
ExecutionPlan Plan(int64_t rows) {
  ExecutionPlan plan;
  const TensorType row = F32({1, kRow}), whole = F32({rows, kRow});
  plan.inputs = {{"x", whole}, {"b", row}};
  plan.outputs = {{"y", whole}};
  if (rows < 0) {
    plan.shapes.registers = {{ShapeRegister::Kind::kInput, "n", {0, 0, 1}, {}}};
    plan.shapes.extents = {{"n", {{1, {0}}}}};
  }
  const std::string type = "f32[1, 16]";
  plan.functions = {{"add", 2, 1, false, 0, {"", {}, {type, type, type}}}};
  Step site;
  site.function = 0;
  site.name = "node_add";
  plan.run_steps = {site};
  auto registers = [](const TensorType& a, const TensorType& b) {
    return std::vector<VmRegister>{
        {RegisterKind::kParam, 0, a}, {RegisterKind::kParam, 0, b}, {RegisterKind::kResult, 0, a}};
  };
  plan.bytecode.functions = {
      {"main", 2, 1, registers(whole, row), 0, {kCallInTurns, 1, rows, 0, 1, 2, kReturn}},
      {"f", 2, 1, registers(row, row), 0, {kKernel, 0, -1, 0, 1, 2, kReturn}},
  };
  return plan;
}

std::unique_ptr<Executor> Load(const ExecutionPlan& plan) {
  StatusOr<ExecutionPlan> read = ExecutionPlan::FromJson(plan.ToJson());
  EXPECT_TRUE(read.ok()) << read.status().message();
  if (!read.ok()) return nullptr;
  auto executor = LoadExecutor(std::move(*read), kCode, {}, {1});
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return executor.ok() ? std::move(*executor) : nullptr;
}

// The first elements of y's rows, and of one behind them, for x of 1, 2, .. and b of 100.
Status RunOn(const Executor& executor, int64_t rows, std::vector<float>* firsts,
             const Executor::StopFn& stop = nullptr) {
  g_calls = 0;
  CallTypes types;
  const ExecutionPlan& plan = executor.plan();
  const std::vector<TensorType> given = {F32({rows, kRow}), F32({1, kRow})};
  if (Status s = types.Bind(plan.shapes, plan.inputs, plan.outputs, given); !s.ok()) return s;
  struct alignas(64) Row {
    float values[kRow];
  };
  std::vector<Row> x(rows + 1), y(rows + 1);
  for (int64_t r = 0; r <= rows; ++r) {
    std::fill_n(x[r].values, kRow, static_cast<float>(r + 1));
    std::fill_n(y[r].values, kRow, -1.f);
  }
  Row b;
  std::fill_n(b.values, kRow, 100.f);
  const void* in[] = {x.data(), &b};
  void* out[] = {y.data()};
  const ShapeValues* shapes = plan.shapes.empty() ? nullptr : types.shapes();
  Status s = stop ? executor.RunUnlessStopped(in, out, stop, shapes) : executor.Run(in, out, shapes);
  firsts->clear();
  for (const Row& row : y) firsts->push_back(row.values[kRow - 1]);
  return s;
}

TEST(CallInTurns, AsOftenAsTheBatchHasRows) {
  std::vector<float> y;
  auto known = Load(Plan(3));
  ASSERT_NE(known, nullptr);
  ASSERT_TRUE(RunOn(*known, 3, &y).ok());
  EXPECT_THAT(y, ElementsAre(101, 102, 103, -1));
  auto open = Load(Plan(kN));
  ASSERT_NE(open, nullptr);
  ASSERT_TRUE(RunOn(*open, 4, &y).ok());
  EXPECT_THAT(y, ElementsAre(101, 102, 103, 104, -1));
  ASSERT_TRUE(RunOn(*open, 0, &y).ok());
  EXPECT_THAT(y, ElementsAre(-1));
  ASSERT_TRUE(RunOn(*open, 2, &y).ok());
  EXPECT_THAT(y, ElementsAre(101, 102, -1));
}

TEST(CallInTurns, SeveralRowsInATurn) {
  ExecutionPlan plan = Plan(4);
  plan.bytecode.functions[0].code[2] = 2;
  for (int i : {0, 2}) plan.bytecode.functions[1].registers[i].type.shape[0] = 2;
  plan.functions[0].info.types[0] = plan.functions[0].info.types[2] = "f32[2, 16]";
  auto executor = Load(plan);
  ASSERT_NE(executor, nullptr);
  std::vector<float> y;
  ASSERT_TRUE(RunOn(*executor, 4, &y).ok());
  EXPECT_THAT(y, ElementsAre(101, -1, 103, -1, -1));  // the kernel itself adds a row
  EXPECT_EQ(g_calls, 2);
}

TEST(CallInTurns, AnErrorEndsThem) {
  auto executor = Load(Plan(kN));
  ASSERT_NE(executor, nullptr);
  std::vector<float> y;
  EXPECT_EQ(RunOn(*executor, 9, &y).message(), "partition 'node_add' (add_run): seven (code 3)");
  EXPECT_THAT(y, ElementsAre(101, 102, 103, 104, 105, 106, -1, -1, -1, -1));
  EXPECT_EQ(g_calls, 7);
  ASSERT_TRUE(RunOn(*executor, 6, &y).ok());
}

TEST(CallInTurns, StopsBetweenThem) {
  auto executor = Load(Plan(kN));
  ASSERT_NE(executor, nullptr);
  std::vector<float> y;
  int asked = 0;
  EXPECT_EQ(RunOn(*executor, 5, &y, [&] { return ++asked == 3; }).message(), "stopped before a call of 'f'");
  EXPECT_THAT(y, ElementsAre(101, 102, -1, -1, -1, -1));
}

TEST(CallInTurns, WhatDoesNotFitIsRefused) {
  auto code = [](size_t at, int64_t word) {
    return [=](ExecutionPlan* p) { p->bytecode.functions[0].code[at] = word; };
  };
  auto shape = [](int function, int index, std::vector<int64_t> to) {
    return [=](ExecutionPlan* p) { p->bytecode.functions[function].registers[index].type.shape = to; };
  };
  struct Damage {
    const char* message;
    int64_t rows;
    std::function<void(ExecutionPlan*)> apply;
  };
  const Damage all[] = {
      {"calls what is not there", 3, code(1, 2)},
      {"does not fit 'f' in turns", 3, code(2, 4)},
      {"does not fit 'f' in turns", 3, code(2, 0)},
      {"does not fit 'f' in turns", 3, code(3, 17)},
      {"does not fit 'f' in turns", 3, code(5, 0)},                 // writes to a parameter
      {"does not fit 'f' in turns", 3, code(2, int64_t{1} << 62)},  // overflows
      {"does not fit 'f' in turns", kN, code(2, 3)},                // rows that a run decides
      {"has an extent of turns that is not there", kN, code(2, -2)},
      {"does not fit 'f' in turns", 3, shape(1, 0, {1, 8})},
      {"does not fit 'f' in turns", 3, shape(1, 0, {0, 16})},
      {"does not fit 'f' in turns", 3,
       [](ExecutionPlan* p) {  // a result that every turn would write
         p->bytecode.functions[0].registers[2].type.shape = {1, kRow};
         p->outputs[0].type.shape = {1, kRow};
       }},
      {"does not fit 'f' in turns", 3,
       [](ExecutionPlan* p) {  // parts of 60 bytes
         for (VmFunction& f : p->bytecode.functions) {
           for (VmRegister& r : f.registers) r.type.shape[1] = 15;
         }
       }},
  };
  for (const Damage& damage : all) {
    ExecutionPlan plan = Plan(damage.rows);
    ASSERT_TRUE(plan.Check().ok()) << plan.Check().message();
    damage.apply(&plan);
    const Status s = plan.Check();
    EXPECT_EQ(s.code(), Code::kInvalidArgument) << damage.message;
    EXPECT_THAT(s.message(), HasSubstr(damage.message));
  }
}

}  // namespace
}  // namespace inlay::runtime
