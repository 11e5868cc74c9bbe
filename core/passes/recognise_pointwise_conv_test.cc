// What recognise_pointwise_conv writes; that it computes the same is tests/e2e/test_pointwise_conv.py's.
#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

struct Layer {
  Ints image = {1, 6, 5, 7}, weights = {6, 8}, bias = {8}, back = {0, 3, 1, 2};
  bool transpose_a = false, transpose_b = false, bias_first = false, other_use = false;
};

FunctionBuilder Build(const Layer& layer) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::MakeTensorType(DType::kF32, layer.image));
  Ints to_last = {0};
  for (size_t i = 2; i < layer.image.size(); ++i) to_last.push_back(i);
  to_last.push_back(1);
  if (layer.transpose_a) std::swap(to_last.end()[-1], to_last.end()[-2]);
  VarPtr y = b.Call("transpose", {x}, {{"perm", to_last}});
  y = b.Call("matmul", {y, Weight(layer.weights, "w")},
             {{"transpose_a", layer.transpose_a}, {"transpose_b", layer.transpose_b}});
  VarPtr product = y;
  if (!layer.bias.empty()) {
    Operand bias(Weight(layer.bias, "b"));
    y = layer.bias_first ? b.Call("add", {bias, y}) : b.Call("add", {y, bias});
  }
  y = b.Call("transpose", {y}, {{"perm", layer.back}});
  if (layer.other_use) {
    b.Return({y, product});
  } else {
    b.Return({y});
  }
  return b;
}

std::string Recognised(const Layer& layer) { return BodyAfter(Build(layer), RecognisePointwiseConv()); }

TEST(RecognisePointwiseConvTest, LinearLayerOverChannels) {
  EXPECT_EQ(Recognised({}),
            "  %0: f32[8, 6] = transpose(@w0, perm=[1, 0])\n"
            "  %1: f32[8, 6, 1, 1] = reshape(%0, shape=[8, 6, 1, 1])\n"
            "  %2: f32[8] = reshape(@w1, shape=[8])\n"
            "  %3: f32[1, 8, 5, 7] = conv(%x, %1, %2, dilations=[1, 1], groups=1, pads=[0, 0, 0, 0], strides=[1, 1])\n"
            "  return %3\n");
  Layer volume;
  volume.image = {2, 6, 3, 5, 7};
  volume.bias = {1, 1, 8};
  volume.bias_first = true;
  volume.back = {0, 4, 1, 2, 3};
  EXPECT_NE(Recognised(volume).find("f32[2, 8, 3, 5, 7] = conv("), std::string::npos) << Recognised(volume);
  for (int64_t rank : {4, 5}) {
    Layer swapped = rank == 4 ? Layer() : volume;
    swapped.transpose_a = true;
    EXPECT_NE(Recognised(swapped).find(" = conv(%x, "), std::string::npos) << Recognised(swapped);
  }
  Layer flag;
  flag.weights = {8, 6};
  flag.transpose_b = true;
  flag.bias = {};
  EXPECT_NE(Recognised(flag).find("reshape(@w0, shape=[8, 6, 1, 1])"), std::string::npos) << Recognised(flag);
}

TEST(RecognisePointwiseConvTest, OthersStay) {
  Layer other_way_back, not_per_channel, read_elsewhere, broadcast, no_pixels, no_channels;
  other_way_back.back = {0, 3, 2, 1};
  not_per_channel.bias = {7, 8};
  read_elsewhere.other_use = true;
  broadcast.weights = {6, 1};  // the bias makes eight channels of one
  no_pixels.image = {1, 6, 0, 7};
  no_channels.image = {1, 0, 5, 7};
  no_channels.weights = {0, 8};
  for (const Layer& layer : {other_way_back, not_per_channel, read_elsewhere, broadcast, no_pixels, no_channels}) {
    EXPECT_EQ(Recognised(layer), Body(Build(layer).Module()));
  }
}

}  // namespace
}  // namespace inlay::passes
