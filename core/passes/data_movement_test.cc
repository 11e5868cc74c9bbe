// fold_pads, trim_kernels, move_quantised, sink_reshapes, widen_at_readers and recognise_assignment.
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

VarPtr Pad(FunctionBuilder& b, VarPtr x, Ints pads, double value = 0) {
  return b.Call("pad", {x}, {{"pads", pads}, {"value", value}});
}

TEST(FoldPadsTest, IntoConvolution) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 8, 8}));
  VarPtr p = Pad(b, x, {0, 0, 1, 2, 0, 0, 3, 0});
  b.Return({b.Call("conv", {p, Weight({4, 3, 3, 3})}, {{"pads", Ints{0, 1, 0, 1}}, {"strides", Ints{2, 2}}})});
  EXPECT_EQ(BodyAfter(b, FoldPads()),
            "  %0: f32[1, 4, 5, 5] = conv(%x, @w0, dilations=[1, 1], groups=1, pads=[1, 3, 3, 1], strides=[2, 2])\n"
            "  return %0\n");
}

TEST(FoldPadsTest, IntoAveragePooling) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 8}));
  VarPtr p = Pad(b, x, {0, 0, 1, 0, 0, 1});
  b.Return({b.Call("avg_pool", {p}, {{"kernel", Ints{3}}})});
  EXPECT_EQ(BodyAfter(b, FoldPads()),
            "  %0: f32[1, 3, 8] = avg_pool(%x, ceil_mode=false, count_include_pad=true, dilations=[1], kernel=[3], "
            "pads=[1, 1], strides=[1])\n"
            "  return %0\n");
}

TEST(FoldPadsTest, WhatDoesNotFitStays) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 3, 8}));
  ir::ConstantPtr w = Weight({4, 3, 3}), w4 = Weight({4, 4, 3});
  std::vector<Operand> results = {
      b.Call("conv", {Pad(b, x, {0, 0, 1, 0, 0, 1}, /*value=*/1), w}),
      b.Call("conv", {Pad(b, x, {0, 1, 0, 0, 0, 0}), w4}),
      b.Call("conv", {Pad(b, x, {0, 0, -1, 0, 0, 0}), w}),
      b.Call("max_pool", {Pad(b, x, {0, 0, 1, 0, 0, 1})}, {{"kernel", Ints{3}}}),
      // The pool's own padding does not count as elements, the pad's zeros do.
      b.Call("avg_pool", {Pad(b, x, {0, 0, 1, 0, 0, 1})}, {{"kernel", Ints{3}}, {"pads", Ints{1, 1}}}),
      b.Call("avg_pool", {Pad(b, x, {0, 0, 3, 0, 0, 3})}, {{"kernel", Ints{3}}}),
  };
  b.Return(results);
  EXPECT_EQ(BodyAfter(b, FoldPads()), Body(b.Module()));
}

TEST(TrimKernelsTest, TapsThatMeetPaddingAlone) {
  FunctionBuilder b;
  VarPtr pixel = b.Param("x", F32({1, 4, 1, 1})), small = b.Param("y", F32({1, 4, 2, 14}));
  ir::ConstantPtr w = Weight({8, 4, 3, 3});
  VarPtr one = b.Call("conv", {pixel, w}, {{"pads", Ints{1, 1, 1, 1}}});
  // The first row of three by a stride of 2; the last two columns, whose dilation reaches beyond 14.
  VarPtr two =
      b.Call("conv", {small, w}, {{"pads", Ints{1, 0, 1, 36}}, {"strides", Ints{2, 2}}, {"dilations", Ints{1, 18}}});
  b.Return({one, two});
  EXPECT_EQ(BodyAfter(b, TrimKernels()),
            "  %0: f32[8, 4, 1, 1] = slice(@w0, begins=[0, 0, 1, 1], ends=[8, 4, 2, 2], steps=[1, 1, 1, 1])\n"
            "  %1: f32[1, 8, 1, 1] = conv(%x, %0, dilations=[1, 1], groups=1, pads=[0, 0, 0, 0], strides=[1, 1])\n"
            "  %2: f32[8, 4, 2, 1] = slice(@w0, begins=[0, 0, 1, 0], ends=[8, 4, 3, 1], steps=[1, 1, 1, 1])\n"
            "  %3: f32[1, 8, 1, 7] = conv(%y, %2, dilations=[1, 18], groups=1, pads=[0, 0, 1, 0], strides=[2, 2])\n"
            "  return %1, %3\n");
}

TEST(TrimKernelsTest, WhatMeetsThePictureStays) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 4, 2, 2})), far = b.Param("y", F32({1, 4, 1, 1}));
  std::vector<Operand> results = {
      b.Call("conv", {x, Weight({8, 4, 3, 3})}, {{"pads", Ints{1, 1, 1, 1}}}),
      // No tap meets it: what is left of the kernel is one that does not either.
      b.Call("conv", {far, Weight({8, 4, 1, 1})}, {{"pads", Ints{1, 1, 0, 0}}, {"strides", Ints{2, 2}}}),
  };
  b.Return(results);
  EXPECT_EQ(BodyAfter(b, TrimKernels()), Body(b.Module()));
}

VarPtr Dequantised(FunctionBuilder& b, VarPtr x, double scale, int64_t zero) {
  VarPtr y = b.Call("cast", {x}, {{"dtype", DType::kI32}});
  if (zero != 0) y = b.Call("sub", {y, MakeScalar(DType::kI32, static_cast<double>(zero))});
  return b.Call("mul", {b.Call("cast", {y}, {{"dtype", DType::kF32}}), MakeScalar(DType::kF32, scale)});
}

VarPtr Quantised(FunctionBuilder& b, VarPtr x, double scale, double zero, double least = 0) {
  VarPtr y = b.Call("round", {b.Call("div", {x, MakeScalar(DType::kF32, scale)})});
  y = b.Call("add", {y, MakeScalar(DType::kF32, zero)});
  y = b.Call("clip", {y}, {{"min", least}, {"max", least + 255}});
  return b.Call("cast", {y}, {{"dtype", least < 0 ? DType::kI8 : DType::kU8}});
}

TEST(MoveQuantisedTest, PoolsAndMovesBytes) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::TensorType{DType::kI8, {1, 4, 6, 6}});
  VarPtr y = b.Call("max_pool", {Dequantised(b, x, 0.5, 3)}, {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  y = b.Call("transpose", {y}, {{"perm", Ints{0, 2, 3, 1}}});
  VarPtr z = Dequantised(b, b.Param("z", ir::TensorType{DType::kI8, {1, 3, 3, 2}}), 0.5, 3);
  b.Return({b.Call("concat", {y, z}, {{"axis", 3}})});
  EXPECT_EQ(Body(RunPass(RunPass(b.Module(), MoveQuantised()), DeadCode())),
            "  %0: i8[1, 4, 3, 3] = max_pool(%x, ceil_mode=false, dilations=[1, 1], kernel=[2, 2], pads=[0, 0, 0, 0], "
            "strides=[2, 2])\n"
            "  %1: i8[1, 3, 3, 4] = transpose(%0, perm=[0, 2, 3, 1])\n"
            "  %2: i8[1, 3, 3, 6] = concat(%1, %z, axis=3)\n"
            "  %3: i32[1, 3, 3, 6] = cast(%2, dtype=i32)\n"
            "  %4: i32[1, 3, 3, 6] = sub(%3, i32(3))\n"
            "  %5: f32[1, 3, 3, 6] = cast(%4, dtype=f32)\n"
            "  %6: f32[1, 3, 3, 6] = mul(%5, f32(0.5))\n"
            "  return %6\n");
}

TEST(MoveQuantisedTest, TheSameQuantisationAgainIsNone) {
  for (const double least : {0.0, -128.0}) {
    FunctionBuilder b;
    VarPtr x = b.Param("x", ir::TensorType{least < 0 ? DType::kI8 : DType::kU8, {4, 6}});
    VarPtr y = b.Call("reshape", {Dequantised(b, x, 0.1, 3)}, {{"shape", Ints{24}}});
    b.Return({Quantised(b, y, 0.1, 3, least)});
    const std::string body = Body(RunPass(RunPass(b.Module(), MoveQuantised()), DeadCode()));
    EXPECT_EQ(body, least < 0 ? "  %0: i8[24] = reshape(%x, shape=[24])\n  return %0\n"
                              : "  %0: u8[24] = reshape(%x, shape=[24])\n  return %0\n");
  }
}

TEST(MoveQuantisedTest, OthersStay) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::TensorType{DType::kU8, {4, 6}}), y = b.Param("y", ir::TensorType{DType::kU8, {4, 6}});
  VarPtr twice = Dequantised(b, x, 0.1, 3);
  b.Return({Quantised(b, Dequantised(b, x, 0.1, 3), 0.2, 3), Quantised(b, Dequantised(b, x, 0.1, 3), 0.1, 4),
            Quantised(b, Dequantised(b, x, 0.1, 3), 0.1, 3, -128),
            b.Call("concat", {Dequantised(b, x, 0.1, 3), Dequantised(b, y, 0.2, 3)}, {{"axis", 1}}),
            b.Call("concat", {Dequantised(b, x, 0.1, 3), Dequantised(b, y, 0.1, 4)}, {{"axis", 1}}),
            b.Call("transpose", {twice}, {{"perm", Ints{1, 0}}}), b.Call("relu", {twice}),
            b.Call("reduce_max", {Dequantised(b, x, -0.1, 3)}, {{"axes", Ints{1}}})});
  EXPECT_EQ(BodyAfter(b, MoveQuantised()), Body(b.Module()));
}

// What is cast to bytes first, wraps, or is more than i32 holds is no dequantisation.
TEST(MoveQuantisedTest, OtherIntegersStay) {
  for (const DType from : {DType::kU8, DType::kBool, DType::kI16}) {
    for (const DType between : {DType::kI8, DType::kI16, DType::kI64, DType::kF32}) {
      FunctionBuilder b;
      VarPtr y = b.Call("cast", {b.Param("x", ir::TensorType{from, {4, 6}})}, {{"dtype", between}});
      if (between != DType::kI8) y = b.Call("sub", {y, MakeScalar(between, 3)});
      y = b.Call("mul", {b.Call("cast", {y}, {{"dtype", DType::kF32}}), MakeScalar(DType::kF32, 0.1)});
      b.Return({b.Call("transpose", {y}, {{"perm", Ints{1, 0}}})});
      EXPECT_EQ(BodyAfter(b, MoveQuantised()), Body(b.Module()));
    }
  }
}

TEST(WidenAtReadersTest, EachPointwiseReaderHasItsOwn) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::TensorType{DType::kBF16, {4, 8}}), y = b.Param("y", F32({4, 8}));
  VarPtr wide = b.Call("cast", {x}, {{"dtype", DType::kF32}}), narrow = b.Call("cast", {y}, {{"dtype", DType::kBF16}});
  b.Return({b.Call("relu", {wide}), b.Call("add", {wide, y}), b.Call("softmax", {wide}), b.Call("neg", {narrow}),
            b.Call("abs", {narrow})});
  EXPECT_EQ(BodyAfter(b, WidenAtReaders()),
            "  %0: f32[4, 8] = cast(%x, dtype=f32)\n"
            "  %1: bf16[4, 8] = cast(%y, dtype=bf16)\n"
            "  %2: f32[4, 8] = relu(%0)\n"
            "  %3: f32[4, 8] = cast(%x, dtype=f32)\n"
            "  %4: f32[4, 8] = add(%3, %y)\n"
            "  %5: f32[4, 8] = softmax(%0, axis=1)\n"
            "  %6: bf16[4, 8] = neg(%1)\n"
            "  %7: bf16[4, 8] = abs(%1)\n"
            "  return %2, %4, %5, %6, %7\n");
}

TEST(WidenAtReadersTest, OnceForEachReader) {
  FunctionBuilder b;
  VarPtr wide = b.Call("cast", {b.Param("x", ir::TensorType{DType::kBF16, {4, 8}})}, {{"dtype", DType::kF32}});
  b.Return({b.Call("mul", {wide, wide}), b.Call("add", {wide, wide})});
  EXPECT_EQ(BodyAfter(b, WidenAtReaders()),
            "  %0: f32[4, 8] = cast(%x, dtype=f32)\n"
            "  %1: f32[4, 8] = mul(%0, %0)\n"
            "  %2: f32[4, 8] = cast(%x, dtype=f32)\n"
            "  %3: f32[4, 8] = add(%2, %2)\n"
            "  return %1, %3\n");
}

TEST(SinkReshapesTest, LinearLayer) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 4, 8}));
  VarPtr y = b.Call("reshape", {x}, {{"shape", Ints{4, 8}}});
  y = b.Call("add", {b.Call("matmul", {y, Weight({8, 6}, "w")}), Weight({6}, "b")});
  y = b.Call("gelu", {b.Call("reshape", {y}, {{"shape", Ints{1, 4, 6}}})});
  b.Return({y});
  EXPECT_EQ(Body(RunPass(RunPass(b.Module(), SinkReshapes()), Canonicalise())),
            "  %0: f32[1, 4, 6] = matmul(%x, @w0, transpose_a=false, transpose_b=false)\n"
            "  %1: f32[1, 4, 6] = add(%0, @w1)\n"
            "  %2: f32[1, 4, 6] = gelu(%1, approximate=\"none\")\n"
            "  return %2\n");
}

TEST(SinkReshapesTest, SumsAndNorms) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 2, 8})), z = b.Param("z", F32({2, 2, 8}));
  auto flat = [&](VarPtr v) { return b.Call("reshape", {v}, {{"shape", Ints{4, 8}}}); };
  VarPtr sum = b.Call("add", {flat(x), flat(z)});
  VarPtr norm = b.Call("layer_norm", {sum, Weight({8}, "s"), Weight({8}, "b")});
  b.Return({b.Call("reshape", {b.Call("softmax", {norm})}, {{"shape", Ints{2, 2, 8}}})});
  EXPECT_EQ(Body(RunPass(RunPass(b.Module(), SinkReshapes()), Canonicalise())),
            "  %0: f32[2, 2, 8] = add(%x, %z)\n"
            "  %1: f32[2, 2, 8] = layer_norm(%0, @w0, @w1, axis=2, epsilon=1e-05)\n"
            "  %2: f32[2, 2, 8] = softmax(%1, axis=2)\n"
            "  return %2\n");
}

TEST(SinkReshapesTest, OneArgumentGoesInFrontOfAnyViews) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({1, 6, 8}));
  VarPtr y = b.Call("transpose", {b.Call("tanh", {x})}, {{"perm", Ints{0, 2, 1}}});
  y = b.Call("reshape", {b.Call("relu", {y})}, {{"shape", Ints{1, 8, 2, 3}}});
  b.Return({b.Call("neg", {b.Call("neg", {y})})});
  EXPECT_EQ(Body(RunPass(RunPass(b.Module(), SinkReshapes()), DeadCode())),
            "  %0: f32[1, 6, 8] = tanh(%x)\n"
            "  %1: f32[1, 6, 8] = relu(%0)\n"
            "  %2: f32[1, 6, 8] = neg(%1)\n"
            "  %3: f32[1, 6, 8] = neg(%2)\n"
            "  %4: f32[1, 8, 6] = transpose(%3, perm=[0, 2, 1])\n"
            "  %5: f32[1, 8, 2, 3] = reshape(%4, shape=[1, 8, 2, 3])\n"
            "  return %5\n");
}

TEST(SinkReshapesTest, OthersStay) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 2, 8})), z = b.Param("z", F32({4, 8})), q = b.Param("q", F32({4, 1, 8}));
  VarPtr flat = b.Call("reshape", {x}, {{"shape", Ints{4, 8}}});
  VarPtr other = b.Call("reshape", {q}, {{"shape", Ints{4, 8}}});
  VarPtr last = b.Call("reshape", {x}, {{"shape", Ints{2, 16}}});
  b.Return({b.Call("add", {flat, z}), b.Call("add", {flat, other}), b.Call("neg", {last}), last,
            b.Call("softmax", {flat}, {{"axis", int64_t{0}}}), b.Call("matmul", {flat, z}, {{"transpose_a", true}})});
  EXPECT_EQ(BodyAfter(b, SinkReshapes()), Body(b.Module()));
}

// As PyTorch exports x[begin0:, begin1:] = y: a literal for each axis, broadcast, joined.
VarPtr Assign(FunctionBuilder& b, VarPtr x, VarPtr y, Ints begins) {
  const Ints box = y->type.tensor().Shape();
  std::vector<Operand> parts;
  for (size_t axis = 0; axis < box.size(); ++axis) {
    Ints shape(box.size() - axis, 1), counted;
    shape[0] = box[axis];
    for (int64_t i = 0; i < box[axis]; ++i) counted.push_back(begins[axis] + i);
    Ints tuple = box;
    tuple.push_back(1);
    VarPtr part = b.Call("expand", {IntLiteral(shape, counted)}, {{"shape", box}});
    parts.push_back(b.Call("reshape", {part}, {{"shape", tuple}}));
  }
  return b.Call("scatter_nd", {x, b.Call("concat", parts, {{"axis", static_cast<int64_t>(box.size())}}), y});
}

std::string AfterAssignment(const FunctionBuilder& b) {
  return Body(RunPass(RunPass(b.Module(), RecogniseAssignment()), DeadCode()));
}

TEST(RecogniseAssignmentTest, Inside) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 8})), y = b.Param("y", F32({2, 7}));
  b.Return({Assign(b, x, y, {1, 1})});
  EXPECT_EQ(AfterAssignment(b),
            "  %0: f32[2, 1] = slice(%x, begins=[1, 0], ends=[3, 1], steps=[1, 1])\n"
            "  %1: f32[2, 8] = concat(%0, %y, axis=1)\n"
            "  %2: f32[1, 8] = slice(%x, begins=[0, 0], ends=[1, 8], steps=[1, 1])\n"
            "  %3: f32[1, 8] = slice(%x, begins=[3, 0], ends=[4, 8], steps=[1, 1])\n"
            "  %4: f32[4, 8] = concat(%2, %1, %3, axis=0)\n"
            "  return %4\n");
}

TEST(RecogniseAssignmentTest, OfAllAndFromTheEnd) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 8})), y = b.Param("y", F32({4, 8})), z = b.Param("z", F32({4, 3}));
  b.Return({Assign(b, x, y, {0, 0}), Assign(b, x, z, {-4, -3})});
  EXPECT_EQ(AfterAssignment(b),
            "  %0: f32[4, 5] = slice(%x, begins=[0, 0], ends=[4, 5], steps=[1, 1])\n"
            "  %1: f32[4, 8] = concat(%0, %z, axis=1)\n"
            "  return %y, %1\n");
}

TEST(RecogniseAssignmentTest, OfRowsByOneLiteral) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 8})), y = b.Param("y", F32({2, 8})), z = b.Param("z", F32({1, 2}));
  b.Return({b.Call("scatter_nd", {x, IntLiteral({2, 1}, {2, 3}), y}),
            b.Call("scatter_nd", {x, IntLiteral({1, 2, 2}, {3, 0, 3, 1}), z})});
  EXPECT_EQ(AfterAssignment(b),
            "  %0: f32[2, 8] = slice(%x, begins=[0, 0], ends=[2, 8], steps=[1, 1])\n"
            "  %1: f32[4, 8] = concat(%0, %y, axis=0)\n"
            "  %2: f32[1, 6] = slice(%x, begins=[3, 2], ends=[4, 8], steps=[1, 1])\n"
            "  %3: f32[1, 8] = concat(%z, %2, axis=1)\n"
            "  %4: f32[3, 8] = slice(%x, begins=[0, 0], ends=[3, 8], steps=[1, 1])\n"
            "  %5: f32[4, 8] = concat(%4, %3, axis=0)\n"
            "  return %1, %5\n");
}

TEST(RecogniseAssignmentTest, OthersStay) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4, 8})), y = b.Param("y", F32({2, 8})), z = b.Param("z", F32({2, 2}));
  VarPtr at = b.Param("at", ir::MakeTensorType(ir::DType::kI64, {2, 1}));
  b.Return({b.Call("scatter_nd", {x, IntLiteral({2, 1}, {3, 2}), y}),  // downwards
            b.Call("scatter_nd", {x, IntLiteral({2, 1}, {3, 4}), y}),  // out of bounds
            b.Call("scatter_nd", {x, at, y}),
            b.Call("scatter_nd", {x, IntLiteral({2, 1}, {0, 1}), y}, {{"reduction", std::string("add")}}),
            // The box's axes are those of x the other way round.
            b.Call("scatter_nd", {x, IntLiteral({2, 2, 2}, {0, 0, 1, 0, 0, 1, 1, 1}), z})});
  EXPECT_EQ(AfterAssignment(b), Body(b.Module()));
}

}  // namespace
}  // namespace inlay::passes
