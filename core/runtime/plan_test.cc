#include "core/runtime/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inlay::runtime {
namespace {

using ::testing::HasSubstr;

// x f32[2, 3] -> f(x, w) -> arena -> g (with state) -> y, and x itself as second output.
ExecutionPlan SmallPlan() {
  const TensorType t{DType::kF32, {2, 3}};
  ExecutionPlan plan;
  plan.inputs = {{"x", t}};
  plan.outputs = {{"y", t}, {"x_again", t}};
  plan.params = {{"w", t}};
  plan.param_load_only = {false};
  plan.literals = {std::string("\x00\x01\xff\x7f", 4)};
  plan.functions = {{"f", 2, 1, false, 128}, {"g", 2, 1, true, 0}};
  plan.functions[0].info = {"native",           {"matmul", "add"}, {"f32[2, 3]", "f32[2, 3]", "f32[2, 3]"},
                            {int64_t{1} << 40}, {0, "4*batch"},    {24}};
  plan.buffers = {{BufferKind::kInput, 0, 0, 24},    {BufferKind::kOutput, 0, 0, 24}, {BufferKind::kOutput, 1, 0, 24},
                  {BufferKind::kParam, 0, 0, 24},    {BufferKind::kArena, 0, 64, 24}, {BufferKind::kLiteral, 0, 0, 4},
                  {BufferKind::kConstant, 0, 0, 24}, {BufferKind::kLoad, 0, 0, 24}};
  plan.constant_bytes = 64;
  plan.load_bytes = 256;
  plan.arena_bytes = 256;
  plan.num_states = 1;
  plan.load_steps = {{StepKind::kRun, 0, -1, 128, {3, 3, 7}, "fold"}, {StepKind::kInit, 1, 0, -1, {-1, 7, -1}, "pack"}};
  plan.run_steps = {{StepKind::kRun, 0, -1, 128, {0, 3, 4}, "a \"quoted\" name"},
                    {StepKind::kRun, 1, 0, -1, {4, 6, 1}, ""},
                    {StepKind::kCopy, -1, -1, -1, {0, 2}, ""}};
  plan.num_threads = 2;
  plan.openmp = true;
  return plan;
}

std::string CheckText(const ExecutionPlan& plan) { return plan.Check().message(); }

TEST(Plan, JsonRoundTrip) {
  const ExecutionPlan plan = SmallPlan();
  ASSERT_EQ(CheckText(plan), "");
  StatusOr<ExecutionPlan> again = ExecutionPlan::FromJson(plan.ToJson());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->ToJson(), plan.ToJson());
  EXPECT_EQ(again->literals[0], plan.literals[0]);
  EXPECT_EQ(again->run_steps[0].name, "a \"quoted\" name");
  EXPECT_EQ(again->load_steps[1].args, (std::vector<int32_t>{-1, 7, -1}));
  EXPECT_EQ(again->buffers[4].offset, 64);
  EXPECT_EQ(again->num_threads, 2);
  EXPECT_TRUE(again->openmp);
  EXPECT_EQ(again->functions[0].info.ops, (std::vector<std::string>{"matmul", "add"}));
  EXPECT_EQ(again->functions[0].info.flops.value, int64_t{1} << 40);
  EXPECT_EQ(again->functions[0].info.bytes.extent, "4*batch");
  EXPECT_TRUE(again->updates.empty());
}

TEST(Plan, UpdatesAreOfInputsOfTheSameType) {
  ExecutionPlan plan = SmallPlan();
  plan.updates = {-1, 0};
  ASSERT_EQ(CheckText(plan), "");
  StatusOr<ExecutionPlan> again = ExecutionPlan::FromJson(plan.ToJson());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->updates, plan.updates);
  for (std::vector<int32_t> wrong : {std::vector<int32_t>{0}, {0, 0}, {-1, 1}, {-2, 0}}) {
    plan.updates = wrong;
    EXPECT_NE(CheckText(plan), "");
  }
  plan.updates = {-1, 0};
  plan.inputs.push_back({"z", {DType::kF32, {3, 2}}});
  plan.updates = {-1, 1};
  EXPECT_THAT(CheckText(plan), HasSubstr("output 1 updates what it may not"));
}

TEST(Plan, InfoOfFunctionsMayBeAbsent) {
  std::string json = SmallPlan().ToJson();
  for (size_t at; (at = json.find("\"info\"")) != std::string::npos;) json.replace(at, 6, "\"else\"");
  StatusOr<ExecutionPlan> plan = ExecutionPlan::FromJson(json);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->functions[0].info.backend, "");
}

TEST(Plan, RefusesDamagedJson) {
  EXPECT_EQ(ExecutionPlan::FromJson("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ExecutionPlan::FromJson("[1, 2]").status().code(), Code::kInvalidArgument);
  EXPECT_THAT(ExecutionPlan::FromJson("{\"version\": 2}").status().message(), HasSubstr("version 2"));
  std::string json = SmallPlan().ToJson();
  json.replace(json.find("\"arena\""), 7, "\"attic\"");
  EXPECT_THAT(ExecutionPlan::FromJson(json).status().message(), HasSubstr("attic"));
  json = SmallPlan().ToJson();
  json.replace(json.find("[2,3]"), 5, "[2.5,3]");
  EXPECT_THAT(ExecutionPlan::FromJson(json).status().message(), HasSubstr("not an integer"));
  // Cut off anywhere: an error, never a crash.
  json = SmallPlan().ToJson();
  for (size_t n = 0; n < json.size(); ++n) EXPECT_FALSE(ExecutionPlan::FromJson(json.substr(0, n)).ok()) << n;
}

TEST(Plan, CheckFindsWhatWouldCrash) {
  const ExecutionPlan good = SmallPlan();
  auto with = [&](auto change) {
    ExecutionPlan plan = good;
    change(plan);
    return CheckText(plan);
  };
  EXPECT_THAT(with([](auto& p) { p.buffers[4].offset = 256; }), HasSubstr("buffer 4 is outside the arena"));
  EXPECT_THAT(with([](auto& p) { p.buffers[4].offset = 8; }), HasSubstr("outside the arena"));
  EXPECT_THAT(with([](auto& p) { p.buffers[4].offset = -64; }), HasSubstr("outside the arena"));
  EXPECT_THAT(with([](auto& p) { p.buffers[0].bytes += 4; }), HasSubstr("buffer 0 is neither its input nor in it"));
  EXPECT_THAT(with([](auto& p) { p.buffers[0].offset = 4; }), HasSubstr("buffer 0 is neither its input nor in it"));
  EXPECT_THAT(with([](auto& p) { p.buffers[0].offset = 64; }), HasSubstr("buffer 0 is neither its input nor in it"));
  EXPECT_THAT(with([](auto& p) { p.buffers[0].offset = -64; }), HasSubstr("buffer 0 is neither its input nor in it"));
  EXPECT_THAT(with([](auto& p) { p.buffers[3].index = 7; }), HasSubstr("missing param"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[0].args[0] = 99; }), HasSubstr("run step 0 names a missing buffer"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[0].args[0] = -1; }), HasSubstr("missing buffer"));
  EXPECT_EQ(with([](auto& p) { p.run_steps[1].args[1] = -1; }), "");  // an input that only init reads
  EXPECT_THAT(with([](auto& p) { p.run_steps[1].args[2] = -1; }), HasSubstr("missing buffer"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[0].args.pop_back(); }), HasSubstr("wrong number of arguments"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[0].args[2] = 0; }), HasSubstr("may not use buffer 0"));  // an input
  EXPECT_THAT(with([](auto& p) { p.run_steps[0].args[2] = 3; }), HasSubstr("may not use buffer 3"));  // a param
  EXPECT_THAT(with([](auto& p) { p.run_steps[0].args[0] = 7; }), HasSubstr("may not use buffer 7"));  // load region
  EXPECT_THAT(with([](auto& p) { p.param_load_only[0] = true; }), HasSubstr("may not use buffer 3"));
  EXPECT_THAT(with([](auto& p) { p.load_steps[0].args[0] = 0; }), HasSubstr("may not use buffer 0"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[0].workspace_offset = 192; }), HasSubstr("workspace"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[1].state = -1; }), HasSubstr("wrong state"));
  EXPECT_THAT(with([](auto& p) { p.load_steps.pop_back(); }), HasSubstr("used but not there"));
  EXPECT_THAT(with([](auto& p) { p.load_steps.push_back(p.load_steps[1]); }), HasSubstr("made twice"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[1].function = 2; }), HasSubstr("missing function"));
  EXPECT_THAT(with([](auto& p) { p.run_steps[2].args[1] = 5; }), HasSubstr("copies what it may not"));
  EXPECT_THAT(with([](auto& p) { p.arena_bytes = 250; }), HasSubstr("impossible size"));
  EXPECT_THAT(with([](auto& p) { p.inputs[0].type.shape = {int64_t{1} << 62, 8}; }), HasSubstr("impossible shape"));
  EXPECT_THAT(with([](auto& p) { p.num_states = 1 << 30; }), HasSubstr("more states"));
}

}  // namespace
}  // namespace inlay::runtime
