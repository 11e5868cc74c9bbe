#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

const ir::Attrs kPadded = {{"pads", Ints{1, 1, 1, 1}}};

TEST(MergeParallelLinearTest, BranchesOfConvolutions) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 4, 5, 5}));
  VarPtr wide = b.Call("conv", {x, Weight({4, 4, 3, 3}, "w"), Weight({4}, "b")}, kPadded);
  VarPtr one = b.Call("conv", {x, Weight({4, 4, 1, 1}, "v"), Weight({4}, "c")});
  b.Return({b.Call("add", {one, wide})});
  EXPECT_EQ(BodyAfter(b, MergeParallelLinear()),
            "  %0: f32[4, 4, 3, 3] = pad(@w0, mode=\"constant\", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.0)\n"
            "  %1: f32[4, 4, 3, 3] = add(@w1, %0)\n"
            "  %2: f32[4] = add(@w2, @w3)\n"
            "  %3: f32[2, 4, 5, 5] = conv(%x, %1, %2, dilations=[1, 1], groups=1, pads=[1, 1, 1, 1], strides=[1, 1])\n"
            "  return %3\n");
}

TEST(MergeParallelLinearTest, ScaledValueIsTheDiagonal) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 4, 5, 5}));
  VarPtr conv = b.Call("conv", {x, Weight({4, 2, 1, 1}, "w")}, {{"groups", int64_t{2}}});
  VarPtr scaled = b.Call("mul", {x, Weight({4, 1, 1}, "s")});
  b.Return({b.Call("add", {conv, b.Call("add", {scaled, Weight({4, 1, 1}, "t")})})});
  EXPECT_EQ(BodyAfter(b, MergeParallelLinear()),
            "  %0: f32[4, 1, 1, 1] = reshape(@w0, shape=[4, 1, 1, 1])\n"
            "  %1: f32[2, 2, 1, 1] = reshape(%0, shape=[2, 2, 1, 1])\n"
            "  %2: f32[2, 2, 3, 1] = pad(%1, mode=\"constant\", pads=[0, 0, 0, 0, 0, 0, 2, 0], value=0.0)\n"
            "  %3: f32[2, 6, 1] = reshape(%2, shape=[2, 6, 1])\n"
            "  %4: f32[2, 4, 1] = slice(%3, begins=[0, 0, 0], ends=[2, 4, 1], steps=[1, 1, 1])\n"
            "  %5: f32[4, 2, 1, 1] = reshape(%4, shape=[4, 2, 1, 1])\n"
            "  %6: f32[4, 2, 1, 1] = add(@w1, %5)\n"
            "  %7: f32[2, 4, 5, 5] = conv(%x, %6, dilations=[1, 1], groups=2, pads=[0, 0, 0, 0], strides=[1, 1])\n"
            "  %8: f32[2, 4, 5, 5] = add(%7, @w2)\n"
            "  return %8\n");
}

TEST(MergeParallelLinearTest, DifferencesAndWhatIsBetween) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 4, 5})), y = b.Param("y", F32({2, 4, 5}));
  VarPtr first = b.Call("conv", {x, Weight({4, 4, 1}, "w"), Weight({4}, "b")});
  VarPtr second = b.Call("conv", {x, Weight({4, 4, 1}, "v")});
  b.Return({b.Call("sub", {y, b.Call("sub", {b.Call("mul", {y, y}), b.Call("add", {first, second})})})});
  EXPECT_EQ(BodyAfter(b, MergeParallelLinear()),
            "  %0: f32[2, 4, 5] = mul(%y, %y)\n"
            "  %1: f32[4, 4, 1] = add(@w0, @w1)\n"
            "  %2: f32[2, 4, 5] = conv(%x, %1, @w2, dilations=[1], groups=1, pads=[0, 0], strides=[1])\n"
            "  %3: f32[2, 4, 5] = sub(%0, %2)\n"
            "  %4: f32[2, 4, 5] = sub(%y, %3)\n"
            "  return %4\n");
  FunctionBuilder c;
  x = c.Param("x", F32({2, 4, 5})), y = c.Param("y", F32({2, 4, 5}));
  first = c.Call("conv", {x, Weight({4, 4, 1}, "w"), Weight({4}, "b")});
  second = c.Call("conv", {x, Weight({4, 4, 1}, "v")});
  c.Return({c.Call("sub", {c.Call("sub", {y, first}), second})});
  EXPECT_EQ(BodyAfter(c, MergeParallelLinear()),
            "  %0: f32[4, 4, 1] = add(@w0, @w1)\n"
            "  %1: f32[4, 4, 1] = neg(%0)\n"
            "  %2: f32[4] = neg(@w2)\n"
            "  %3: f32[2, 4, 5] = conv(%x, %1, %2, dilations=[1], groups=1, pads=[0, 0], strides=[1])\n"
            "  %4: f32[2, 4, 5] = add(%3, %y)\n"
            "  return %4\n");
}

TEST(MergeParallelLinearTest, ResidualOfDepthwiseConvolutionsAlone) {
  for (const bool depthwise : {true, false}) {
    FunctionBuilder b;
    VarPtr x = b.Param("x", F32({2, 4, 5, 5}));
    VarPtr conv = b.Call("conv", {x, Weight({4, depthwise ? 1 : 4, 3, 3}, "w")},
                         {{"pads", Ints{1, 1, 1, 1}}, {"groups", int64_t{depthwise ? 4 : 1}}});
    b.Return({b.Call("add", {x, conv})});
    EXPECT_EQ(
        BodyAfter(b, MergeParallelLinear()),
        depthwise
            ? "  %0: f32[4, 1, 1, 1] = expand(f32(1.0), shape=[4, 1, 1, 1])\n"
              "  %1: f32[4, 1, 3, 3] = pad(%0, mode=\"constant\", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.0)\n"
              "  %2: f32[4, 1, 3, 3] = add(@w0, %1)\n"
              "  %3: f32[2, 4, 5, 5] = conv(%x, %2, dilations=[1, 1], groups=4, pads=[1, 1, 1, 1], strides=[1, 1])\n"
              "  return %3\n"
            : Body(b.Module()));
  }
}

TEST(MergeParallelLinearTest, WhatIsBroadcastToTheSumStays) {
  for (const bool scaled : {true, false}) {
    FunctionBuilder b;
    VarPtr x = b.Param("x", F32({2, 4, 1, 1}));
    VarPtr conv = b.Call("conv", {x, Weight({4, 1, 3, 3}, "w")}, {{"pads", Ints{2, 2, 2, 2}}, {"groups", int64_t{4}}});
    b.Return({b.Call("add", {scaled ? b.Call("mul", {x, Weight({4, 1, 1}, "s")}) : x, conv})});
    EXPECT_EQ(BodyAfter(b, MergeParallelLinear()), Body(b.Module())) << scaled;
  }
}

TEST(MergeParallelLinearTest, LowRankMatrices) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 3, 8}));
  VarPtr y = b.Call("add", {b.Call("matmul", {x, Weight({6, 8}, "w")}, {{"transpose_b", true}}), Weight({6}, "b")});
  VarPtr narrow = b.Call("matmul", {x, Weight({8, 2}, "l")});
  b.Return({b.Call("add", {y, b.Call("matmul", {narrow, Weight({6, 2}, "r")}, {{"transpose_b", true}})})});
  EXPECT_EQ(BodyAfter(b, MergeParallelLinear()),
            "  %0: f32[8, 6] = matmul(@w0, @w1, transpose_a=false, transpose_b=true)\n"
            "  %1: f32[6, 8] = transpose(%0, perm=[1, 0])\n"
            "  %2: f32[6, 8] = add(@w2, %1)\n"
            "  %3: f32[2, 3, 6] = matmul(%x, %2, transpose_a=false, transpose_b=true)\n"
            "  %4: f32[2, 3, 6] = add(%3, @w3)\n"
            "  return %4\n");
}

TEST(MergeParallelLinearTest, WhatDoesNotFitStays) {
  struct Other {
    const char* why;
    Ints weights;
    ir::Attrs attrs;
    int64_t extent = 6, stride = 1;  // of what both read; of the 3x3 convolution beside it
  };
  const ir::Attrs shifted = {{"pads", Ints{2, 2, 0, 0}}, {"strides", Ints{2, 2}}};
  for (const Other& other : {
           Other{"taps beyond", {4, 4, 5, 1}, {{"pads", Ints{2, 0, 2, 0}}}},
           Other{"a tap before", {4, 4, 3, 3}, shifted, 6, 2},
           Other{"strides", {4, 4, 2, 2}, {}, 3, 2},
           Other{"dilations", {4, 4, 2, 2}, {{"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{2, 2}}}},
           Other{"groups", {4, 2, 1, 1}, {{"groups", int64_t{2}}}},
       }) {
    FunctionBuilder b;
    VarPtr x = b.Param("x", F32({2, 4, other.extent, other.extent}));
    ir::Attrs attrs = kPadded;
    attrs.Set("strides", Ints{other.stride, other.stride});
    VarPtr base = b.Call("conv", {x, Weight({4, 4, 3, 3}, "w")}, attrs);
    b.Return({b.Call("add", {base, b.Call("conv", {x, Weight(other.weights, "v")}, other.attrs)})});
    EXPECT_EQ(BodyAfter(b, MergeParallelLinear()), Body(b.Module())) << other.why;
  }
}

TEST(MergeParallelLinearTest, WhatOthersReadNarrowTypesAndIntegersStay) {
  for (const bool integers : {true, false}) {
    FunctionBuilder b;
    const DType dtype = integers ? DType::kF32 : DType::kBF16;
    VarPtr x = b.Param("x", ir::TensorType{dtype, {2, 8}});
    Operand w = Weight({8, 8}, "w", integers ? DType::kI8 : dtype);
    if (integers) w = b.Call("mul", {b.Call("cast", {w}, {{"dtype", dtype}}), Weight({8}, "s")});
    b.Return({b.Call("add", {b.Call("matmul", {x, w}), b.Call("matmul", {x, Weight({8, 8}, "v", dtype)})})});
    EXPECT_EQ(BodyAfter(b, MergeParallelLinear()), Body(b.Module())) << integers;
  }
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 8}));
  VarPtr y = b.Call("matmul", {x, Weight({8, 8}, "w")});
  b.Return({b.Call("add", {y, b.Call("matmul", {x, Weight({8, 8}, "v")})}), y});
  EXPECT_EQ(BodyAfter(b, MergeParallelLinear()), Body(b.Module()));
}

TEST(MergeParallelLinearTest, LongSums) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 8})), sum = b.Call("matmul", {x, Weight({8, 8}, "w")});
  for (int i = 0; i < 50000; ++i) sum = b.Call("add", {sum, x});
  b.Return({b.Call("add", {sum, b.Call("matmul", {x, Weight({8, 8}, "v")})})});
  EXPECT_EQ(BodyAfter(b, MergeParallelLinear()), Body(b.Module())) << "too far apart";
}

}  // namespace
}  // namespace inlay::passes
