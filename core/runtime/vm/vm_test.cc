#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "core/runtime/executor.h"
#include "core/runtime/vm/bytecode.h"

namespace inlay::runtime {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<int64_t>;

int64_t Int(const void* p) { return *static_cast<const int64_t*>(p); }
int32_t Increment(const InlayCallContext*, void* const* args) {
  *static_cast<int64_t*>(args[1]) = Int(args[0]) + 1;
  return INLAY_OK;
}
int32_t Decrement(const InlayCallContext*, void* const* args) {
  *static_cast<int64_t*>(args[1]) = Int(args[0]) - 1;
  return INLAY_OK;
}
int32_t Less(const InlayCallContext*, void* const* args) {
  *static_cast<bool*>(args[2]) = Int(args[0]) < Int(args[1]);
  return INLAY_OK;
}
int32_t Add(const InlayCallContext* ctx, void* const* args) {
  if (ctx->workspace == nullptr) return INLAY_E_INTERNAL;
  std::memset(ctx->workspace, 0xff, 64);
  *static_cast<int64_t*>(args[2]) = Int(args[0]) + Int(args[1]);
  return INLAY_OK;
}
int32_t FailAtSeven(const InlayCallContext* ctx, void* const* args) {
  if (Int(args[0]) == 7) {
    ctx->set_error(ctx->owner, INLAY_E_LIBRARY, "seven");
    return INLAY_E_LIBRARY;
  }
  return Increment(ctx, args);
}
const std::vector<FunctionPointers> kCode = {{&Increment}, {&Decrement}, {&Less}, {&Add}, {&FailAtSeven}};
enum Kernel { kIncrement, kDecrement, kLess, kAdd, kFailAtSeven };  // sites too

const TensorType kInt{DType::kI64, {}}, kBool{DType::kBool, {}};
constexpr int64_t kKernel = 0, kCall = 1, kPacked = 2, kCopy = 3, kSwap = 4, kBranch = 5, kJump = 6, kReturn = 7;

VmRegister Param() { return {RegisterKind::kParam, 0, kInt}; }
VmRegister Result() { return {RegisterKind::kResult, 0, kInt}; }
VmRegister Frame(int64_t slot, TensorType type = kInt) { return {RegisterKind::kFrame, 64 * slot, std::move(type)}; }
VmRegister Buffer0(int64_t index) { return {RegisterKind::kBuffer, index, kInt}; }

// Two literals, 0 and 100; main(x) -> y as i64 scalars.
ExecutionPlan Plan(std::vector<VmFunction> functions) {
  ExecutionPlan plan;
  plan.inputs = {{"x", kInt}};
  plan.outputs = {{"y", kInt}};
  const int64_t values[] = {0, 100};
  for (const int64_t& value : values) plan.literals.emplace_back(reinterpret_cast<const char*>(&value), 8);
  plan.buffers = {{BufferKind::kLiteral, 0, 0, 8}, {BufferKind::kLiteral, 1, 0, 8}};
  const std::string i = "i64[]";
  plan.functions = {{"inc", 1, 1, false, 0, {"", {}, {i, i}}},
                    {"dec", 1, 1, false, 0, {"", {}, {i, i}}},
                    {"less", 2, 1, false, 0, {"", {}, {i, i, "bool[]"}}},
                    {"add", 2, 1, false, 64, {"", {}, {i, i, i}}},
                    {"fail", 1, 1, false, 0, {"", {}, {i, i}}}};
  for (int32_t f = 0; f < 5; ++f) {
    Step site;
    site.function = f;
    site.name = "node_" + plan.functions[f].symbol;
    plan.run_steps.push_back(site);
  }
  plan.bytecode.functions = std::move(functions);
  return plan;
}

// y = x < 100 ? x + 1 : x - 1
VmFunction Choice() {
  return {"main", 1, 1, {Param(), Result(), Buffer0(1), Frame(0, kBool)}, 64, {kKernel, kLess,      -1, 0, 2, 3,  // 0
                                                                               kBranch, 3,          16,           // 6
                                                                               kKernel, kIncrement, -1, 0, 1,     // 9
                                                                               kJump,   21,                       // 14
                                                                               kKernel, kDecrement, -1, 0, 1,     // 16
                                                                               kReturn}};                         // 21
}

// y = sum of 0 .. x-1, by a loop with its state in registers that swap.
VmFunction Sum() {
  return {"main",
          1,
          1,
          {Param(), Result(), Buffer0(0), Frame(0, kBool), Frame(1), Frame(2), Frame(3), Frame(4)},
          64 * 6,
          {kCopy,   2,          4,                // 0: i = 0
           kCopy,   2,          6,                // 3: sum = 0
           kKernel, kLess,      -1,     4, 0, 3,  // 6
           kBranch, 3,          34,               // 12
           kKernel, kAdd,       64 * 5, 6, 4, 7,  // 15: next sum = sum + i
           kKernel, kIncrement, -1,     4, 5,     // 21
           kSwap,   4,          5,                // 26
           kSwap,   6,          7,                // 29
           kJump,   6,                            // 32
           kCopy,   6,          1,                // 34
           kReturn}};
}

// y = x < 1 ? 0 : f(x - 1) + x
std::vector<VmFunction> Recursive() {
  VmFunction main = {"main", 1, 1, {Param(), Result()}, 0, {kCall, 1, 0, 1, kReturn}};
  VmFunction f = {"f",
                  1,
                  1,
                  {Param(), Result(), Buffer0(0), Frame(0, kBool), Frame(1), Frame(2)},
                  64 * 4,
                  {kKernel, kLess,      -1,     2, 0, 3,  // 0: 0 < x
                   kBranch, 3,          25,               // 6
                   kKernel, kDecrement, -1,     0, 4,     // 9
                   kCall,   1,          4,      5,        // 14
                   kKernel, kAdd,       64 * 3, 5, 0, 1,  // 18
                   kReturn,                               // 24
                   kCopy,   2,          1,                // 25
                   kReturn}};
  return {main, f};
}

StatusOr<int64_t> RunOn(const Executor& executor, int64_t x) {
  int64_t y = -1;
  const void* in[] = {&x};
  void* out[] = {&y};
  if (Status s = executor.Run(in, out); !s.ok()) return s;
  return y;
}

std::unique_ptr<Executor> Load(ExecutionPlan plan, ExecutorOptions options = {1}) {
  // Through its JSON, as it always comes.
  StatusOr<ExecutionPlan> read = ExecutionPlan::FromJson(plan.ToJson());
  EXPECT_TRUE(read.ok()) << read.status().message();
  if (!read.ok()) return nullptr;
  auto executor = LoadExecutor(std::move(*read), kCode, {}, options);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return executor.ok() ? std::move(*executor) : nullptr;
}

TEST(Vm, Branches) {
  auto executor = Load(Plan({Choice()}));
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(*RunOn(*executor, 5), 6);
  EXPECT_EQ(*RunOn(*executor, 200), 199);
  EXPECT_GT(executor->memory_bytes(), 0);
}

TEST(Vm, LoopsAsOftenAsTheRunSays) {
  auto executor = Load(Plan({Sum()}));
  ASSERT_NE(executor, nullptr);
  for (int64_t x : {0, 1, 2, 7, 1000, 100000, 3}) EXPECT_EQ(*RunOn(*executor, x), x * (x - 1) / 2);
}

TEST(Vm, StopsWhereItIsAskedTo) {
  auto executor = Load(Plan({Sum()}));
  ASSERT_NE(executor, nullptr);
  const int64_t forever = int64_t{1} << 60;
  int64_t y = 0, asked = 0;
  const void* in[] = {&forever};
  void* out[] = {&y};
  const Status stopped = executor->RunUnlessStopped(in, out, [&] { return ++asked == 1000; });
  EXPECT_EQ(stopped.code(), Code::kCancelled);
  EXPECT_EQ(stopped.message(), "stopped in a loop of 'main'");
  EXPECT_EQ(*RunOn(*executor, 7), 21);  // and is as good as before

  executor = Load(Plan(Recursive()));
  ASSERT_NE(executor, nullptr);
  const int64_t deep = 500;
  in[0] = &deep;
  asked = 0;
  EXPECT_EQ(executor->RunUnlessStopped(in, out, [&] { return ++asked == 100; }).message(),
            "stopped before a call of 'f'");
  EXPECT_EQ(*RunOn(*executor, 10), 55);
}

TEST(Vm, RecursionIsBounded) {
  auto executor = Load(Plan(Recursive()));
  ASSERT_NE(executor, nullptr);
  for (int64_t x : {0, 1, 10, 500}) EXPECT_EQ(*RunOn(*executor, x), x * (x + 1) / 2);
  const Status deep = RunOn(*executor, 5000).status();
  EXPECT_EQ(deep.code(), Code::kResourceExhausted);
  EXPECT_EQ(deep.message(), "calls are nested deeper than 1000 at 'f'");
  EXPECT_EQ(*RunOn(*executor, 10), 55);
}

TEST(Vm, ErrorsNameThePartition) {
  VmFunction main = {"main", 1, 1, {Param(), Result()}, 0, {kKernel, kFailAtSeven, -1, 0, 1, kReturn}};
  auto executor = Load(Plan({main}));
  ASSERT_NE(executor, nullptr);
  const Status s = RunOn(*executor, 7).status();
  EXPECT_EQ(s.code(), Code::kInternal);
  EXPECT_EQ(s.message(), "partition 'node_fail' (fail_run): seven (code 3)");
  EXPECT_EQ(*RunOn(*executor, 8), 9);
}

TEST(Vm, ManyThreadsAtOnce) {
  auto executor = Load(Plan({Sum()}));
  ASSERT_NE(executor, nullptr);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        StatusOr<int64_t> y = RunOn(*executor, t + i);
        wrong += !y.ok() || *y != (t + i) * (t + i - 1) / 2;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Vm, ProfileAddsUpTheTurnsOfALoop) {
  auto executor = Load(Plan({Sum()}));
  ASSERT_NE(executor, nullptr);
  int64_t x = 1000, y = 0, ns[5] = {-1, -1, -1, -1, -1};
  const void* in[] = {&x};
  void* out[] = {&y};
  ASSERT_TRUE(executor->Profile(in, out, ns).ok());
  EXPECT_EQ(y, x * (x - 1) / 2);
  EXPECT_GT(ns[kIncrement], 0);
  EXPECT_EQ(ns[kFailAtSeven], 0);  // never called
}

TEST(Vm, CallsFunctionsOfTheProcess) {
  VmFunction main = {"main", 1, 1, {Param(), Result()}, 0, {kPacked, 0, 1, 1, 0, 1, kReturn}};
  ExecutionPlan plan = Plan({main});
  plan.bytecode.packed = {"twice"};
  ExecutorOptions options{1};
  options.call_packed = [](const std::string& name, const PackedTensor* in, int num_in, const PackedTensor* out,
                           int num_out) -> Status {
    if (name != "twice" || num_in != 1 || num_out != 1 || *in->type != kInt) return Internal("wrong call");
    if (Int(in->data) < 0) return InvalidArgument("twice: negative");
    *static_cast<int64_t*>(out->data) = 2 * Int(in->data);
    return Status();
  };
  auto executor = Load(plan, options);
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(*RunOn(*executor, 21), 42);
  EXPECT_EQ(RunOn(*executor, -1).status().message(), "twice: negative");
  const auto refused = LoadExecutor(plan, kCode, {}, {1});
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("calls 'twice' by call_packed"));
}

TEST(Vm, DamagedBytecodeIsRefused) {
  struct Case {
    const char* message;
    std::function<void(ExecutionPlan*)> damage;
  };
  auto code = [](size_t at, int64_t word) {
    return [=](ExecutionPlan* p) { p->bytecode.functions[0].code[at] = word; };
  };
  const Case cases[] = {
      {"at 0 is none", code(0, 99)},
      {"at 0 is none", code(0, -1)},
      {"calls what is not there", code(1, 17)},
      {"a register that is not there", code(3, 77)},
      {"gives less bool[] for i64[]", code(4, 3)},
      {"jumps to no instruction", code(8, 17)},
      {"jumps to no instruction", code(15, -5)},
      {"has no bool for a condition", code(7, 0)},
      {"writes to a constant", code(13, 2)},
      {"is the last, and does not return", [](ExecutionPlan* p) { p->bytecode.functions[0].code.pop_back(); }},
      {"is cut off", [](ExecutionPlan* p) { p->bytecode.functions[0].code.resize(11); }},
      {"is empty", [](ExecutionPlan* p) { p->bytecode.functions[0].code.clear(); }},
      {"outside of the frame", [](ExecutionPlan* p) { p->bytecode.functions[0].registers[3].at = 64; }},
      {"outside of the frame", [](ExecutionPlan* p) { p->bytecode.functions[0].registers[3].at = -64; }},
      {"is no buffer", [](ExecutionPlan* p) { p->bytecode.functions[0].registers[2].at = 2; }},
      {"of another size", [](ExecutionPlan* p) { p->bytecode.functions[0].registers[2].type.shape = {4}; }},
      {"impossible type", [](ExecutionPlan* p) { p->bytecode.functions[0].registers[2].type.shape = {-4}; }},
      {"impossible size", [](ExecutionPlan* p) { p->bytecode.functions[0].frame_bytes = 1; }},
      {"wrong kind", [](ExecutionPlan* p) { p->bytecode.functions[0].num_params = 2; }},
      {"fewer registers", [](ExecutionPlan* p) { p->bytecode.functions[0].num_results = 9; }},
      {"other inputs or outputs", [](ExecutionPlan* p) { p->outputs[0].type.shape = {3}; }},
      {"calls a missing function", [](ExecutionPlan* p) { p->run_steps[0].function = 9; }},
      {"is not of a kind that bytecode calls", [](ExecutionPlan* p) { p->run_steps[0].args = {0}; }},
      {"outside of the frame",
       [](ExecutionPlan* p) { p->bytecode.functions = {Sum()}, p->bytecode.functions[0].code[17] = 64 * 6; }},
      {"swaps what it may not",
       [](ExecutionPlan* p) { p->bytecode.functions = {Sum()}, p->bytecode.functions[0].code[27] = 3; }},
      {"does not fit 'f'",
       [](ExecutionPlan* p) { p->bytecode.functions = Recursive(), p->bytecode.functions[1].code[16] = 3; }},
      {"without a name", [](ExecutionPlan* p) { p->bytecode.functions[0].code = {kPacked, 0, 1, 1, 0, 1, kReturn}; }},
  };
  for (const Case& c : cases) {
    ExecutionPlan plan = Plan({Choice()});
    ASSERT_TRUE(plan.Check().ok());
    c.damage(&plan);
    const Status s = plan.Check();
    EXPECT_EQ(s.code(), Code::kInvalidArgument) << c.message;
    EXPECT_THAT(s.message(), HasSubstr(c.message));
  }
  nlohmann::json json = nlohmann::json::parse(Plan({Choice()}).ToJson());
  json["bytecode"]["version"] = 2;
  EXPECT_THAT(ExecutionPlan::FromJson(json.dump()).status().message(), HasSubstr("bytecode of version 2"));
  json["bytecode"]["version"] = 1;
  json["bytecode"]["functions"] = nlohmann::json::array();
  EXPECT_THAT(ExecutionPlan::FromJson(json.dump()).status().message(), HasSubstr("bytecode without functions"));
}

// Words changed at random: refused, or run to some end. What loops or recurs is not run: it may do so for ever.
TEST(Vm, Fuzz) {
  std::mt19937 random(1);
  int ran = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::vector<VmFunction> models[] = {{Choice()}, {Sum()}, Recursive()};
    ExecutionPlan plan = Plan(models[round % 3]);
    for (int change = 0; change < 1 + round % 3; ++change) {
      VmFunction& f = plan.bytecode.functions[random() % plan.bytecode.functions.size()];
      const auto value = static_cast<int64_t>(random() % 24) - 2;
      switch (random() % 8) {
        case 0:
          f.registers[random() % f.registers.size()].at = 64 * value;
          break;
        case 1:
          f.registers[random() % f.registers.size()].kind = static_cast<RegisterKind>(random() % 4);
          break;
        case 2:
          (random() % 2 == 0 ? f.num_params : f.num_results) = static_cast<int32_t>(value);
          break;
        default:
          f.code[random() % f.code.size()] = value;
      }
    }
    if (!plan.Check().ok()) {
      ++refused;
      continue;
    }
    bool ends = true;
    for (const VmFunction& f : plan.bytecode.functions) {
      int64_t pc = 0;
      while (pc < static_cast<int64_t>(f.code.size())) {
        const int64_t op = f.code[pc];
        if (op == kCall || (op == kJump && f.code[pc + 1] <= pc) || (op == kBranch && f.code[pc + 2] <= pc))
          ends = false;
        pc += InstructionWords(plan.bytecode, plan, f, pc);
      }
    }
    if (!ends) continue;
    auto executor = Load(plan);
    ASSERT_NE(executor, nullptr);
    (void)RunOn(*executor, 3).ok();
    ++ran;
  }
  EXPECT_GT(ran, 100);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace inlay::runtime
