#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

TEST(CanonicaliseTest, WhatDoesNothingGoes) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 3}));
  VarPtr y = b.Call("identity", {x});
  y = b.Call("cast", {y}, {{"dtype", DType::kF32}});
  y = b.Call("reshape", {y}, {{"shape", Ints{2, -1}}});
  y = b.Call("transpose", {y}, {{"perm", Ints{0, 1}}});
  y = b.Call("slice", {y}, {{"begins", Ints{0, 0}}, {"ends", Ints{INT64_MAX, 3}}});
  y = b.Call("pad", {y}, {{"pads", Ints{0, 0, 0, 0}}});
  y = b.Call("expand", {y}, {{"shape", Ints{1, 3}}});
  y = b.Call("tile", {y}, {{"repeats", Ints{1, 1}}});
  y = b.Call("concat", {y}, {{"axis", int64_t{0}}});
  b.Return({b.Call("neg", {y})});
  EXPECT_EQ(BodyAfter(b, Canonicalise()), "  %0: f32[2, 3] = neg(%x)\n  return %0\n");
}

TEST(CanonicaliseTest, WhatDoesSomethingStays) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 4}));
  // Keeps the type, not the values.
  VarPtr reversed =
      b.Call("slice", {x}, {{"begins", Ints{-1, 0}}, {"ends", Ints{INT64_MIN, 4}}, {"steps", Ints{-1, 1}}});
  VarPtr shifted = b.Call("pad", {reversed}, {{"pads", Ints{1, 0, -1, 0}}});
  VarPtr turned = b.Call("transpose", {shifted}, {{"perm", Ints{1, 0}}});
  b.Return({turned});
  EXPECT_EQ(BodyAfter(b, Canonicalise()), Body(b.Module()));
}

TEST(CanonicaliseTest, RowsAreTiledByAnAxisOfTheirOwn) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 3, 53})), pairs = b.Param("pairs", F32({2, 2})),
         empty = b.Param("empty", F32({0, 9}));
  VarPtr y = b.Call("tile", {x}, {{"repeats", Ints{1, 2, 5}}});
  VarPtr rows = b.Call("tile", {x}, {{"repeats", Ints{1, 4, 1}}});
  b.Return({y, rows, b.Call("tile", {pairs}, {{"repeats", Ints{1, 5}}}),
            b.Call("tile", {empty}, {{"repeats", Ints{2, 2}}})});
  EXPECT_EQ(BodyAfter(b, Canonicalise()),
            "  %0: f32[2, 3, 1, 53] = reshape(%x, shape=[2, 3, 1, 53])\n"
            "  %1: f32[2, 6, 5, 53] = tile(%0, repeats=[1, 2, 5, 1])\n"
            "  %2: f32[2, 6, 265] = reshape(%1, shape=[2, 6, 265])\n"
            "  %3: f32[2, 12, 53] = tile(%x, repeats=[1, 4, 1])\n"
            "  %4: f32[2, 10] = tile(%pairs, repeats=[1, 5])\n"
            "  %5: f32[0, 1, 9] = reshape(%empty, shape=[0, 1, 9])\n"
            "  %6: f32[0, 2, 9] = tile(%5, repeats=[2, 2, 1])\n"
            "  %7: f32[0, 18] = reshape(%6, shape=[0, 18])\n"
            "  return %2, %3, %4, %7\n");
}

TEST(CanonicaliseTest, ReshapesAndTransposesMerge) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 3, 4}));
  VarPtr y = b.Call("reshape", {x}, {{"shape", Ints{6, 4}}});
  y = b.Call("reshape", {y}, {{"shape", Ints{4, 3, 2}}});
  VarPtr z = b.Call("transpose", {x}, {{"perm", Ints{2, 0, 1}}});
  z = b.Call("transpose", {z}, {{"perm", Ints{0, 2, 1}}});
  VarPtr back = b.Call("transpose", {b.Call("transpose", {x}, {{"perm", Ints{2, 0, 1}}})}, {{"perm", Ints{1, 2, 0}}});
  b.Return({y, z, b.Call("neg", {back})});
  EXPECT_EQ(BodyAfter(b, Canonicalise()),
            "  %0: f32[4, 3, 2] = reshape(%x, shape=[4, 3, 2])\n"
            "  %1: f32[4, 3, 2] = transpose(%x, perm=[2, 1, 0])\n"
            "  %2: f32[2, 3, 4] = neg(%x)\n"
            "  return %0, %1, %2\n");
}

TEST(CanonicaliseTest, SymbolicReshapesKeepTheirMeaning) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({Dim::Symbol("batch"), 12, 64}));
  VarPtr y = b.Call("reshape", {x}, {{"shape", Ints{-1, 768}}});
  y = b.Call("reshape", {y}, {{"shape", Ints{-1, 12, 64}}});
  b.Return({b.Call("neg", {y})});
  EXPECT_EQ(BodyAfter(b, Canonicalise()), "  %0: f32[batch, 12, 64] = neg(%x)\n  return %0\n");
}

TEST(CanonicaliseTest, ScaledTransposesGoIntoMatmul) {
  FunctionBuilder b;
  VarPtr q = b.Param("q", F32({2, 5, 4})), k = b.Param("k", F32({2, 7, 4})), by = b.Param("by", F32({}));
  VarPtr moved = b.Call("transpose", {k}, {{"perm", Ints{0, 2, 1}}});
  VarPtr y = b.Call("matmul", {q, b.Call("mul", {moved, MakeScalar(DType::kF32, 0.5)})});
  VarPtr z = b.Call("matmul", {q, b.Call("mul", {moved, by})});  // what is no number yet
  b.Return({y, z});
  EXPECT_EQ(BodyAfter(b, Canonicalise()),
            "  %0: f32[2, 4, 7] = transpose(%k, perm=[0, 2, 1])\n"
            "  %1: f32[2, 7, 4] = mul(%k, f32(0.5))\n"
            "  %2: f32[2, 5, 7] = matmul(%q, %1, transpose_a=false, transpose_b=true)\n"
            "  %3: f32[2, 4, 7] = mul(%0, %by)\n"
            "  %4: f32[2, 5, 7] = matmul(%q, %3, transpose_a=false, transpose_b=false)\n"
            "  return %2, %4\n");
}

TEST(CanonicaliseTest, UnitAxes) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 128, 1, 64}));
  VarPtr moved = b.Call("transpose", {x}, {{"perm", Ints{0, 2, 1, 3}}});
  VarPtr mean = b.Call("reduce_mean", {x}, {{"axes", Ints{2}}});
  b.Return({moved, mean});
  EXPECT_EQ(BodyAfter(b, Canonicalise()),
            "  %0: f32[1, 1, 128, 64] = reshape(%x, shape=[1, 1, 128, 64])\n"
            "  %1: f32[1, 128, 64] = reshape(%x, shape=[1, 128, 64])\n"
            "  return %0, %1\n");
}

TEST(CanonicaliseTest, TransposesGoIntoMatmul) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({5, 4}));
  ir::ConstantPtr w = Weight({6, 4});
  VarPtr wt = b.Call("transpose", {w}, {{"perm", Ints{1, 0}}});
  VarPtr y = b.Call("matmul", {x, wt});
  VarPtr z = b.Call("matmul", {b.Call("transpose", {x}, {{"perm", Ints{1, 0}}}), y});
  VarPtr twice = b.Call("matmul", {x, wt}, {});
  b.Return({z, b.Call("matmul", {b.Call("transpose", {twice}, {{"perm", Ints{1, 0}}}), y},
                      {{"transpose_a", true}, {"transpose_b", true}})});
  EXPECT_EQ(BodyAfter(b, Canonicalise()),
            "  %0: f32[5, 6] = matmul(%x, @w0, transpose_a=false, transpose_b=true)\n"
            "  %1: f32[4, 6] = matmul(%x, %0, transpose_a=true, transpose_b=false)\n"
            "  %2: f32[5, 6] = matmul(%x, @w0, transpose_a=false, transpose_b=true)\n"
            "  %3: f32[5, 5] = matmul(%2, %0, transpose_a=false, transpose_b=true)\n"
            "  return %1, %3\n");
}

// K of attention: 0231 = 0213, then the last two.
TEST(CanonicaliseTest, TransposeOfKeysBecomesThatOfQueries) {
  FunctionBuilder b;
  VarPtr q = b.Param("q", F32({2, 12, 8, 4})), k = b.Param("k", F32({2, 8, 12, 4}));
  VarPtr kt = b.Call("transpose", {k}, {{"perm", Ints{0, 2, 3, 1}}});
  b.Return({b.Call("matmul", {q, kt})});
  EXPECT_EQ(BodyAfter(b, Canonicalise()),
            "  %0: f32[2, 12, 8, 4] = transpose(%k, perm=[0, 2, 1, 3])\n"
            "  %1: f32[2, 12, 8, 8] = matmul(%q, %0, transpose_a=false, transpose_b=true)\n"
            "  return %1\n");
}

TEST(CanonicaliseTest, TuplesAreTakenApart) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr parts = b.Call("split", {x}, {{"axis", int64_t{0}}, {"sizes", Ints{4}}});
  b.Return({b.Call("neg", {b.GetItem(parts, 0)})});
  EXPECT_EQ(BodyAfter(b, Canonicalise()), "  %0: f32[4] = neg(%x)\n  return %0\n");
}

}  // namespace
}  // namespace inlay::passes
