#include "core/ir/pattern.h"

#include "core/ir/testing.h"

namespace inlay::ir {
namespace {

using testing::F32;
using testing::FunctionBuilder;
using testing::Weight;

bool MatchRoot(const Function& f, const PatternPtr& pattern, PatternMatch* match, int position = -1) {
  DefUse def_use(f.body);
  if (position < 0) position = static_cast<int>(f.body.bindings.size()) - 1;
  return Match(pattern, f.body.bindings[position], def_use, match);
}

// conv -> add -> relu
Function ConvAddRelu(bool relu = true) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 4, 4}));
  VarPtr c = b.Call("conv", {x, Weight({8, 8, 1, 1})});
  VarPtr a = b.Call("add", {c, Weight({8, 1, 1}, "bias")});
  if (relu) a = b.Call("relu", {a});
  b.Return({a});
  return b.function;
}

PatternPtr ConvAdd() { return CommutativeOp("add", Op("conv", {Any("x"), IsConstant("w")}, "conv"), Any("b"), "add"); }

TEST(PatternTest, OptionalIsTakenWhereThereIsOneAndSkippedOtherwise) {
  PatternPtr p = Optional("relu", ConvAdd(), "relu");
  PatternMatch with, without;
  Function f = ConvAddRelu();
  ASSERT_TRUE(MatchRoot(f, p, &with));
  EXPECT_EQ(with.bindings.size(), 3);
  EXPECT_EQ(with.bindings.back()->callee, "relu");
  EXPECT_EQ(with.Find("relu"), with.bindings.back());
  EXPECT_EQ(with.Find("conv")->callee, "conv");
  EXPECT_EQ(with.named_operands.at("x").var, f.params[0]);
  EXPECT_TRUE(with.named_operands.at("w").is_weight());
  Function g = ConvAddRelu(false);
  ASSERT_TRUE(MatchRoot(g, p, &without));
  EXPECT_EQ(without.bindings.size(), 2);
  EXPECT_EQ(without.Find("relu"), nullptr);
}

TEST(PatternTest, CommutativeArgumentsMatchBothWays) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 4, 4})), y = b.Param("y", F32({1, 8, 4, 4}));
  VarPtr c = b.Call("conv", {x, Weight({8, 8, 1, 1})});
  b.Return({b.Call("add", {y, c})});
  PatternMatch match;
  ASSERT_TRUE(MatchRoot(b.function, ConvAdd(), &match));
  EXPECT_EQ(match.named_operands.at("b").var, y);
  EXPECT_FALSE(MatchRoot(b.function, Op("add", {Op("conv"), Any()}), &match));
  EXPECT_TRUE(MatchRoot(b.function, Op("add", {Any(), Op("conv")}), &match));
}

// Chain of any length, through an item of a tuple that other parts of the match use too.
TEST(PatternTest, ChainsAndTupleItems) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 6}));
  VarPtr tuple = b.Call("split", {x}, {{"axis", int64_t{1}}, {"sizes", std::vector<int64_t>{3, 3}}});
  VarPtr low = b.GetItem(tuple, 0), high = b.GetItem(tuple, 1);
  VarPtr left = b.Call("relu", {b.Call("neg", {b.Call("relu", {low})})});
  b.Return({b.Call("mul", {left, high})});
  auto chain = [](int most) {
    return Chain(Any("end"), most, [](PatternPtr inner) {
      return Or({OpOf({"relu", "neg"}, {inner}), TupleItem(Op("split", {inner}))});
    });
  };
  PatternMatch match;
  ASSERT_TRUE(MatchRoot(b.function, Op("mul", {chain(2), Any()}), &match));
  EXPECT_EQ(match.bindings.size(), 3);
  ASSERT_TRUE(MatchRoot(b.function, Op("mul", {chain(9), Any()}), &match));
  EXPECT_EQ(match.bindings.size(), 4) << "not the split, which is used from outside";
  EXPECT_EQ(match.named_operands.at("end").var, low);
  ASSERT_TRUE(MatchRoot(b.function, Op("mul", {chain(9), chain(9)}), &match));
  EXPECT_EQ(match.bindings.size(), 7);
  EXPECT_EQ(match.named_operands.at("end").var, x);
  EXPECT_EQ(match.bindings.front()->callee, "split");
}

TEST(PatternTest, InnerValueUsedOutsideIsRefused) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 4, 4}));
  VarPtr c = b.Call("conv", {x, Weight({8, 8, 1, 1})});
  VarPtr a = b.Call("add", {c, Weight({8, 1, 1})});
  VarPtr other = b.Call("neg", {c});
  b.Return({a, other});
  PatternMatch match;
  EXPECT_FALSE(MatchRoot(b.function, ConvAdd(), &match, 1));
}

TEST(PatternTest, InnerValueThatIsAResultIsRefused) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 4, 4}));
  VarPtr c = b.Call("conv", {x, Weight({8, 8, 1, 1})});
  VarPtr a = b.Call("add", {c, Weight({8, 1, 1})});
  b.Return({a, c});
  PatternMatch match;
  EXPECT_FALSE(MatchRoot(b.function, ConvAdd(), &match, 1));
}

TEST(PatternTest, UseInANestedBlockCounts) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 8, 4, 4}));
  VarPtr cond = b.Param("cond", TensorType{DType::kBool, {}});
  VarPtr c = b.Call("conv", {x, Weight({8, 8, 1, 1})});
  VarPtr a = b.Call("add", {c, Weight({8, 1, 1})});
  Binding branch;
  branch.kind = Binding::Kind::kIf;
  branch.args = {cond};
  branch.blocks.resize(2);
  branch.blocks[0].results = {c};
  branch.blocks[1].results = {a};
  branch.var = MakeVar("branch", c->type);
  b.function.body.bindings.push_back(branch);
  b.Return({branch.var});
  PatternMatch match;
  EXPECT_FALSE(MatchRoot(b.function, ConvAdd(), &match, 1));
  DefUse def_use(b.function.body);
  EXPECT_EQ(def_use.NumUses(c), 2);
  ASSERT_EQ(def_use.Users(c).size(), 2);
  EXPECT_EQ(def_use.Users(c)[1], &b.function.body.bindings[2]);
}

// sub(x, mean(x)) squared, used twice inside the match: allowed, it never leaves.
TEST(PatternTest, DiamondInsideTheMatch) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 8}));
  VarPtr mean = b.Call("reduce_mean", {x}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", true}});
  VarPtr centred = b.Call("sub", {x, mean});
  VarPtr squared = b.Call("mul", {centred, centred});
  VarPtr out = b.Call("div", {centred, squared});
  b.Return({out});
  PatternPtr c = Op("sub", {Any("x"), Op("reduce_mean", {Any("x")})}, "centred");
  PatternMatch match;
  ASSERT_TRUE(MatchRoot(b.function, Op("div", {c, Op("mul", {c, c})}), &match));
  EXPECT_EQ(match.bindings.size(), 4);
  EXPECT_EQ(match.named_operands.at("x").var, x);
}

TEST(PatternTest, OneNameIsOneOperand) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4})), y = b.Param("y", F32({4}));
  b.Call("mul", {x, x});
  b.Call("mul", {x, y});
  PatternMatch match;
  EXPECT_TRUE(MatchRoot(b.function, Op("mul", {Any("a"), Any("a")}), &match, 0));
  EXPECT_FALSE(MatchRoot(b.function, Op("mul", {Any("a"), Any("a")}), &match, 1));
  PatternPtr any = Any();
  EXPECT_TRUE(MatchRoot(b.function, Op("mul", {any, any}), &match, 1));
}

// add(a, b) where both orders fit the add, but only the second fits what the name fixes later.
TEST(PatternTest, BacktracksOverCommutedArguments) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4})), y = b.Param("y", F32({4}));
  VarPtr sum = b.Call("add", {y, x});
  b.Return({b.Call("sub", {sum, x})});
  PatternMatch match;
  ASSERT_TRUE(MatchRoot(b.function, Op("sub", {CommutativeOp("add", Any("a"), Any("b")), Any("a")}), &match));
  EXPECT_EQ(match.named_operands.at("a").var, x);
  EXPECT_EQ(match.named_operands.at("b").var, y);
}

// The greedy alternative (with the relu inside) breaks the inner-use rule; the one without does not.
TEST(PatternTest, AlternativesAreTriedUntilTheWholeFits) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr r = b.Call("relu", {x});
  VarPtr n = b.Call("neg", {r});
  b.Return({n, r});
  PatternMatch match;
  PatternPtr p = Op("neg", {Or({Op("relu", {Any()}, "relu"), Any("in")})});
  ASSERT_TRUE(MatchRoot(b.function, p, &match, 1));
  EXPECT_EQ(match.Find("relu"), nullptr);
  EXPECT_EQ(match.named_operands.at("in").var, r);
}

TEST(PatternTest, PredicatesAndFewerArguments) {
  Function f = ConvAddRelu();
  PatternMatch match;
  auto groups = [](int64_t n) { return [n](const Binding& b) { return b.attrs.Int("groups") == n; }; };
  EXPECT_TRUE(MatchRoot(f, If(Op("conv", {Any()}), groups(1)), &match, 0));
  EXPECT_FALSE(MatchRoot(f, If(Op("conv"), groups(2)), &match, 0));
  EXPECT_FALSE(MatchRoot(f, If(If(Op("conv"), groups(1)), groups(2)), &match, 0));
  EXPECT_FALSE(MatchRoot(f, Op("conv", {Any(), Any(), Any()}), &match, 0));
  EXPECT_FALSE(MatchRoot(f, Op("conv", {Any(), IsLiteral()}), &match, 0));
  EXPECT_TRUE(MatchRoot(f, OpOf({"matmul", "conv"}), &match, 0));
}

// Every match is convex: whatever lies on a path between two matched bindings is matched.
TEST(PatternTest, MatchesAreConvex) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr r = b.Call("relu", {x});
  VarPtr detour = b.Call("exp", {r});
  b.Return({b.Call("add", {r, detour})});
  PatternMatch match;
  EXPECT_FALSE(MatchRoot(b.function, Op("add", {Op("relu"), Any()}), &match));
  EXPECT_TRUE(MatchRoot(b.function, Op("add", {Op("relu"), Op("exp", {Op("relu")})}), &match));
  EXPECT_EQ(match.bindings.size(), 3);
}

}  // namespace
}  // namespace inlay::ir
