// The passes on structure: inline_functions, common_subexpression, dead_code; and the pass manager.
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

using ir::Binding;
using ir::testing::IsInvalid;

Binding CallFunction(const std::string& name, std::vector<Operand> args, ir::Type type, std::string location = "") {
  Binding call;
  call.kind = Binding::Kind::kCallFunction;
  call.callee = name;
  call.args = std::move(args);
  call.var = ir::MakeVar(name, std::move(type));
  call.location = std::move(location);
  return call;
}

TEST(InlineFunctionsTest, CallsBecomeBodies) {
  FunctionBuilder f;
  VarPtr a = f.Param("a", F32({2}));
  VarPtr e = f.Call("exp", {a});
  f.Return({e, f.Call("neg", {e}, {}, "own (Neg)")});
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2}));
  const ir::Type pair(ir::TupleType{{F32({2}), F32({2})}});
  b.function.body.bindings.push_back(CallFunction("f", {x}, pair, "first"));
  VarPtr once = b.GetItem(b.function.body.bindings[0].var, 1);
  b.function.body.bindings.push_back(CallFunction("f", {once}, pair));
  b.Return({b.GetItem(b.function.body.bindings[2].var, 0)});
  ir::IRModule module = b.Module();
  module.functions["f"] = f.function;
  module.functions["uncalled"] = f.function;
  module = RunPass(std::move(module), InlineFunctions(), /*sweep=*/false);
  EXPECT_EQ(module.functions.size(), 1);
  EXPECT_EQ(Body(RunPass(std::move(module), Canonicalise())),
            "  %0: f32[2] = exp(%x)  // first\n"
            "  %1: f32[2] = neg(%0)  // own (Neg)\n"
            "  %2: f32[2] = exp(%1)\n"
            "  return %2\n");
}

ir::IRModule WithIf(Operand condition, VarPtr cond_param) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2}));
  if (cond_param != nullptr) b.function.params.push_back(cond_param);
  Binding branch;
  branch.kind = Binding::Kind::kIf;
  branch.args = {condition};
  branch.blocks.resize(2);
  for (int i = 0; i < 2; ++i) {
    Binding inner;
    inner.callee = i == 0 ? "exp" : "neg";
    inner.args = {x};
    inner.var = ir::MakeVar("inner", x->type);
    branch.blocks[i].bindings = {inner};
    branch.blocks[i].results = {inner.var};
  }
  branch.var = ir::MakeVar("branch", x->type);
  b.function.body.bindings.push_back(branch);
  b.Return({b.Call("relu", {branch.var})});
  return b.Module();
}

TEST(InlineFunctionsTest, IfWithLiteralCondition) {
  EXPECT_EQ(Body(RunPass(WithIf(IntLiteral({1}, {0}, DType::kBool), nullptr), InlineFunctions())),
            "  %0: f32[2] = neg(%x)\n  %1: f32[2] = relu(%0)\n  return %1\n");
  VarPtr cond = ir::MakeVar("cond", ir::TensorType{DType::kBool, {}});
  EXPECT_EQ(Body(RunPass(WithIf(cond, cond), InlineFunctions())), Body(WithIf(cond, cond)));
}

target::CompilationConfig ForVm() {
  target::CompilationConfig config = target::CompilationConfig::Default();
  config.executor.kind = target::ExecutorKind::kVm;
  return config;
}

TEST(OutlineControlFlowTest, BranchesBecomeFunctions) {
  VarPtr cond = ir::MakeVar("cond", ir::TensorType{DType::kBool, {}});
  absl::StatusOr<ir::IRModule> module = OutlineControlFlow()->Run(WithIf(cond, cond), ForVm());
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(ir::Verify(*module).ok()) << ir::Verify(*module);
  ASSERT_EQ(module->functions.size(), 3);
  const Binding& branch = module->functions.at("main").body.bindings[0];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(branch.blocks[i].bindings.size(), 1);
    const Binding& call = branch.blocks[i].bindings[0];
    EXPECT_EQ(call.kind, Binding::Kind::kCallFunction);
    EXPECT_EQ(call.args[0].var->name, "x");
    const ir::Function& function = module->functions.at(call.callee);
    EXPECT_EQ(function.body.bindings[0].callee, i == 0 ? "exp" : "neg");
    EXPECT_NE(function.params[0], call.args[0].var);
  }
  EXPECT_EQ(OutlineControlFlow()->Run(*module, ForVm())->functions.size(), 5);  // again: calls in functions, no harm
}

TEST(OutlineControlFlowTest, OtherExecutorsRefuseByName) {
  VarPtr cond = ir::MakeVar("cond", ir::TensorType{DType::kBool, {}});
  ir::IRModule module = WithIf(cond, cond);
  module.functions["main"].body.bindings[0].location = "gate (If)";
  const absl::Status s = OutlineControlFlow()->Run(module, target::CompilationConfig::Default()).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(s.message()), ::testing::HasSubstr("gate (If)"));
  EXPECT_THAT(std::string(s.message()), ::testing::HasSubstr("use executor vm"));
}

TEST(InlineFunctionsTest, WhilesKeepTheirBodies) {
  FunctionBuilder f;
  VarPtr go = f.Param("go", ir::TensorType{DType::kBool, {}});
  VarPtr a = f.Param("a", F32({2}));
  f.Return({go, f.Call("exp", {a})});
  FunctionBuilder b;
  VarPtr start = b.Param("start", ir::TensorType{DType::kBool, {}});
  VarPtr x = b.Param("x", F32({2}));
  const ir::Type state(ir::TupleType{{start->type, x->type}});
  b.function.body.bindings.push_back(CallFunction("turn", {start, x}, state));
  b.function.body.bindings[0].attrs.Set("while", true);
  b.Return({b.GetItem(b.function.body.bindings[0].var, 1)});
  ir::IRModule module = b.Module();
  module.functions["turn"] = f.function;
  ASSERT_TRUE(ir::Verify(module).ok()) << ir::Verify(module);
  EXPECT_EQ(RunPass(module, InlineFunctions()).functions.size(), 2);

  ir::IRModule named = module;
  named.functions["transform_params"] = f.function;
  named.functions["main"].body.bindings[0].callee = "transform_params";
  EXPECT_THAT(InlineFunctions()->Run(named, ForVm()).status(), IsInvalid("may not be called 'transform_params'"));

  // A body that does not give what it takes.
  module.functions["turn"].body.results[0] = module.functions["turn"].body.results[1];
  module.functions["main"].body.bindings[0].var = ir::MakeVar("r", ir::Type(ir::TupleType{{x->type, x->type}}));
  EXPECT_THAT(ir::Verify(module), IsInvalid("it must give a bool with one element"));
}

// Each function calls the next twice: 2^40 bindings.
TEST(InlineFunctionsTest, GrowthIsBounded) {
  ir::IRModule module;
  for (int i = 0; i <= 40; ++i) {
    FunctionBuilder b;
    VarPtr x = b.Param("x", F32({2}));
    const std::string next = "f" + std::to_string(i + 1);
    if (i == 40) {
      b.Return({b.Call("neg", {x})});
    } else {
      b.function.body.bindings.push_back(CallFunction(next, {x}, x->type));
      b.function.body.bindings.push_back(CallFunction(next, {b.function.body.bindings[0].var}, x->type));
      b.Return({b.function.body.bindings[1].var});
    }
    module.functions[i == 0 ? "main" : "f" + std::to_string(i)] = b.function;
  }
  ASSERT_TRUE(ir::Verify(module).ok());
  EXPECT_THAT(InlineFunctions()->Run(module, target::CompilationConfig::Default()).status(),
              IsInvalid("more than 200000 values"));
}

TEST(CommonSubexpressionTest, EqualThingsOnce) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  ir::ConstantPtr w = Weight({4}, "gamma"), twin = Weight({4}, "gamma");
  VarPtr a = b.Call("add", {x, w}), same = b.Call("add", {x, w}), other = b.Call("add", {x, twin});
  VarPtr l = b.Call("mul", {x, FloatLiteral({}, {2})}), l2 = b.Call("mul", {x, FloatLiteral({}, {2})});
  VarPtr s = b.Call("softmax", {x}), t = b.Call("log_softmax", {x});
  b.Return({a, same, other, l, l2, s, t});
  EXPECT_EQ(BodyAfter(b, CommonSubexpression()),
            "  %0: f32[4] = add(%x, @w0)\n"
            "  %1: f32[4] = add(%x, @w1)\n"  // equal digests are no reason
            "  %2: f32[4] = mul(%x, f32(2.0))\n"
            "  %3: f32[4] = softmax(%x, axis=0)\n"
            "  %4: f32[4] = log_softmax(%x, axis=0)\n"
            "  return %0, %0, %1, %2, %2, %3, %4\n");
}

TEST(CommonSubexpressionTest, BlocksDoNotShareWithEachOther) {
  VarPtr cond = ir::MakeVar("cond", ir::TensorType{DType::kBool, {}});
  ir::IRModule module = WithIf(cond, cond);
  for (ir::Block& block : module.functions["main"].body.bindings[0].blocks) block.bindings[0].callee = "exp";
  RunPass(module, CommonSubexpression());  // verifies
  EXPECT_EQ(Body(RunPass(module, CommonSubexpression())), Body(module));
}

TEST(DeadCodeTest, UnusedGoesEffectsStay) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr dead = b.Call("exp", {x});
  b.Call("neg", {dead});
  VarPtr kept = b.Call("relu", {x});
  Binding packed;
  packed.kind = Binding::Kind::kCallPacked;
  packed.callee = "log";
  packed.args = {kept};
  packed.var = ir::MakeVar("unit", F32({}));
  b.function.body.bindings.push_back(packed);
  b.Return({x});
  EXPECT_EQ(Body(RunPass(b.Module(), DeadCode())),
            "  %0: f32[4] = relu(%x)\n  %1: f32[] = call_packed \"log\"(%0)\n  return %x\n");
}

TEST(PassManagerTest, DisabledPassesLevelsTimingsAndDumps) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  b.Return({b.Call("mul", {x, MakeScalar(DType::kF32, 1)})});
  target::CompilationConfig config = target::CompilationConfig::Default();
  config.disabled_passes = {"simplify"};
  PassManager manager = BuildNormalisePipeline(config);
  std::vector<std::string> ran;
  manager.set_dump([&](const PassTiming& pass, const ir::IRModule&) { ran.push_back(pass.name); });
  absl::StatusOr<ir::IRModule> result = manager.Run(b.Module());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Body(*result), "  %0: f32[4] = mul(%x, f32(1.0))\n  return %0\n");
  EXPECT_EQ(manager.timings().size(), ran.size());
  EXPECT_THAT(ran, ::testing::Not(::testing::Contains("simplify")));
  EXPECT_THAT(ran, ::testing::Contains("common_subexpression"));
  const std::vector<const Pass*> distinct = manager.DistinctPasses();
  EXPECT_EQ(std::count_if(distinct.begin(), distinct.end(), [](const Pass* p) { return p->name() == "simplify"; }), 1);

  config.disabled_passes = {"simplfy"};
  EXPECT_THAT(BuildNormalisePipeline(config).Run(b.Module()).status(),
              IsInvalid("there is no pass 'simplfy'; there are infer_types"));
  config.disabled_passes = {"dead_code"};
  EXPECT_THAT(BuildNormalisePipeline(config).Run(b.Module()).status(), IsInvalid("'dead_code' can't be disabled"));
  config.disabled_passes = {};
  config.opt_level = 0;
  result = BuildNormalisePipeline(config).Run(b.Module());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Body(*result), "  %0: f32[4] = mul(%x, f32(1.0))\n  return %0\n");
  config.opt_level = 1;
  result = BuildNormalisePipeline(config).Run(b.Module());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Body(*result), "  return %x\n");
}

}  // namespace
}  // namespace inlay::passes
