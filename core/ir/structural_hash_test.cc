#include "core/ir/structural_hash.h"

#include "core/ir/printer.h"
#include "core/ir/testing.h"

namespace inlay::ir {
namespace {

using testing::F32;
using testing::FloatLiteral;
using testing::FunctionBuilder;
using testing::Weight;

struct Options {
  std::string prefix = "a";
  int64_t width = 4;
  double scale = 0.5;
  bool commuted = false;
  std::string op = "relu";
  bool transposed = false;
};

// relu(x @ w * scale) + w2
Function Net(const Options& o) {
  FunctionBuilder b;
  VarPtr x = b.Param(o.prefix + "x", F32({2, o.width}));
  ConstantPtr w = Weight({o.width, o.width}, o.prefix + "w");
  VarPtr m = b.Call("matmul", {x, w}, {{"transpose_b", o.transposed}}, o.prefix + " (MatMul)");
  VarPtr s = b.Call("mul", {m, MakeScalar(DType::kF32, o.scale)});
  VarPtr r = b.Call(o.op, {s});
  ConstantPtr w2 = Weight({o.width}, o.prefix + "w2");
  VarPtr out = o.commuted ? b.Call("add", {w2, r}) : b.Call("add", {r, w2});
  b.Return({out});
  b.function.result_names = {o.prefix + "y"};
  return b.function;
}

Digest Hash(Options o) { return StructuralHash(Net(o)); }

TEST(StructuralHashTest, NamesLocationsAndWeightsDoNotMatter) {
  EXPECT_EQ(Hash({}), Hash({"other"}));
  EXPECT_EQ(StructuralBytes(Net({})), StructuralBytes(Net({"other"})));
}

TEST(StructuralHashTest, EverythingElseDoes) {
  const Digest base = Hash({});
  Options o;
  o.width = 5;
  EXPECT_NE(Hash(o), base);
  o = {};
  o.scale = 0.25;
  EXPECT_NE(Hash(o), base);
  o = {};
  o.commuted = true;
  EXPECT_NE(Hash(o), base);
  o = {};
  o.op = "exp";
  EXPECT_NE(Hash(o), base);
  o = {};
  o.transposed = true;
  EXPECT_NE(Hash(o), base);
  Function f = Net({});
  f.attrs.Set("backend", std::string("native"));
  EXPECT_NE(StructuralHash(f), base);
  f = Net({});
  f.body.results.push_back(f.body.results[0]);
  EXPECT_NE(StructuralHash(f), base);
  f = Net({});
  f.params.push_back(MakeVar("unused", F32({1})));
  EXPECT_NE(StructuralHash(f), base);
}

TEST(StructuralHashTest, OneWeightTwiceIsNotTwoWeightsThatAreEqual) {
  auto net = [](ConstantPtr a, ConstantPtr b) {
    FunctionBuilder f;
    VarPtr x = f.Param("x", F32({4}));
    f.Return({f.Call("add", {f.Call("mul", {x, a}), b})});
    return StructuralHash(f.function);
  };
  ConstantPtr gamma = Weight({4}, "gamma"), twin = Weight({4}, "gamma"), other = Weight({4}, "beta");
  ASSERT_EQ(gamma->digest, twin->digest);
  EXPECT_NE(net(gamma, gamma), net(gamma, twin));
  EXPECT_EQ(net(gamma, twin), net(gamma, other));
}

TEST(StructuralHashTest, LiteralsCountByContent) {
  auto net = [](ConstantPtr a, ConstantPtr b) {
    FunctionBuilder f;
    VarPtr x = f.Param("x", F32({2}));
    f.Return({f.Call("add", {f.Call("mul", {x, a}), b})});
    return StructuralHash(f.function);
  };
  ConstantPtr one = FloatLiteral({2}, {1, 2}), same = FloatLiteral({2}, {1, 2}), other = FloatLiteral({2}, {1, 3});
  EXPECT_EQ(net(one, one), net(one, same));
  EXPECT_NE(net(one, one), net(one, other));
}

TEST(StructuralHashTest, ComponentsTellWhatDiffers) {
  Options o;
  o.scale = 0.25;
  auto a = StructuralComponents(Net({})), b = StructuralComponents(Net(o));
  ASSERT_EQ(a.size(), 5);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_EQ(a[i].second == b[i].second, a[i].first != "body") << a[i].first;
  }
}

TEST(StructuralHashTest, CanonicalizeKeepsTheHashAndForgetsNames) {
  Function a = Canonicalize(Net({"a"})), b = Canonicalize(Net({"b"}));
  EXPECT_EQ(StructuralHash(a), Hash({}));
  EXPECT_EQ(a.params[0]->name, "p0");
  EXPECT_EQ(a.body.bindings[0].location, "");
  EXPECT_EQ(a.body.bindings[0].args[1].constant->name, "w0");
  EXPECT_TRUE(a.result_names.empty());
  EXPECT_EQ(Print(a), Print(b));
}

TEST(StructuralHashTest, ModuleHashFollowsCallsNotNames) {
  auto module = [](const std::string& callee, double scale) {
    IRModule m;
    Options o;
    o.scale = scale;
    m.functions[callee] = Net(o);
    FunctionBuilder b;
    VarPtr x = b.Param("x", F32({2, 4}));
    Binding call;
    call.kind = Binding::Kind::kCallFunction;
    call.callee = callee;
    call.args = {x};
    call.var = MakeVar("y", F32({2, 4}));
    b.function.body.bindings.push_back(call);
    b.Return({call.var});
    m.functions["main"] = b.function;
    return m;
  };
  const Digest base = StructuralHash(module("f", 0.5));
  EXPECT_EQ(StructuralHash(module("g", 0.5)), base);
  EXPECT_NE(StructuralHash(module("f", 0.25)), base);
  EXPECT_NE(StructuralHash(module("f", 0.5).WithAttr("k", int64_t{1})), base);
}

// Known answer: a change of the encoding changes every cache key, so it must be meant (and kStructuralVersion bumped).
TEST(StructuralHashTest, EncodingIsStable) { EXPECT_EQ(Hash({}).short_hex(), "ba374466c6ef"); }

}  // namespace
}  // namespace inlay::ir
