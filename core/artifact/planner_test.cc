#include "core/artifact/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/artifact/testing/module_builder.h"
#include "core/ir/batch.h"

namespace inlay::artifact {
namespace {

using runtime::Buffer;
using runtime::BufferKind;
using runtime::ExecutionPlan;
using runtime::Step;
using runtime::StepKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ModuleBuilder;
using testing::Signature;

const ir::TensorType kT = ir::MakeTensorType(ir::DType::kF32, {4, 8});  // 128 bytes

const Buffer& Arg(const ExecutionPlan& plan, const Step& step, int i) { return plan.buffers[step.args[i]]; }

Signature Binary(std::string symbol) { return Signature(std::move(symbol)).In(kT).In(kT).Out(kT); }
Signature Unary(std::string symbol) { return Signature(std::move(symbol)).In(kT).Out(kT); }

absl::Status PlanStatus(ModuleBuilder& b) { return BuildPlan(b.module(), b.manifests()).status(); }

TEST(Planner, ChainReusesTheArenaAndWritesTheOutputInPlace) {
  ModuleBuilder b;
  b.Implement(Unary("f"));
  ir::VarPtr x = b.Input("x", kT);
  ir::VarPtr v = x;
  for (int i = 0; i < 10; ++i) v = b.Call("f", {v});
  b.Return({v}, {"y"});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  ASSERT_EQ(plan.run_steps.size(), 10);
  EXPECT_EQ(plan.arena_bytes, 256);
  EXPECT_EQ(plan.functions.size(), 1);
  EXPECT_EQ(Arg(plan, plan.run_steps[0], 0).kind, BufferKind::kInput);
  EXPECT_EQ(Arg(plan, plan.run_steps[9], 1).kind, BufferKind::kOutput);
  EXPECT_EQ(plan.inputs[0].name, "x");
  EXPECT_EQ(plan.outputs[0].name, "y");
  EXPECT_TRUE(plan.load_steps.empty());
}

TEST(Planner, OutputsThatAreInputsWeightsLiteralsOrReturnedTwice) {
  ModuleBuilder b;
  b.Implement(Unary("f"));
  ir::VarPtr x = b.Input("x", kT);
  ir::VarPtr y = b.Call("f", {x});
  ir::ConstantPtr w = ir::MakeWeight(kT, Digest::Of("w"), "w");
  ir::ConstantPtr l = ir::MakeLiteral(kT, std::string(128, 'l'));
  b.Return({x, y, y, w, l}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  ASSERT_EQ(plan.run_steps.size(), 5);
  EXPECT_EQ(plan.outputs[4].name, "output_4");
  const BufferKind sources[] = {BufferKind::kInput, BufferKind::kOutput, BufferKind::kParam, BufferKind::kLiteral};
  const int outputs[] = {0, 2, 3, 4};
  for (int i = 0; i < 4; ++i) {
    const Step& step = plan.run_steps[1 + i];
    EXPECT_EQ(step.kind, StepKind::kCopy);
    EXPECT_EQ(Arg(plan, step, 0).kind, sources[i]);
    EXPECT_EQ(Arg(plan, step, 1).index, outputs[i]);
  }
  EXPECT_FALSE(plan.param_load_only[0]);
  EXPECT_EQ(built->params[0], w);
}

// Of a model with a cache: `write` makes a new one, `read` reads it.
struct Decoder {
  ModuleBuilder b;
  ir::VarPtr cache = b.Input("cache", kT), x = b.Input("x", kT);
  ExecutionPlan Plan(std::vector<ir::Operand> results, std::vector<int64_t> updates) {
    b.Return(std::move(results), {});
    b.main().attrs.Set("updates", std::move(updates));
    auto built = BuildPlan(b.module(), b.manifests());
    EXPECT_TRUE(built.ok()) << built.status();
    return built.ok() ? built->plan : ExecutionPlan();
  }
};

TEST(Planner, AnInputIsUpdatedByTheLastCallThatReadsIt) {
  Decoder s;
  s.b.Implement(Binary("write").InPlace({0}));
  s.b.Implement(Unary("read"));
  ir::VarPtr old = s.b.Call("read", {s.cache});
  ir::VarPtr made = s.b.Call("write", {s.cache, old});
  const ExecutionPlan plan = s.Plan({s.b.Call("read", {made}), made}, {-1, 0});
  EXPECT_THAT(plan.updates, ElementsAre(-1, 0));
  ASSERT_EQ(plan.run_steps.size(), 3);
  EXPECT_EQ(Arg(plan, plan.run_steps[1], 2).kind, BufferKind::kOutput);
  EXPECT_EQ(Arg(plan, plan.run_steps[1], 2).index, 1);
  EXPECT_EQ(Arg(plan, plan.run_steps[2], 0).kind, BufferKind::kOutput);
}

// The call that makes it and whether it is copied at the end.
void ExpectMadeElsewhere(const ExecutionPlan& plan, int call) {
  ASSERT_FALSE(plan.run_steps.empty());
  EXPECT_EQ(Arg(plan, plan.run_steps[call], 2).kind, BufferKind::kArena);
  EXPECT_EQ(plan.run_steps.back().kind, StepKind::kCopy);
  EXPECT_EQ(Arg(plan, plan.run_steps.back(), 1).index, 0);
}

TEST(Planner, AnInputThatIsReadLaterIsUpdatedAtTheEnd) {
  Decoder s;
  s.b.Implement(Binary("write").InPlace({0}));
  s.b.Implement(Unary("read"));
  ir::VarPtr made = s.b.Call("write", {s.cache, s.x});
  ir::VarPtr later = s.b.Call("read", {s.cache});
  ExpectMadeElsewhere(s.Plan({made, later}, {0, -1}), 0);
}

TEST(Planner, AnInputThatIsReturnedTooIsUpdatedAfterIt) {
  Decoder s;
  s.b.Implement(Binary("write").InPlace({0}));
  ir::VarPtr made = s.b.Call("write", {s.cache, s.x});
  const ExecutionPlan plan = s.Plan({made, s.cache}, {0, -1});
  ExpectMadeElsewhere(plan, 0);
  ASSERT_EQ(plan.run_steps.size(), 3);
  EXPECT_EQ(Arg(plan, plan.run_steps[1], 0).kind, BufferKind::kInput);
  EXPECT_EQ(Arg(plan, plan.run_steps[1], 1).index, 1);
}

TEST(Planner, ACallThatReadsWhatItUpdatesMustSayThatItMay) {
  for (int argument : {-1, 1}) {
    Decoder s;
    Signature write = Binary("write");
    if (argument >= 0) write.InPlace({argument});
    s.b.Implement(write);
    ExpectMadeElsewhere(s.Plan({s.b.Call("write", {s.cache, s.x})}, {0}), 0);
  }
  Decoder twice;
  twice.b.Implement(Binary("write").InPlace({0}));
  ExpectMadeElsewhere(twice.Plan({twice.b.Call("write", {twice.cache, twice.cache})}, {0}), 0);
  Decoder unread;  // the input's memory is only written
  unread.b.Implement(Unary("read"));
  const ExecutionPlan plan = unread.Plan({unread.b.Call("read", {unread.x})}, {0});
  ASSERT_EQ(plan.run_steps.size(), 1);
  EXPECT_EQ(Arg(plan, plan.run_steps[0], 1).kind, BufferKind::kOutput);
}

TEST(Planner, InputsThatChangePlacesAreCopiedBeforeEitherIsWritten) {
  Decoder s;
  const ExecutionPlan plan = s.Plan({s.x, s.cache}, {0, 1});
  ASSERT_EQ(plan.run_steps.size(), 4);
  for (int i : {0, 1}) {
    EXPECT_EQ(Arg(plan, plan.run_steps[i], 0).kind, BufferKind::kInput);
    EXPECT_EQ(Arg(plan, plan.run_steps[i], 1).kind, BufferKind::kArena);
    EXPECT_EQ(Arg(plan, plan.run_steps[2 + i], 0).offset, Arg(plan, plan.run_steps[i], 1).offset);
    EXPECT_EQ(Arg(plan, plan.run_steps[2 + i], 1).index, i);
  }
  EXPECT_NE(Arg(plan, plan.run_steps[0], 1).offset, Arg(plan, plan.run_steps[1], 1).offset);
  EXPECT_EQ(plan.arena_bytes, 256);
}

TEST(Planner, FunctionsSayWhatTheyAre) {
  ModuleBuilder b;
  b.Implement(Signature("f").In(kT).In(kT).Out(kT).Constant({1}));
  ir::Function& f = b.module().functions["f"];
  f.attrs.Set("backend", std::string("test"));
  ir::Builder body(&f);
  body.Return({*body.Call("add", {f.params[0], f.params[1]})});
  ir::VarPtr x = b.Input("x", kT);
  b.Return({b.Call("f", {x, ir::MakeWeight(kT, Digest::Of("w"), "w")})}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const runtime::FunctionInfo& info = built->plan.functions[0].info;
  EXPECT_EQ(info.backend, "test");
  EXPECT_THAT(info.ops, ElementsAre("add"));
  EXPECT_EQ(info.flops.value, 32);
  EXPECT_THAT(info.types, ElementsAre("f32[4, 8]", "f32[4, 8]", "f32[4, 8]"));
  EXPECT_EQ(info.bytes.value, 3 * 128);
  EXPECT_EQ(info.constant_bytes.value, 128);
}

TEST(Planner, NoInputsAndNoCalls) {
  ModuleBuilder b;
  b.Return({ir::MakeLiteral(kT, std::string(128, 'l'))}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_TRUE(built->plan.inputs.empty());
  EXPECT_EQ(built->plan.run_steps.size(), 1);
}

TEST(Planner, ZeroSizeTensorsNeedNoCall) {
  const ir::TensorType empty = ir::MakeTensorType(ir::DType::kF32, {0, 8});
  ModuleBuilder b;
  b.Implement(Signature("f").In(empty).Out(empty));
  b.Implement(Signature("g").In(empty).Out(kT));
  ir::VarPtr x = b.Input("x", empty);
  ir::VarPtr y = b.Call("f", {x});
  ir::VarPtr z = b.Call("g", {y});
  b.Return({y, z, x, y}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->plan.run_steps.size(), 1);  // g alone
  EXPECT_EQ(built->plan.functions[built->plan.run_steps[0].function].symbol, "g");
}

TEST(Planner, LoadTimeValuesLiveOnlyAsLongAsTheyAreRead) {
  // fold makes a (only packed by p's init), b (read by every run of q).
  ModuleBuilder b;
  b.Implement(Signature("fold").In(kT).Out(kT));
  b.Implement(Binary("p").Constant({1}).InitOnly({1}).Workspace(1000));
  b.Implement(Binary("q").Constant({1}));
  ir::ConstantPtr w = ir::MakeWeight(kT, Digest::Of("w"), "w");
  ir::ConstantPtr u = ir::MakeWeight(kT, Digest::Of("u"), "w");  // the same name
  ir::ConstantPtr direct = ir::MakeWeight(kT, Digest::Of("d"), "");
  ir::VarPtr lifted_a = b.Lift("fold", {w});
  ir::VarPtr lifted_b = b.Lift("fold", {u});
  ir::VarPtr x = b.Input("x", kT);
  ir::VarPtr y = b.Call("p", {x, lifted_a});
  y = b.Call("q", {y, lifted_b});
  y = b.Call("q", {y, direct});
  y = b.Call("p", {y, direct});
  b.Return({y}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  EXPECT_EQ(plan.constant_bytes, 128);  // b
  EXPECT_EQ(plan.load_bytes, 128);      // a
  EXPECT_EQ(plan.num_states, 2);
  // The init that needs only a weight comes first, then fold(w), the init that packs it, fold(u).
  std::vector<StepKind> kinds;
  for (const Step& s : plan.load_steps) kinds.push_back(s.kind);
  EXPECT_THAT(kinds, ElementsAre(StepKind::kInit, StepKind::kRun, StepKind::kInit, StepKind::kRun));
  EXPECT_THAT(plan.load_steps[0].args, ElementsAre(-1, ::testing::Ge(0), -1));
  EXPECT_EQ(plan.run_steps[0].args[1], -1);  // packed: not read any more
  EXPECT_GE(plan.run_steps[0].workspace_offset, 0);
  EXPECT_GE(plan.arena_bytes, 1000 + 128);
  ASSERT_EQ(plan.params.size(), 3);
  std::set<std::string> names;
  for (const auto& p : plan.params) names.insert(p.name);
  EXPECT_EQ(names.size(), 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(plan.param_load_only[i], built->params[i] != direct) << i;
}

TEST(Planner, StateOfALoadTimePartitionEndsWithIt) {
  ModuleBuilder b;
  b.Implement(Signature("pack").In(kT).Out(kT).Constant({0}).State());
  b.Implement(Binary("q"));
  ir::VarPtr lifted = b.Lift("pack", {ir::MakeWeight(kT, Digest::Of("w"), "w")});
  ir::VarPtr x = b.Input("x", kT);
  b.Return({b.Call("q", {x, lifted})}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  std::vector<StepKind> kinds;
  for (const Step& s : built->plan.load_steps) kinds.push_back(s.kind);
  EXPECT_THAT(kinds, ElementsAre(StepKind::kInit, StepKind::kRun, StepKind::kDestroy));
}

TEST(Planner, TuplesAreTakenApart) {
  ModuleBuilder b;
  b.Implement(Signature("split").In(kT).Out(kT).Out(kT));
  b.Implement(Unary("f"));
  ir::VarPtr x = b.Input("x", kT);
  ir::VarPtr pair = b.Call("split", {x});
  ir::VarPtr second = b.GetItem(pair, 1);
  ir::VarPtr again = b.GetItem(b.Tuple({second, x}), 0);
  b.Return({b.Call("f", {again})}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  ASSERT_EQ(plan.run_steps.size(), 2);
  EXPECT_EQ(plan.run_steps[1].args[0], plan.run_steps[0].args[2]);
  EXPECT_EQ(plan.arena_bytes, 256);  // the item that nobody wants needs memory too while it is written
}

// Two functions for 2 of 4 rows, one after the other, and one for all.
TEST(Planner, MicroBatchesGoThroughARunInTurns) {
  const ir::TensorType half = ir::MakeTensorType(ir::DType::kF32, {2, 32}),
                       whole = ir::MakeTensorType(half.dtype, {4, 32});
  ModuleBuilder b;
  b.Implement(Signature("f").In(half).In(kT).Out(half).Constant({1}).State());
  b.Implement(Signature("g").In(half).Out(half));
  b.Implement(Signature("h").In(whole).Out(whole));
  ir::VarPtr x = b.Input("x", whole);
  const ir::ConstantPtr w = ir::MakeWeight(kT, Digest::Of("w"), "w");
  auto call = [&](const std::string& callee, std::vector<ir::Operand> args, bool parts) -> ir::VarPtr {
    ir::Binding binding;
    binding.kind = ir::Binding::Kind::kCallFunction;
    binding.callee = callee;
    binding.args = std::move(args);
    binding.var = ir::MakeVar(callee, whole);
    if (parts) binding.attrs.Set(ir::kMicroBatches, int64_t{2});
    b.main().body.bindings.push_back(binding);
    return binding.var;
  };
  const ir::VarPtr first = call("f", {x, w}, true);
  const ir::VarPtr second = call("g", {first}, true);
  const ir::VarPtr third = call("g", {second}, true);
  const ir::VarPtr all = call("h", {second}, false);
  b.Return({all, third}, {});
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  ASSERT_EQ(plan.run_steps.size(), 7);
  EXPECT_EQ(plan.num_states, 1);  // both parts' f
  for (int part : {0, 1}) {
    const Step* steps = &plan.run_steps[part * 3];
    for (int i = 0; i < 3; ++i) EXPECT_EQ(std::make_pair(steps[i].part, steps[i].num_parts), std::make_pair(part, 2));
    EXPECT_EQ(steps[0].state, 0);
    const Buffer& in = Arg(plan, steps[0], 0);
    EXPECT_EQ(in.kind, BufferKind::kInput);
    EXPECT_EQ(in.offset, part * 256);
    EXPECT_EQ(in.bytes, 256);
    EXPECT_EQ(steps[0].args[2], steps[1].args[0]);
    EXPECT_EQ(Arg(plan, steps[1], 1).offset - Arg(plan, plan.run_steps[6], 0).offset, part * 256);
    const Buffer& out = Arg(plan, steps[2], 1);
    EXPECT_EQ(out.kind, BufferKind::kOutput);
    EXPECT_EQ(out.index, 1);
    EXPECT_EQ(out.offset, part * 256);
  }
  // What only the run uses is never whole.
  EXPECT_EQ(Arg(plan, plan.run_steps[0], 2).offset, Arg(plan, plan.run_steps[3], 2).offset);
  EXPECT_EQ(plan.arena_bytes, 256 + 512);
  const auto read = ExecutionPlan::FromJson(plan.ToJson());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->ToJson(), plan.ToJson());
  EXPECT_EQ(read->buffers[plan.run_steps[3].args[0]].offset, 256);

  b.main().body.bindings[0].attrs.Set(ir::kMicroBatches, int64_t{4});
  EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("argument 0 has another type than f takes"));
}

TEST(Planner, NumThreadsComesFromTheConfig) {
  ModuleBuilder b;
  b.Return({b.Input("x", kT)}, {});
  target::CompilationConfig config = b.module().config();
  config.num_threads = 3;
  b.module().set_config(config);
  EXPECT_EQ(BuildPlan(b.module(), b.manifests())->plan.num_threads, 3);
}

TEST(Planner, NamesFunctionsThatDoNotFit) {
  {
    ModuleBuilder b;
    b.Declare(Unary("f"));
    b.Return({b.Call("f", {b.Input("x", kT)})}, {});
    EXPECT_EQ(PlanStatus(b).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(PlanStatus(b).message(), "function f is implemented by no StaticLibrary");
    b.Implement(Unary("f"));
    EXPECT_TRUE(PlanStatus(b).ok());
    b.Implement(Unary("f"));
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("function f is implemented twice"));
  }
  {
    ModuleBuilder b;
    b.Declare(Unary("f"));
    b.Manifest(Binary("f"));
    b.Return({b.Call("f", {b.Input("x", kT)})}, {});
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("function f, implemented by test, has other inputs"));
  }
  {
    ModuleBuilder b;
    b.Implement(Unary("f").Constant({0}));
    b.Return({b.Call("f", {b.Input("x", kT)})}, {});
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("function f wants input 0 to be constant"));
  }
  {
    ModuleBuilder b;
    b.Implement(Unary("f").Constant({3}));
    b.Return({b.Call("f", {b.Input("x", kT)})}, {});
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("function f: the manifest calls input 3 constant"));
  }
}

TEST(Planner, NamesWhatIsNotImplemented) {
  {
    ModuleBuilder b;
    b.Return({b.Input("x", ir::TensorType{ir::DType::kF32, {ir::Dim::Symbol("batch"), 8}})}, {});
    EXPECT_EQ(PlanStatus(b).code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("symbolic dimension 'batch'"));
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("input 'x'"));
  }
  for (auto kind : {ir::Binding::Kind::kIf, ir::Binding::Kind::kCallPacked, ir::Binding::Kind::kCall}) {
    ModuleBuilder b;
    ir::Binding binding;
    binding.kind = kind;
    binding.var = ir::MakeVar("v", kT);
    binding.callee = "relu";
    binding.args = {b.Input("x", kT)};
    binding.location = "node_7";
    b.main().body.bindings.push_back(binding);
    b.Return({binding.var}, {});
    const absl::Status s = PlanStatus(b);
    EXPECT_EQ(s.code(),
              kind == ir::Binding::Kind::kCall ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(s.message()), HasSubstr("node_7"));
  }
}

TEST(Planner, MalformedModules) {
  EXPECT_EQ(BuildPlan(ir::IRModule(), {}).status().code(), absl::StatusCode::kInvalidArgument);
  {
    ModuleBuilder b;
    b.Return({ir::MakeVar("ghost", kT)}, {});
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("'ghost' is used before it is defined"));
  }
  {
    ModuleBuilder b;
    b.Return({b.Input("x", kT)}, {});
    b.main().attrs.Set("num_lifted_params", int64_t{5});
    EXPECT_THAT(std::string(PlanStatus(b).message()), HasSubstr("lifted parameters"));
  }
}

}  // namespace
}  // namespace inlay::artifact
