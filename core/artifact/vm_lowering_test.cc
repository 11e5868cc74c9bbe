// Plans for executor vm: open shapes, and what a loop's registers share memory with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/artifact/planner.h"
#include "core/artifact/slot_planner.h"
#include "core/artifact/testing/module_builder.h"
#include "core/ir/batch.h"
#include "core/ir/control_flow.h"
#include "core/ir/dim_expr.h"

namespace inlay::artifact {
namespace {

using runtime::ExecutionPlan;
using runtime::RegisterKind;
using runtime::VmFunction;
using runtime::VmOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ModuleBuilder;
using testing::Signature;

ir::TensorType F32(std::vector<ir::Dim> dims) { return {ir::DType::kF32, std::move(dims)}; }
ir::Dim S(const std::string& symbol) { return ir::CanonicalDim(symbol); }

void UseVm(ModuleBuilder* b) {
  target::CompilationConfig config = target::CompilationConfig::Default();
  config.executor.kind = target::ExecutorKind::kVm;
  b->module().set_config(config);
}

std::string PlanError(ModuleBuilder& b) {
  UseVm(&b);
  return std::string(BuildPlan(b.module(), b.manifests()).status().message());
}

TEST(VmLowering, OpenShapes) {
  ModuleBuilder b;
  const auto x_type = F32({S("batch"), S("seq"), 8}), y_type = F32({S("2*batch"), S("((seq)/2)+1")});
  b.Implement(Signature("f").In(x_type).Out(x_type).Symbols({"batch", "seq"}).WorkspaceExpr("64*seq"));
  b.Implement(Signature("g").In(x_type).Out(y_type).Symbols({"((seq)/2)", "batch", "seq"}));
  ir::VarPtr v = b.Input("x", x_type);
  b.Input("other", F32({S("2*batch+seq"), S("3*n")}));
  for (int i = 0; i < 4; ++i) v = b.Call("f", {v});
  b.Return({b.Call("g", {v})}, {"y"});
  UseVm(&b);
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  EXPECT_EQ(plan.shapes.ToString(plan.inputs[1].type), "f32[2*batch+seq, 3*n]");
  EXPECT_EQ(plan.shapes.ToString(plan.outputs[0].type), "f32[2*batch, ((seq)/2)+1]");
  std::vector<std::string> names;
  for (const auto& r : plan.shapes.registers) names.push_back(r.name);
  EXPECT_THAT(names, ElementsAre("batch", "seq", "n", "((seq)/2)"));
  EXPECT_THAT(plan.functions[0].symbols, ElementsAre(0, 1));
  EXPECT_THAT(plan.functions[1].symbols, ElementsAre(3, 0, 1));
  EXPECT_EQ(plan.shapes.extents[plan.functions[0].workspace_extent].name, "64*seq");
  const VmFunction& main = plan.bytecode.functions[0];
  EXPECT_EQ(main.num_slots, 3);  // a chain needs two and the workspace
  EXPECT_EQ(main.frame_bytes, 0);

  runtime::CallTypes types;
  auto bind = [&](std::vector<int64_t> x, std::vector<int64_t> other) {
    using runtime::DType;
    return types.Bind(plan.shapes, plan.inputs, plan.outputs, {{DType::kF32, x}, {DType::kF32, other}}).message();
  };
  EXPECT_EQ(bind({3, 5, 8}, {11, 6}), "");
  EXPECT_THAT(types.outputs()[0].type.shape, ElementsAre(6, 3));
  EXPECT_THAT(types.shapes()->registers, ElementsAre(3, 5, 2, 2));
  EXPECT_EQ(bind({3, 5, 8}, {11, 7}), "input 'other': dimension 1 is 7; it must be 3*n");
  EXPECT_EQ(bind({3, 5, 8}, {12, 6}),
            "input 'other': dimension 0 is 12, but '2*batch+seq' is 11 (batch = 3 from input 'x', seq = 5 from input "
            "'x')");
}

TEST(VmLowering, WhatMainRequiresIsCheckedFirst) {
  const auto type = F32({S("seq"), S("n")}), shorter = F32({S("seq-2")});
  ModuleBuilder b;
  b.Implement(Signature("f").In(type).Out(shorter).Symbols({"n", "seq"}));
  b.Return({b.Call("f", {b.Input("x", type)})}, {});
  b.main().attrs.Set("required_extents", std::vector<std::string>{"seq - 8", "8*(seq/8)-seq", "512-seq", "n-seq", "7"});
  UseVm(&b);
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  runtime::CallTypes types;
  auto bind = [&](int64_t seq, int64_t n) {
    return types.Bind(plan.shapes, plan.inputs, plan.outputs, {{runtime::DType::kF32, {seq, n}}}).message();
  };
  EXPECT_EQ(bind(8, 8), "");
  EXPECT_EQ(bind(512, 1000), "");
  EXPECT_EQ(bind(1, 8), "the model needs 'seq' to be 8 or more; it is 1 from input 'x'");  // not: seq-2 to be
  EXPECT_EQ(bind(12, 99), "the model needs '8*((seq)/8)-seq' to be 0 or more; it is -4 (seq = 12 from input 'x')");
  EXPECT_EQ(bind(520, 999), "the model needs 'seq' to be 512 or less; it is 520 from input 'x'");
  EXPECT_EQ(bind(16, 9),
            "the model needs 'n-seq' to be 0 or more; it is -7 (seq = 16 from input 'x', n = 9 from input 'x')");

  b.main().attrs.Set("required_extents", std::vector<std::string>{"8*(seq/8)-seq", "n-2*seq", "seq-8*(seq/8)", "n-1"});
  built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(bind(8, 16), "");
  EXPECT_EQ(bind(12, 99),
            "the model needs '8*((seq)/8)' and 'seq' to be equal; they are 8 and 12 (seq = 12 from input 'x')");

  b.main().attrs.Set("required_extents", std::vector<std::string>{"k"});
  EXPECT_THAT(PlanError(b), HasSubstr("no parameter has the symbol 'k'"));
}

// In a register of which kind the first call of main makes the new value of an input.
runtime::RegisterKind WhereItIsMade(bool read_later) {
  const auto type = F32({S("batch"), 8});
  ModuleBuilder b;
  b.Implement(Signature("write").In(type).In(type).Out(type).Symbols({"batch"}).InPlace({0}));
  ir::VarPtr cache = b.Input("cache", type), x = b.Input("x", type);
  ir::VarPtr made = b.Call("write", {cache, x});
  std::vector<ir::Operand> results = {made};
  if (read_later) results.push_back(b.Call("write", {cache, made}));
  b.Return(results, {});
  b.main().attrs.Set("updates", read_later ? std::vector<int64_t>{0, -1} : std::vector<int64_t>{0});
  UseVm(&b);
  auto built = BuildPlan(b.module(), b.manifests());
  EXPECT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->plan.updates[0], 0);
  const VmFunction& main = built->plan.bytecode.functions[0];
  EXPECT_EQ(main.code[0], static_cast<int64_t>(runtime::VmOp::kOpenKernel));
  return main.registers[main.code[5]].kind;
}

TEST(VmLowering, AnInputIsUpdatedByTheLastCallThatReadsIt) {
  EXPECT_EQ(WhereItIsMade(false), runtime::RegisterKind::kResult);
  EXPECT_EQ(WhereItIsMade(true), runtime::RegisterKind::kSlot);
}

// f, g and h for one row of an open batch (f reads a weight, g is given all of another input), k for all of them.
TEST(VmLowering, AnOpenBatchGoesThroughARunInTurns) {
  const ir::TensorType row = F32({1, 32}), whole = F32({S("n"), 32}), table = F32({8, 32});
  ModuleBuilder b;
  b.Implement(Signature("f").In(row).In(table).Out(row).Constant({1}).State());
  b.Implement(Signature("g").In(row).In(table).Out(row).Out(row));
  b.Implement(Signature("k").In(whole).Out(whole).Symbols({"n"}));
  const ir::VarPtr x = b.Input("x", whole), other = b.Input("other", table);
  const ir::ConstantPtr w = ir::MakeWeight(table, Digest::Of("w"), "w");
  auto call = [&](const std::string& callee, std::vector<ir::Operand> args, ir::Type type, bool in_turns) {
    ir::Binding binding;
    binding.kind = ir::Binding::Kind::kCallFunction;
    binding.callee = callee;
    binding.args = std::move(args);
    binding.var = ir::MakeVar(callee, std::move(type));
    if (in_turns) binding.attrs.Set(ir::kMicroBatches, std::string("n"));
    b.main().body.bindings.push_back(binding);
    return binding.var;
  };
  const ir::VarPtr first = call("f", {x, w}, whole, true);
  const ir::VarPtr pair = call("g", {first, other}, ir::Type(ir::TupleType{{whole, whole}}), true);
  const ir::VarPtr left = b.GetItem(pair, 0), right = b.GetItem(pair, 1);
  const ir::VarPtr last = call("f", {right, w}, whole, true);
  const ir::VarPtr all = call("k", {left}, whole, false);
  b.Return({all, last}, {});
  UseVm(&b);
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  ASSERT_EQ(plan.bytecode.functions.size(), 2);
  const VmFunction &main = plan.bytecode.functions[0], &run = plan.bytecode.functions[1];
  const auto turns = static_cast<int64_t>(VmOp::kCallInTurns), open = static_cast<int64_t>(VmOp::kOpenKernel);
  // x and other in, left and the second output out: weights are the plan's, what stays in the run is never whole.
  ASSERT_EQ(run.num_params, 2);
  ASSERT_EQ(run.num_results, 2);
  EXPECT_EQ(main.code[0], turns);
  EXPECT_EQ(main.code[1], 1);
  EXPECT_EQ(plan.shapes.extents[-1 - main.code[2]].name, "n");
  EXPECT_EQ(main.code[3], 0);
  EXPECT_EQ(main.code[4], 1);
  EXPECT_EQ(main.registers[main.code[5]].kind, RegisterKind::kSlot);
  EXPECT_EQ(main.registers[main.code[6]].kind, RegisterKind::kResult);
  EXPECT_EQ(main.code[7], open);
  EXPECT_EQ(main.num_slots, 1);
  EXPECT_EQ(run.frame_bytes, 2 * 128);
  ASSERT_EQ(plan.run_steps.size(), 4);
  std::vector<std::string> often;
  for (const runtime::Step& step : plan.run_steps) often.push_back(step.turns.extent);
  EXPECT_THAT(often, ElementsAre("", "n", "n", "n"));
  const auto read = ExecutionPlan::FromJson(plan.ToJson());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->ToJson(), plan.ToJson());

  b.main().body.bindings[1].attrs.Set(ir::kMicroBatches, std::string("m"));
  EXPECT_THAT(PlanError(b), HasSubstr("the symbolic extent 'm' is no input's dimension"));
  b.main().body.bindings[0].callee = b.main().body.bindings[1].callee = "nobody";
  EXPECT_THAT(PlanError(b), HasSubstr("micro-batches of no partition"));
}

// As those of an input are.
TEST(VmLowering, RowsOfWhatIsConstantAreGivenToEachTurn) {
  const ir::TensorType row = F32({1, 32}), whole = F32({3, 32});
  ModuleBuilder b;
  b.Implement(Signature("f").In(row).In(row).Out(row));
  b.Implement(Signature("prepare").In(whole).Out(whole));
  const ir::VarPtr x = b.Input("x", whole);
  const ir::VarPtr prepared = b.Lift("prepare", {ir::MakeWeight(whole, Digest::Of("w"), "w")});
  ir::Binding call;
  call.kind = ir::Binding::Kind::kCallFunction;
  call.callee = "f";
  call.args = {x, prepared};
  call.var = ir::MakeVar("y", whole);
  call.attrs.Set(ir::kMicroBatches, int64_t{3});
  b.main().body.bindings.push_back(call);
  b.Return({call.var}, {"y"});
  UseVm(&b);
  const auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const VmFunction &main = built->plan.bytecode.functions[0], &run = built->plan.bytecode.functions[1];
  EXPECT_EQ(run.num_params, 2);
  EXPECT_EQ(main.code[2], 3);
  EXPECT_EQ(main.registers[main.code[4]].kind, RegisterKind::kBuffer);
  EXPECT_EQ(main.registers[main.code[4]].type.shape[0], 3);
  EXPECT_EQ(run.registers[1].type.shape[0], 1);
}

TEST(VmLowering, ASymbolThatNoInputHasIsRefused) {
  ModuleBuilder b;
  b.Implement(Signature("f").In(F32({S("a*b")})).Out(F32({S("a*b")})).Symbols({"a", "b"}));
  b.Return({b.Call("f", {b.Input("x", F32({S("a*b")}))})}, {});
  EXPECT_THAT(PlanError(b), HasSubstr("the symbolic extent 'a' is no input's dimension"));
}

// Else its two sources could disagree, and what is derived from them with them.
TEST(VmLowering, AnOpaquePartHasOneSource) {
  ModuleBuilder b;
  b.Implement(Signature("f").In(F32({S("((h)/2)")})).Out(F32({S("((h)/2)")})).Symbols({"((h)/2)"}));
  ir::VarPtr x = b.Input("x", F32({S("((h)/2)")}));
  b.Input("z", F32({S("((h)/2)+h")}));
  b.Return({b.Call("f", {x})}, {});
  EXPECT_EQ(PlanError(b), "'((h)/2)' is a dimension of input 'x' and follows from 'h' too");
}

TEST(VmLowering, ManifestsMustAgreeAboutSymbols) {
  const auto type = F32({S("n")});
  auto error = [&](Signature declared, Signature manifest) {
    ModuleBuilder b;
    b.Declare(declared);
    b.Manifest(manifest);
    b.Return({b.Call("f", {b.Input("x", type)})}, {});
    return PlanError(b);
  };
  const Signature good = Signature("f").In(type).Out(type).Symbols({"n"});
  EXPECT_EQ(error(good, good), "");
  EXPECT_THAT(error(good, Signature("f").In(type).Out(type)), HasSubstr("has other symbols"));
  EXPECT_THAT(error(good, Signature("f").In(type).Out(type).Symbols({"n", "m"})), HasSubstr("has other symbols"));
  EXPECT_THAT(error(good, Signature("f").In(F32({S("m")})).Out(type).Symbols({"n"})), HasSubstr("has other inputs"));
  EXPECT_THAT(error(good, Signature("f").In(F32({4})).Out(type).Symbols({"n"})), HasSubstr("has other inputs"));
  EXPECT_THAT(error(good, Signature("f").In(type).Out(type).Symbols({"n", "n"})), HasSubstr("lists a symbol twice"));
  EXPECT_THAT(error(good, Signature("f").In(type).Out(type).Symbols({"n"}).WorkspaceExpr("4*m")),
              HasSubstr("has 'm' in workspace_expr but not in symbols"));
  EXPECT_THAT(error(good, Signature("f").In(type).Out(type).Symbols({"n"}).WorkspaceExpr("4")),
              HasSubstr("gives a number as workspace_expr"));
  EXPECT_THAT(error(good, Signature("f").In(type).Out(type).Symbols({"n"}).WorkspaceExpr("4*n").Workspace(64)),
              HasSubstr("gives its workspace's size twice"));
}

// A turn swaps the memory of a value and its successor, so what is left of the loop may lie in either's.
TEST(VmLowering, WhatALoopGivesKeepsBothOfItsPlaces) {
  ModuleBuilder b;
  const auto flag = ir::TensorType{ir::DType::kBool, {}};
  const auto type = F32({32});
  b.Implement(Signature("f").In(type).Out(type));
  b.Implement(Signature("g").In(type).In(type).Out(type));
  ir::VarPtr c = b.Input("c", flag), x = b.Input("x", type);
  ir::Function body;
  body.params = {ir::MakeVar("c", flag), ir::MakeVar("x", type)};
  body.body.results = {body.params[0], body.params[1]};
  b.module().functions["body"] = body;
  ir::Binding loop;
  loop.kind = ir::Binding::Kind::kCallFunction;
  loop.callee = "body";
  loop.args = {c, x};
  loop.attrs.Set(ir::kWhile, true);
  loop.var = ir::MakeVar("", ir::TupleType{{flag, type}});
  b.main().body.bindings.push_back(loop);
  ir::VarPtr r = b.GetItem(loop.var, 1);
  ir::VarPtr v = b.Call("f", {b.Call("f", {r})});
  b.Return({b.Call("g", {r, v})}, {});
  UseVm(&b);
  auto built = BuildPlan(b.module(), b.manifests());
  ASSERT_TRUE(built.ok()) << built.status();
  const ExecutionPlan& plan = built->plan;
  const VmFunction& main = plan.bytecode.functions[0];
  std::vector<int64_t> swapped;
  int kernels = 0;
  for (size_t pc = 0; pc < main.code.size(); pc += InstructionWords(plan.bytecode, plan, main, pc)) {
    const int64_t* word = &main.code[pc];
    if (word[0] == static_cast<int64_t>(VmOp::kSwap)) swapped.insert(swapped.end(), {word[1], word[2]});
    if (word[0] != static_cast<int64_t>(VmOp::kKernel)) continue;
    const auto& to = main.registers[word[plan.run_steps[word[1]].function == 0 ? 4 : 5]];
    for (int64_t at : swapped) {
      EXPECT_TRUE(to.kind != RegisterKind::kFrame || main.registers[at].type != to.type ||
                  main.registers[at].at != to.at);
    }
    ++kernels;
  }
  EXPECT_EQ(swapped.size(), 4);
  EXPECT_EQ(kernels, 3);
}

TEST(SlotPlanner, WhatNeverLivesTogetherShares) {
  const SlotAssignment chain = AssignSlots({{100, 0, 1}, {300, 1, 2}, {200, 2, 3}, {50, 3, 4}});
  EXPECT_EQ(chain.num_slots, 2);
  EXPECT_NE(chain.slots[0], chain.slots[1]);
  EXPECT_NE(chain.slots[1], chain.slots[2]);
  EXPECT_NE(chain.slots[2], chain.slots[3]);
  EXPECT_EQ(AssignSlots({{8, 0, 9}, {8, 0, 9}, {8, 9, 9}}).num_slots, 3);
  EXPECT_EQ(AssignSlots({}).num_slots, 0);
}

}  // namespace
}  // namespace inlay::artifact
