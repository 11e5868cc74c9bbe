// What expand_conv_transpose writes; that it computes the same is tests/e2e/test_conv_transpose.py's.
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

int Count(const std::string& body, const std::string& op) {
  int count = 0;
  for (size_t at = body.find(" = " + op + "("); at != std::string::npos; at = body.find(" = " + op + "(", at + 1)) {
    ++count;
  }
  return count;
}

std::string Expanded(const ir::TensorType& x, const Ints& w, ir::Attrs attrs) {
  FunctionBuilder b;
  VarPtr input = b.Param("x", x);
  b.Return({b.Call("conv_transpose", {input, Weight(w, "w")}, std::move(attrs))});
  return BodyAfter(b, ExpandConvTranspose());
}

TEST(ExpandConvTransposeTest, PhasesAreChannelsThatTakeTurns) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 8, 50}));
  b.Return({b.Call("conv_transpose", {x, Weight({8, 3, 4}, "w"), Weight({3}, "b")},
                   {{"strides", Ints{2}}, {"pads", Ints{1, 1}}})});
  EXPECT_EQ(BodyAfter(b, ExpandConvTranspose()),
            "  %0: f32[1, 8, 3, 2, 2] = reshape(@w0, shape=[1, 8, 3, 2, 2])\n"
            "  %1: f32[1, 8, 3, 2, 2] = slice(%0, begins=[0, 0, 0, 1, 0], ends=[1, 8, 3, -9223372036854775808, 2], "
            "steps=[1, 1, 1, -1, 1])\n"
            "  %2: f32[1, 3, 2, 8, 2] = transpose(%1, perm=[0, 2, 4, 1, 3])\n"
            "  %3: f32[6, 8, 2] = reshape(%2, shape=[6, 8, 2])\n"
            "  %4: f32[3, 1] = reshape(@w1, shape=[3, 1])\n"
            "  %5: f32[3, 2] = expand(%4, shape=[3, 2])\n"
            "  %6: f32[6] = reshape(%5, shape=[6])\n"
            "  %7: f32[2, 6, 51] = conv(%x, %3, %6, dilations=[1], groups=1, pads=[1, 1], strides=[1])\n"
            "  %8: f32[2, 3, 2, 51] = reshape(%7, shape=[2, 3, 2, 51])\n"
            "  %9: f32[2, 3, 51, 2] = transpose(%8, perm=[0, 1, 3, 2])\n"
            "  %10: f32[2, 3, 102] = reshape(%9, shape=[2, 3, 102])\n"
            "  %11: f32[2, 3, 100] = slice(%10, begins=[0, 0, 1], ends=[2, 3, 101], steps=[1, 1, 1])\n"
            "  return %11\n");
}

TEST(ExpandConvTransposeTest, OfStrideOneItIsAConvolution) {
  const std::string body = Expanded(F32({1, 4, 9, 9}), {4, 6, 3, 3}, {{"pads", Ints{1, 0, 1, 2}}});
  EXPECT_NE(body.find("conv(%x, %3, dilations=[1, 1], groups=1, pads=[1, 2, 1, 0], strides=[1, 1])"), std::string::npos)
      << body;
  EXPECT_EQ(Count(body, "concat") + Count(body, "slice"), 1) << body;  // the slice turns the taps around
}

TEST(ExpandConvTransposeTest, NothingIsMultipliedInVain) {
  // Three taps to two phases: one has two, one has one.
  std::string body = Expanded(F32({1, 8, 32, 32}), {8, 4, 3, 3},
                              {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}});
  EXPECT_EQ(Count(body, "conv"), 4) << body;
  for (const char* kernel : {"f32[4, 8, 1, 1]", "f32[4, 8, 1, 2]", "f32[4, 8, 2, 1]", "f32[4, 8, 2, 2]"}) {
    EXPECT_NE(body.find(kernel), std::string::npos) << kernel << body;
  }
  // Small images, of which joined phases would compute a border.
  body = Expanded(F32({1, 8, 4, 4}), {8, 4, 4, 4}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
  EXPECT_EQ(Count(body, "conv"), 4) << body;
  EXPECT_EQ(body.find("f32[1, 4, 5"), std::string::npos) << body;
  // Of one element every tap is a phase: a product.
  body = Expanded(F32({1, 8, 1, 1}), {8, 4, 4, 4}, {});
  EXPECT_EQ(Count(body, "conv"), 1) << body;
  EXPECT_NE(body.find("f32[1, 64, 1, 1] = conv("), std::string::npos) << body;
}

TEST(ExpandConvTransposeTest, OpenExtents) {
  const std::string body = Expanded(ir::TensorType{DType::kF32, {ir::Dim::Symbol("n"), 4, ir::Dim::Symbol("h")}},
                                    {4, 6, 4}, {{"strides", Ints{2}}, {"pads", Ints{1, 1}}});
  EXPECT_EQ(Count(body, "conv"), 1) << body;
  EXPECT_NE(body.find(": f32[n, 6, 2*h] = slice("), std::string::npos) << body;
}

TEST(ExpandConvTransposeTest, ImagesOfWhichLittleIsSeen) {
  std::string body = Expanded(F32({1, 4, 3}), {4, 6, 2}, {{"strides", Ints{3}}, {"pads", Ints{6, 0}}});
  EXPECT_NE(body.find(": f32[1, 4, 1] = pad(%x"), std::string::npos) << body;
  // Nothing but the output's own padding.
  body = Expanded(F32({1, 4, 2}), {4, 6, 1}, {{"pads", Ints{3, 0}}, {"output_padding", Ints{4}}});
  EXPECT_EQ(Count(body, "conv_transpose"), 1) << body;
  EXPECT_EQ(Count(body, "conv"), 0) << body;
}

}  // namespace
}  // namespace inlay::passes
