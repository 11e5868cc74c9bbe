// What group_heads writes; that it computes the same is tests/e2e/test_grouped_heads.py's.
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

// Twelve heads of q, of width 8, by four of k and v that are repeated for three of q each.
struct Attention {
  int64_t rows = 5;
  Dim keys = 7;
  bool scale_keys = false, in_turns = false, join = true, repeat_values = true;
  std::vector<int64_t> mask;
};

VarPtr Reshape(FunctionBuilder& b, const Operand& x, const std::vector<Dim>& dims) {
  Ints shape;
  std::vector<std::string> names;
  for (const Dim& dim : dims) {
    shape.push_back(dim.is_static() ? dim.value() : -1);
    names.push_back(dim.is_static() ? "" : dim.symbol());
  }
  return b.Call("reshape", {x}, {{"shape", shape}, {"dims", names}});
}

VarPtr Repeated(FunctionBuilder& b, const Attention& a, VarPtr x) {
  // Each head three times, or all of them three times in turns.
  std::vector<Dim> one = {1, 4, 1, a.keys, 8}, wide = {1, 4, 3, a.keys, 8};
  if (a.in_turns) std::swap(one[1], one[2]), std::swap(wide[1], wide[2]);
  Ints shape;
  for (const Dim& dim : wide) shape.push_back(dim.is_static() ? dim.value() : 1);
  return Reshape(b, b.Call("expand", {Reshape(b, x, one)}, {{"shape", shape}}), {1, 12, a.keys, 8});
}

FunctionBuilder Build(const Attention& a) {
  FunctionBuilder b;
  VarPtr q = b.Param("q", F32({1, 12, a.rows, 8}));
  VarPtr k = b.Param("k", F32({1, 4, a.keys, 8})), v = b.Param("v", F32({1, a.repeat_values ? 4 : 12, a.keys, 8}));
  VarPtr keys = Repeated(b, a, k);
  if (a.scale_keys) keys = b.Call("mul", {keys, MakeScalar(DType::kF32, 0.5)});
  VarPtr scores = b.Call("matmul", {q, keys}, {{"transpose_b", true}});
  if (!a.mask.empty()) {
    scores = b.Call("add", {scores, b.Param("mask", ir::MakeTensorType(DType::kF32, a.mask))});
  }
  VarPtr weights = b.Call("softmax", {scores}, {{"axis", int64_t{3}}});
  VarPtr y = b.Call("matmul", {weights, a.repeat_values ? Repeated(b, a, v) : v});
  if (a.join) y = b.Call("transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}});
  b.Return({y});
  return b;
}

// Reshapes that follow each other, and those to the same type, away.
std::string Grouped(const Attention& a) {
  ir::IRModule module = RunPass(Build(a).Module(), GroupHeads());
  return Body(RunPass(std::move(module), Canonicalise()));
}

TEST(GroupHeadsTest, HeadsThatShareKeysAndValuesAreAnAxis) {
  EXPECT_EQ(Grouped({}),
            "  %0: f32[1, 4, 1, 7, 8] = reshape(%k, shape=[1, 4, 1, 7, 8])\n"
            "  %1: f32[1, 4, 3, 5, 8] = reshape(%q, shape=[1, 4, 3, 5, 8])\n"
            "  %2: f32[1, 4, 3, 5, 7] = matmul(%1, %0, transpose_a=false, transpose_b=true)\n"
            "  %3: f32[1, 4, 3, 5, 7] = softmax(%2, axis=4)\n"
            "  %4: f32[1, 4, 1, 7, 8] = reshape(%v, shape=[1, 4, 1, 7, 8])\n"
            "  %5: f32[1, 4, 3, 5, 8] = matmul(%3, %4, transpose_a=false, transpose_b=false)\n"
            "  %6: f32[1, 5, 4, 3, 8] = transpose(%5, perm=[0, 3, 1, 2, 4])\n"
            "  %7: f32[1, 5, 12, 8] = reshape(%6, shape=[1, 5, 12, 8])\n"
            "  return %7\n");
}

TEST(GroupHeadsTest, SingleRowsOfHeadsAreRows) {
  Attention token;
  token.rows = 1;
  token.join = false;
  token.keys = Dim::Symbol("n");
  EXPECT_EQ(Grouped(token),
            "  %0: f32[1, 4, 3, 8] = reshape(%q, shape=[1, 4, 3, 8])\n"
            "  %1: f32[1, 4, 3, n] = matmul(%0, %k, transpose_a=false, transpose_b=true)\n"
            "  %2: f32[1, 4, 3, n] = softmax(%1, axis=3)\n"
            "  %3: f32[1, 4, 3, 8] = matmul(%2, %v, transpose_a=false, transpose_b=false)\n"
            "  %4: f32[1, 12, 1, 8] = reshape(%3, shape=[1, 12, 1, 8])\n"
            "  return %4\n");
}

TEST(GroupHeadsTest, MasksAndScales) {
  Attention a;
  a.mask = {1, 1, 5, 7};
  EXPECT_NE(Grouped(a).find("reshape(%mask, shape=[1, 1, 1, 5, 7])"), std::string::npos) << Grouped(a);
  a.mask = {1, 12, 1, 1};
  EXPECT_NE(Grouped(a).find("reshape(%mask, shape=[1, 4, 3, 1, 1])"), std::string::npos) << Grouped(a);
  a.mask = {5, 7};
  EXPECT_NE(Grouped(a).find("f32[1, 4, 3, 5, 7] = add(%2, %mask)"), std::string::npos) << Grouped(a);
  a.scale_keys = true;
  EXPECT_NE(Grouped(a).find("f32[1, 4, 1, 7, 8] = mul(%0, f32(0.5))"), std::string::npos) << Grouped(a);
  Attention token;
  token.rows = 1;
  token.mask = {1, 12, 1, 7};
  EXPECT_NE(Grouped(token).find("reshape(%mask, shape=[1, 4, 3, 7])"), std::string::npos) << Grouped(token);
  token.mask = {1, 1, 1, 7};
  EXPECT_NE(Grouped(token).find("f32[1, 4, 3, 7] = add(%1, %mask)"), std::string::npos) << Grouped(token);
}

TEST(GroupHeadsTest, HeadsInTurns) {
  Attention a;
  a.in_turns = true;
  const std::string text = Grouped(a);
  EXPECT_NE(text.find("f32[1, 1, 4, 7, 8] = reshape(%k, shape=[1, 1, 4, 7, 8])"), std::string::npos) << text;
  EXPECT_NE(text.find("f32[1, 3, 4, 5, 7] = matmul("), std::string::npos) << text;
  a.rows = 1;  // whose shared heads don't follow each other, so that they are no rows
  EXPECT_NE(Grouped(a).find("f32[1, 3, 4, 1, 7] = matmul("), std::string::npos) << Grouped(a);
}

TEST(GroupHeadsTest, ValuesOfEachHead) {
  Attention a;
  a.repeat_values = false;
  EXPECT_NE(Grouped(a).find("f32[1, 4, 3, 7, 8] = reshape(%v, shape=[1, 4, 3, 7, 8])"), std::string::npos)
      << Grouped(a);
  a.rows = 1;  // where no values of several heads are one matrix
  EXPECT_NE(Grouped(a).find("f32[1, 12, 1, 8] = matmul("), std::string::npos) << Grouped(a);
  a.keys = 1;
  EXPECT_NE(Grouped(a).find("f32[1, 12, 1, 8] = matmul("), std::string::npos) << Grouped(a);
}

TEST(GroupHeadsTest, WhatIsNotRepeatedStays) {
  FunctionBuilder b;
  VarPtr q = b.Param("q", F32({1, 12, 5, 8})), k = b.Param("k", F32({1, 4, 3, 7, 1})),
         few = b.Param("few", F32({1, 1, 5, 8})), v = b.Param("v", F32({1, 4, 1, 7, 8}));
  // Rows that are repeated, not matrices; and one head by twelve.
  VarPtr rows =
      b.Call("reshape", {b.Call("expand", {k}, {{"shape", Ints{1, 4, 3, 7, 8}}})}, {{"shape", Ints{1, 12, 7, 8}}});
  VarPtr wide =
      b.Call("reshape", {b.Call("expand", {v}, {{"shape", Ints{1, 4, 3, 7, 8}}})}, {{"shape", Ints{1, 12, 7, 8}}});
  b.Return(
      {b.Call("matmul", {q, rows}, {{"transpose_b", true}}), b.Call("matmul", {few, wide}, {{"transpose_b", true}})});
  EXPECT_EQ(BodyAfter(b, GroupHeads()), Body(b.Module()));
}

}  // namespace
}  // namespace inlay::passes
