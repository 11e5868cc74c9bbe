#include "core/ir/proto_conversion.h"

#include "core/ir/printer.h"
#include "core/ir/required_extents.h"
#include "core/ir/testing.h"
#include "core/ir/verifier.h"

namespace inlay::ir {
namespace {

using testing::F32;
using testing::FloatLiteral;
using testing::FunctionBuilder;
using testing::IsInvalid;
using testing::Weight;

void SetType(proto::Type* type, std::vector<int64_t> shape) {
  type->mutable_tensor()->set_dtype(proto::F32);
  for (int64_t d : shape) type->mutable_tensor()->add_dims()->set_value(d);
}

// main(x: f32[2]) { y = neg(x); z = add(y, w); return z }
proto::IRModule Valid() {
  proto::IRModule module;
  proto::Constant* w = module.add_constants();
  w->mutable_type()->set_dtype(proto::F32);
  w->mutable_type()->add_dims()->set_value(2);
  w->set_digest(std::string(32, 'd'));
  proto::Function& main = (*module.mutable_functions())["main"];
  for (const char* name : {"x", "y", "z"}) main.add_vars()->set_name(name);
  SetType(main.mutable_vars(0)->mutable_type(), {2});
  main.add_params(0);
  proto::Binding* neg = main.mutable_body()->add_bindings();
  neg->set_var(1);
  neg->mutable_call()->set_op("neg");
  neg->add_args()->set_var(0);
  neg->set_location("n0 (Neg)");
  proto::Binding* add = main.mutable_body()->add_bindings();
  add->set_var(2);
  add->mutable_call()->set_op("add");
  add->add_args()->set_var(1);
  add->add_args()->set_constant(0);
  main.mutable_body()->add_results()->set_var(2);
  return module;
}

proto::Function& Main(proto::IRModule& m) { return (*m.mutable_functions())["main"]; }
proto::Binding& B(proto::IRModule& m, int i) { return *Main(m).mutable_body()->mutable_bindings(i); }
absl::Status Error(const proto::IRModule& m) { return FromProto(m).status(); }

TEST(FromProtoTest, InfersTypes) {
  absl::StatusOr<IRModule> module = FromProto(Valid());
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_TRUE(Verify(*module).ok());
  EXPECT_EQ(Print(*module),
            "@w0: f32[2]\n\n"
            "fn @main(%x: f32[2]) {\n"
            "  %0: f32[2] = neg(%x)  // n0 (Neg)\n"
            "  %1: f32[2] = add(%0, @w0)\n"
            "  return %1\n"
            "}\n");
  EXPECT_EQ(module->config().target().attr("mcpu"), "x86-64-v3");
}

TEST(FromProtoTest, EveryMalformationIsNamed) {
  auto broken = [](auto change) {
    proto::IRModule m = Valid();
    change(m);
    return Error(m);
  };
  using M = proto::IRModule;
  EXPECT_THAT(Error(M()), IsInvalid("no function 'main'"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).mutable_args(0)->set_var(2); }),
              IsInvalid("function 'main': binding 1 (add): uses var 2 (%z) before it is defined; bindings must be in "
                        "execution order, without cycles"));
  EXPECT_THAT(broken([](M& m) { B(m, 0).mutable_args(0)->set_var(7); }),
              IsInvalid("binding 0 (neg) at 'n0 (Neg)': uses var 7; the function has 3 vars"));
  EXPECT_THAT(broken([](M& m) { B(m, 0).mutable_args(0)->set_var(-1); }), IsInvalid("uses var -1"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).mutable_args(1)->set_constant(1); }),
              IsInvalid("uses constant 1; the module has 1"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).mutable_args(1)->Clear(); }), IsInvalid("neither var nor constant"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).set_var(1); }), IsInvalid("defines var 1 (%y) a second time"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).set_var(0); }), IsInvalid("defines var 0 (%x) a second time"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).set_var(99); }), IsInvalid("defines var 99"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).clear_expr(); }), IsInvalid("has no expression"));
  EXPECT_THAT(broken([](M& m) { B(m, 1).mutable_call()->set_op("sum"); }), IsInvalid("unknown operator 'sum'"));
  EXPECT_THAT(broken([](M& m) { (*B(m, 0).mutable_attrs())["axis"].set_i(1); }), IsInvalid("unknown attribute 'axis'"));
  EXPECT_THAT(broken([](M& m) { (*B(m, 0).mutable_attrs())["axis"]; }), IsInvalid("attribute 'axis': no value is set"));
  EXPECT_THAT(broken([](M& m) { Main(m).add_params(0); }), IsInvalid("parameter 1: defines var 0"));
  EXPECT_THAT(broken([](M& m) { Main(m).mutable_vars(0)->clear_type(); }), IsInvalid("%x has no tensor type"));
  EXPECT_THAT(broken([](M& m) { SetType(Main(m).mutable_vars(1)->mutable_type(), {3}); }),
              IsInvalid("is declared f32[3]; inference gives f32[2]"));
  EXPECT_THAT(broken([](M& m) { Main(m).mutable_body()->clear_results(); }), IsInvalid("it has no results"));
  EXPECT_THAT(broken([](M& m) { Main(m).add_result_names("a"), Main(m).add_result_names("b"); }),
              IsInvalid("2 result_names for 1 results"));
}

TEST(FromProtoTest, WhatTheCompilerSaysInAttributesIsNotAClientsToSay) {
  for (const char* name : {"num_lifted_params", "backend", "symbol", "constant_params"}) {
    proto::IRModule m = Valid();
    (*Main(m).mutable_attrs())[name].set_s("x");
    EXPECT_THAT(Error(m), IsInvalid(absl::StrCat("function 'main' has the attribute '", name, "'")));
  }
  proto::IRModule m = Valid();
  (*m.mutable_functions())["f"] = Main(m);
  B(m, 0).clear_call();
  B(m, 0).mutable_call_function()->set_function("f");
  EXPECT_TRUE(Error(m).ok()) << Error(m);
  (*B(m, 0).mutable_attrs())["micro_batches"].set_s("x");
  EXPECT_THAT(Error(m), IsInvalid("has the attribute 'micro_batches', which is the compiler's own"));
}

TEST(FromProtoTest, UpdatesMustFitTheirInputs) {
  auto with = [](std::vector<int64_t> updates, auto change) {
    proto::IRModule m = Valid();
    auto* ints = (*Main(m).mutable_attrs())["updates"].mutable_ints();
    for (int64_t i : updates) ints->add_v(i);
    change(m);
    return Error(m);
  };
  using M = proto::IRModule;
  auto as_is = [](M&) {};
  EXPECT_TRUE(with({0}, as_is).ok());
  EXPECT_TRUE(with({-1}, as_is).ok());
  EXPECT_THAT(with({}, as_is), IsInvalid("'updates' must be 1 ints, one a result (the input that it updates, or -1)"));
  EXPECT_THAT(with({0, -1}, as_is), IsInvalid("must be 1 ints"));
  EXPECT_THAT(with({1}, as_is), IsInvalid("names input 1 for result 0; there are 1"));
  EXPECT_THAT(with({-2}, as_is), IsInvalid("names input -2"));
  EXPECT_THAT(with({0, 0}, [](M& m) { Main(m).mutable_body()->add_results()->set_var(1); }),
              IsInvalid("names input 0 'x' twice"));
  EXPECT_THAT(with({0},
                   [](M& m) {
                     Main(m).mutable_vars(0)->clear_type();
                     SetType(Main(m).mutable_vars(0)->mutable_type(), {2, 1});
                   }),
              IsInvalid("says that result 0, f32[2, 2], is the new value of input 0 'x', which is f32[2, 1]"));
  EXPECT_THAT(with({}, [](M& m) { (*Main(m).mutable_attrs())["updates"].set_i(0); }), IsInvalid("must be 1 ints"));
}

TEST(FromProtoTest, RequiredExtentsAreOverSymbolsOfParameters) {
  // x: f32[n, "((m+1)/2)"]
  auto module = [](const std::vector<std::string>& required) {
    proto::IRModule m = Valid();
    auto* dims = Main(m).mutable_vars(0)->mutable_type()->mutable_tensor()->mutable_dims();
    dims->Mutable(0)->set_symbol("n");
    dims->Add()->set_symbol("(m+1)/2");
    B(m, 1).mutable_args(1)->set_var(1);
    auto* strings = (*Main(m).mutable_attrs())["required_extents"].mutable_strings();
    for (const std::string& text : required) strings->add_v(text);
    return m;
  };
  auto error = [&](const std::vector<std::string>& required) { return Error(module(required)); };
  EXPECT_TRUE(error({}).ok()) << error({});
  const std::vector<std::string> good = {"n - 8", "512-n", "n-(m+1)/2", "8*(n/8)-n", "8-8", "3"};
  absl::StatusOr<IRModule> read = FromProto(module(good));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(Verify(*read).ok());
  std::string found;
  const std::vector<Dim> required = RequiredExtents(read->functions.at("main")).value();
  for (const Dim& dim : required) absl::StrAppend(&found, dim.ToString(), "; ");
  EXPECT_EQ(found, "n-8; -n+512; -((m+1)/2)+n; 8*((n)/8)-n; ");
  EXPECT_THAT(Print(*read), ::testing::HasSubstr("{required_extents=[\"n - 8\", \"512-n\", "));
  read->functions["main"].attrs.Set("required_extents", std::vector<std::string>{"k"});
  EXPECT_THAT(Verify(*read), IsInvalid("main's attribute 'required_extents' has 'k', and no parameter has"));

  EXPECT_THAT(error({"n-8", "k-n"}), IsInvalid("has 'k-n', and no parameter has the symbol 'k'"));
  EXPECT_THAT(error({"m"}), IsInvalid("has 'm', and no parameter has the symbol 'm'"));  // half of it is known alone
  EXPECT_THAT(error({"(k+n)/2"}), IsInvalid("no parameter has the symbol 'k'"));
  EXPECT_THAT(error({"3-8"}), IsInvalid("has '3-8', which is -5; it must be 0 or more"));
  EXPECT_THAT(error({"n-"}), IsInvalid("no parameter has the symbol 'n-'"));
  EXPECT_THAT(error({""}), IsInvalid("an expression of 0 characters; it must have 1 to 1024"));
  EXPECT_THAT(error({"n*9223372036854775807*9"}), IsInvalid("no parameter has the symbol"));
  EXPECT_THAT(error({std::string(1000, '(') + "n"}), IsInvalid("no parameter has the symbol"));
  EXPECT_THAT(error({std::string(1 << 20, 'n')}), IsInvalid("an expression of 1048576 characters"));
  EXPECT_TRUE(error(std::vector<std::string>(1024, "n")).ok());
  EXPECT_THAT(error(std::vector<std::string>(1025, "n")), IsInvalid("must be strings, at most 1024"));
  proto::IRModule m = module({});
  (*Main(m).mutable_attrs())["required_extents"].set_s("n");
  EXPECT_THAT(Error(m), IsInvalid("must be strings"));
}

TEST(FromProtoTest, HostileTypesAndData) {
  auto dims = [](std::vector<int64_t> shape) {
    proto::IRModule m = Valid();
    Main(m).mutable_vars(0)->clear_type();
    SetType(Main(m).mutable_vars(0)->mutable_type(), shape);
    return Error(m);
  };
  EXPECT_THAT(dims({-1}), IsInvalid("an extent of -1"));
  EXPECT_THAT(dims({INT64_MAX, INT64_MAX}), IsInvalid("too large"));
  EXPECT_THAT(dims({0, INT64_MAX, 2}), IsInvalid("too large"));
  EXPECT_THAT(dims(std::vector<int64_t>(17, 1)), IsInvalid("rank 17"));
  auto constant = [](auto change) {
    proto::IRModule m = Valid();
    m.mutable_constants(0)->set_name("bias");
    change(m.mutable_constants(0));
    return Error(m);
  };
  using C = proto::Constant;
  EXPECT_THAT(constant([](C* c) { c->set_digest("short"); }), IsInvalid("constant 0 ('bias')"));
  EXPECT_THAT(constant([](C* c) { c->clear_value(); }), IsInvalid("neither a digest (a weight) nor a literal"));
  EXPECT_THAT(constant([](C* c) { c->set_literal("1234567"); }), IsInvalid("the literal has 7 bytes; f32[2] has 8"));
  EXPECT_THAT(constant([](C* c) {
                c->mutable_type()->mutable_dims(0)->set_value(1 << 20);
                c->set_literal("");
              }),
              IsInvalid("at most 65536 travel inside a module"));
  EXPECT_THAT(constant([](C* c) { c->mutable_type()->mutable_dims(0)->set_symbol("n"); }), IsInvalid("is symbolic"));
  EXPECT_THAT(constant([](C* c) { c->mutable_type()->mutable_dims(0)->Clear(); }),
              IsInvalid("neither a value nor a symbol"));
  EXPECT_THAT(constant([](C* c) { c->mutable_type()->set_dtype(static_cast<proto::DType>(99)); }),
              IsInvalid("dtype 99"));
  EXPECT_THAT(constant([](C* c) {
                c->mutable_type()->set_dtype(proto::BOOL);
                c->set_literal(std::string("\2\1", 2));
              }),
              IsInvalid("neither 0 nor 1"));
}

TEST(FromProtoTest, FunctionsMayNotRecurse) {
  proto::IRModule m = Valid();
  B(m, 0).mutable_call_function()->set_function("main");
  EXPECT_THAT(Error(m), IsInvalid("'main' calls itself"));
  B(m, 0).mutable_call_function()->set_function("f");
  EXPECT_THAT(Error(m), IsInvalid("'main' calls 'f', which the module does not have"));
  proto::Function f = Main(m);
  f.mutable_body()->mutable_bindings(0)->mutable_call()->set_op("neg");
  (*m.mutable_functions())["f"] = f;
  EXPECT_TRUE(Error(m).ok()) << Error(m);
  // A chain of calls that is too deep.
  for (int i = 0; i < 200; ++i) {
    proto::Function g = Valid().functions().at("main");
    g.mutable_body()->mutable_bindings(0)->mutable_call_function()->set_function(
        i == 199 ? "f" : "g" + std::to_string(i + 1));
    (*m.mutable_functions())["g" + std::to_string(i)] = g;
  }
  B(m, 0).mutable_call_function()->set_function("g0");
  EXPECT_THAT(Error(m), IsInvalid("nested deeper than 64"));
}

TEST(FromProtoTest, FunctionArgumentsAreChecked) {
  proto::IRModule m = Valid();
  proto::Function f = Main(m);
  (*m.mutable_functions())["f"] = f;
  B(m, 1).mutable_call_function()->set_function("f");
  EXPECT_THAT(Error(m), IsInvalid("'f' takes 1 arguments, not 2"));
  B(m, 1).mutable_args()->RemoveLast();
  EXPECT_TRUE(Error(m).ok());
  SetType((*m.mutable_functions())["f"].mutable_vars(0)->mutable_type(), {2});  // now f32[2, 2]
  EXPECT_THAT(Error(m), IsInvalid("argument 0 is f32[2]; the function 'f' takes f32[2, 2]"));
}

// t1 = (x, x), t2 = (t1, t1), ...: 2^n leaves.
TEST(FromProtoTest, TuplesMayNotExplode) {
  proto::IRModule m = Valid();
  proto::Function& main = Main(m);
  main.mutable_body()->clear_bindings();
  for (int i = 1; i <= 40; ++i) {
    main.add_vars();
    proto::Binding* tuple = main.mutable_body()->add_bindings();
    tuple->set_var(i);
    tuple->mutable_tuple();
    tuple->add_args()->set_var(i - 1);
    tuple->add_args()->set_var(i - 1);
  }
  main.mutable_body()->mutable_results(0)->set_var(0);
  EXPECT_THAT(Error(m), IsInvalid("tuples nested deeper than 8"));
}

// One wide tuple, returned by a function that is called often.
TEST(FromProtoTest, WideTuplesMayNotBeRepeatedWithoutEnd) {
  proto::IRModule m = Valid();
  proto::Function wide;
  SetType(wide.add_vars()->mutable_type(), {2});
  wide.add_params(0);
  for (int i = 0; i < 4096; ++i) wide.mutable_body()->add_results()->set_var(0);
  (*m.mutable_functions())["wide"] = wide;
  for (int i = 0; i < 2000; ++i) {
    proto::Binding* call = Main(m).mutable_body()->add_bindings();
    call->set_var(3 + i);
    call->mutable_call_function()->set_function("wide");
    call->add_args()->set_var(0);
    Main(m).add_vars();
  }
  EXPECT_THAT(Error(m), IsInvalid("tuples taken apart, are more than"));
}

TEST(FromProtoTest, IfsMayNotBeNestedWithoutEnd) {
  proto::IRModule m = Valid();
  proto::Block* block = Main(m).mutable_body();
  for (int i = 0; i < 1000; ++i) {
    proto::Binding* branch = block->add_bindings();
    block = branch->mutable_if_()->mutable_then_block();
  }
  EXPECT_THAT(Error(m), IsInvalid("ifs are nested deeper than 32"));
}

proto::IRModule WithIf() {
  proto::IRModule m = Valid();
  proto::Function& main = Main(m);
  for (const char* name : {"cond", "inner", "out"}) main.add_vars()->set_name(name);
  main.mutable_vars(3)->mutable_type()->mutable_tensor()->set_dtype(proto::BOOL);
  main.add_params(3);
  proto::Binding* branch = main.mutable_body()->add_bindings();
  branch->set_var(5);
  branch->add_args()->set_var(3);
  proto::Block* then_block = branch->mutable_if_()->mutable_then_block();
  proto::Binding* inner = then_block->add_bindings();
  inner->set_var(4);
  inner->mutable_call()->set_op("exp");
  inner->add_args()->set_var(2);
  then_block->add_results()->set_var(4);
  branch->mutable_if_()->mutable_else_block()->add_results()->set_var(2);
  main.mutable_body()->mutable_results(0)->set_var(5);
  return m;
}

TEST(FromProtoTest, IfBlocks) {
  proto::IRModule m = WithIf();
  absl::StatusOr<IRModule> module = FromProto(m);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Print(module->functions["main"]),
            "@w0: f32[2]\n\n"
            "fn @main(%x: f32[2], %cond: bool[]) {\n"
            "  %0: f32[2] = neg(%x)  // n0 (Neg)\n"
            "  %1: f32[2] = add(%0, @w0)\n"
            "  %2: f32[2] = if %cond\n"
            "  then {\n"
            "    %3: f32[2] = exp(%1)\n"
            "    yield %3\n"
            "  } else {\n"
            "    yield %1\n"
            "  }\n"
            "  return %2\n"
            "}\n");
  Main(m).mutable_body()->mutable_results(0)->set_var(4);
  EXPECT_THAT(Error(m), IsInvalid("result 0: uses var 4 (%inner) outside of the block that defines it"));
  m = WithIf();
  B(m, 2).mutable_args(0)->set_var(0);
  EXPECT_THAT(Error(m), IsInvalid("the condition is f32[2]; it must be a bool tensor with one element"));
  m = WithIf();
  B(m, 2).mutable_if_()->mutable_else_block()->mutable_results(0)->set_var(3);
  EXPECT_THAT(Error(m), IsInvalid("the two blocks of the if give f32[2] and bool[]"));
  m = WithIf();
  B(m, 2).mutable_if_()->mutable_then_block()->mutable_bindings(0)->set_var(5);
  B(m, 2).mutable_if_()->mutable_then_block()->mutable_results(0)->set_var(5);
  EXPECT_THAT(Error(m), IsInvalid("defines var 5"));
}

TEST(ToProtoTest, RoundTrip) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({Dim::Symbol("batch"), 4}));
  ConstantPtr w = Weight({4, 6}, "fc.weight");
  VarPtr m = b.Call("matmul", {x, w}, {}, "fc (MatMul)");
  VarPtr parts = b.Call("split", {m}, {{"axis", int64_t{1}}, {"sizes", std::vector<int64_t>{2, 4}}});
  VarPtr y = b.Call("mul", {b.GetItem(parts, 1), MakeScalar(DType::kF32, 0.5)});
  b.Return({y, b.GetItem(parts, 0)});
  b.function.result_names = {"a", "b"};
  IRModule module = b.Module()
                        .WithAttr("producer", std::string("test"))
                        .WithAttr("table", Literal{MakeTensorType(DType::kF32, {1}), std::string(4, '\0')});
  proto::IRModule proto = ToProto(module);
  absl::StatusOr<IRModule> again = FromProto(proto);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Print(*again), Print(module));
  EXPECT_TRUE(again->attrs == module.attrs);
  EXPECT_EQ(again->functions["main"].result_names, b.function.result_names);
  EXPECT_EQ(ToProto(*again).SerializeAsString().size(), proto.SerializeAsString().size());
  EXPECT_EQ(again->functions["main"].body.bindings[0].args[1].constant->digest, w->digest);
}

TEST(VerifierTest, FindsWhatPassesBreak) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2}));
  VarPtr y = b.Call("neg", {x});
  b.Return({y});
  EXPECT_TRUE(Verify(b.Module()).ok());
  EXPECT_THAT(Verify(IRModule()), IsInvalid("no function 'main'"));

  IRModule m = b.Module();
  m.functions["main"].body.bindings[0].var = MakeVar("y", F32({3}));
  EXPECT_THAT(Verify(m), IsInvalid("%y is declared f32[3]; inference gives f32[2]"));
  m = b.Module();
  m.functions["main"].body.bindings.push_back(m.functions["main"].body.bindings[0]);
  EXPECT_THAT(Verify(m), IsInvalid("is defined twice"));
  m = b.Module();
  m.functions["main"].params.clear();
  EXPECT_THAT(Verify(m), IsInvalid("%x is used before it is defined"));
  m = b.Module();
  m.functions["main"].body.bindings[0].args = {FloatLiteral({2}, {1})};
  EXPECT_THAT(Verify(m), IsInvalid("has 4 bytes; its type f32[2] has 8"));
  m = b.Module();
  m.functions["main"].body.bindings[0].kind = Binding::Kind::kCallFunction;
  m.functions["main"].body.bindings[0].callee = "main";
  EXPECT_THAT(Verify(m), IsInvalid("calls itself"));
}

}  // namespace
}  // namespace inlay::ir
