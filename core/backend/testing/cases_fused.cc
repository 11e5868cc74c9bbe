#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {
namespace {

using ir::VarPtr;
using Shape = std::vector<int64_t>;

const Shape kPads = {1, 1, 1, 1};

VarPtr Conv(CaseBuilder* b, VarPtr x, int64_t channels, int64_t kernel, bool bias = true, int64_t stride = 1) {
  const int64_t in = x->type.tensor().dims[1].value();
  std::vector<ir::Operand> args = {x, b->Weight({channels, in, kernel, kernel})};
  if (bias) args.push_back(b->Weight({channels}));
  const int64_t pad = kernel / 2;
  return b->Op("conv", args, {{"pads", Shape(4, pad)}, {"strides", Shape{stride, stride}}});
}

VarPtr Scalar(CaseBuilder* b, const char* op, VarPtr x, double value) {
  return b->Op(op, {x, ir::MakeScalar(ir::DType::kF32, value)});
}

// conv1 -> relu -> conv2 + x -> relu: the block of ResNet.
void AddResidualBlock(std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In({1, 24, 14, 14});
  auto y = b.Op("relu", {Conv(&b, x, 20, 3)});
  auto sum = b.Op("add", {Conv(&b, y, 24, 1), x});
  cases->push_back(b.Done("residual_block", {b.Op("relu", {sum})}));
}

// Both arguments of the addition come out of convolutions, as where ResNet downsamples.
void AddDownsampleBlock(std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In({2, 16, 12, 12});
  auto y = b.Op("relu", {Conv(&b, x, 8, 1)});
  auto main = Conv(&b, b.Op("relu", {Conv(&b, y, 8, 3, true, 2)}), 32, 1);
  auto side = Conv(&b, x, 32, 1, true, 2);
  cases->push_back(b.Done("downsample_block", {b.Op("relu", {b.Op("add", {main, side})})}));
}

// MobileNetV2's block, with an image inside that does not stay in the near caches.
void AddInvertedResidual(std::vector<Case>* cases) {
  CaseBuilder b;
  constexpr int64_t kHidden = 64;
  auto x = b.In({1, 8, 113, 112});
  auto clip = [&](VarPtr y) { return b.Op("clip", {y}, {{"min", 0.0}, {"max", 6.0}}); };
  auto y = clip(Conv(&b, x, kHidden, 1));
  std::vector<ir::Operand> args = {y, b.Weight({kHidden, 1, 3, 3}), b.Weight({kHidden})};
  auto z = clip(b.Op("conv", args, {{"pads", kPads}, {"groups", kHidden}}));
  cases->push_back(b.Done("inverted_residual", {b.Op("add", {Conv(&b, z, 8, 1), x})}));
}

void AddConvEpilogues(std::vector<Case>* cases) {
  for (const char* op : {"relu", "silu", "sigmoid", "tanh", "gelu"}) {
    CaseBuilder b;
    auto y = b.Op(op, {Conv(&b, b.In({1, 7, 9, 10}), 18, 3)});
    cases->push_back(b.Done(std::string("conv_") + op, {y}));
  }
  {
    CaseBuilder b;
    auto y = b.Op("clip", {Conv(&b, b.In({1, 7, 9, 10}), 18, 3)}, {{"min", 0.0}, {"max", 0.5}});
    cases->push_back(b.Done("conv_clip", {y}));
  }
  {
    CaseBuilder b;
    auto y = Conv(&b, b.In({1, 7, 9, 10}), 18, 3, false);
    y = b.Op("add", {b.Op("mul", {y, b.Weight({18, 1, 1})}), b.Weight({1, 18, 1, 1})});
    cases->push_back(b.Done("conv_scale_shift", {b.Op("relu", {y})}));
  }
  {
    CaseBuilder b;  // x · sigmoid(x) written out
    auto y = Conv(&b, b.In({1, 8, 6, 6}), 16, 1);
    cases->push_back(b.Done("conv_swish_by_hand", {b.Op("mul", {y, b.Op("sigmoid", {y})})}));
  }
  {
    CaseBuilder b;
    auto y = Conv(&b, b.In({1, 8, 6, 6}), 16, 1);
    auto gate = b.Op("hard_sigmoid", {y}, {{"alpha", 1.0 / 6}, {"beta", 0.5}});
    cases->push_back(b.Done("conv_hard_swish", {b.Op("mul", {gate, y})}));
  }
  {
    CaseBuilder b;
    auto y = Conv(&b, b.In({1, 8, 6, 6}), 16, 1);
    y = Scalar(&b, "add", Scalar(&b, "mul", y, 0.3), -0.1);
    cases->push_back(b.Done("conv_scalars", {b.Op("sub", {ir::MakeScalar(ir::DType::kF32, 1.0), y})}));
  }
}

void AddMatmulEpilogues(std::vector<Case>* cases) {
  for (const char* approximate : {"none", "tanh"}) {
    CaseBuilder b;
    auto y = b.Op("matmul", {b.In({1, 21, 48}), b.Weight({48, 70})});
    y = b.Op("gelu", {b.Op("add", {y, b.Weight({70})})}, {{"approximate", std::string(approximate)}});
    cases->push_back(b.Done(std::string("matmul_bias_gelu_") + approximate, {y}));
  }
  {
    CaseBuilder b;
    auto residual = b.In({2, 11, 36});
    auto y = b.Op("matmul", {b.In({2, 11, 48}), b.Weight({48, 36})});
    y = b.Op("add", {b.Op("add", {b.Weight({36}), y}), residual});
    cases->push_back(b.Done("matmul_bias_residual", {y}));
  }
  {
    CaseBuilder b;  // attention's scores
    auto y = b.Op("matmul", {b.In({2, 3, 9, 16}), b.In({2, 3, 10, 16})}, {{"transpose_b", true}});
    y = b.Op("add", {Scalar(&b, "mul", y, 0.25), b.In({2, 1, 1, 10})});
    cases->push_back(b.Done("attention_scores", {b.Op("softmax", {y}, {{"axis", int64_t{-1}}})}));
  }
  {
    CaseBuilder b;
    auto y = b.Op("matmul", {b.In({13, 20}), b.Weight({20, 30})});
    cases->push_back(b.Done("matmul_column_scale", {b.Op("mul", {y, b.In({13, 1})})}));
  }
  {
    CaseBuilder b;
    auto y = b.Op("matmul", {b.In({13, 20}), b.Weight({20, 30})});
    y = Scalar(&b, "div", b.Op("relu", {y}), 3.0);
    cases->push_back(b.Done("mlp", {b.Op("matmul", {y, b.Weight({30, 10})})}));
  }
}

void AddRegions(std::vector<Case>* cases) {
  {
    CaseBuilder b;  // several results, one of which goes on inside
    auto y = b.Op("relu", {Conv(&b, b.In({1, 9, 8, 8}), 17, 3)});
    auto z = Conv(&b, y, 5, 1);
    cases->push_back(b.Done("two_results", {y, z}));
  }
  {
    CaseBuilder b;  // the head of an image classifier
    auto y = b.Op("max_pool", {b.Op("relu", {Conv(&b, b.In({1, 3, 19, 19}), 20, 3)})},
                  {{"kernel", Shape{2, 2}}, {"strides", Shape{2, 2}}});
    y = b.Op("reduce_mean", {Conv(&b, y, 33, 3)}, {{"axes", Shape{2, 3}}, {"keepdims", true}});
    y = b.Op("reshape", {y}, {{"shape", Shape{1, 33}}});
    y = b.Op("add", {b.Op("matmul", {y, b.Weight({33, 10})}), b.Weight({10})});
    cases->push_back(b.Done("classifier", {y}));
  }
  for (int64_t batch : {1, 2}) {
    CaseBuilder b;  // squeeze and excite
    auto x = b.Op("silu", {Conv(&b, b.In({batch, 6, 10, 10}), 24, 3)});
    auto s = b.Op("reduce_mean", {x}, {{"axes", Shape{2, 3}}, {"keepdims", true}});
    s = b.Op("sigmoid", {Conv(&b, b.Op("silu", {Conv(&b, s, 6, 1)}), 24, 1)});
    auto y = b.Op("add", {Conv(&b, b.Op("mul", {x, s}), 6, 1), b.In({batch, 6, 10, 10})});
    cases->push_back(b.Done("squeeze_excite_" + std::to_string(batch), {y}));
  }
  {
    CaseBuilder b;  // SqueezeNet's fire module
    auto x = b.Op("relu", {Conv(&b, b.In({1, 16, 9, 9}), 16, 1)});
    auto y = b.Op("concat", {b.Op("relu", {Conv(&b, x, 16, 1)}), b.Op("relu", {Conv(&b, x, 32, 3)})},
                  {{"axis", int64_t{1}}});
    cases->push_back(b.Done("fire_module", {b.Op("relu", {Conv(&b, y, 8, 1)})}));
  }
  {
    CaseBuilder b;  // a value used twice by one call, and one that must survive a reshape that changes nothing
    auto y = Conv(&b, b.In({1, 4, 5, 5}), 6, 3);
    auto same = b.Op("reshape", {y}, {{"shape", Shape{1, 6, 5, 5}}});
    auto z = b.Op("add", {b.Op("relu", {same}), b.Op("mul", {y, y})});
    cases->push_back(b.Done("shared_values", {z}));
  }
}

}  // namespace

void AddFusedCases(std::vector<Case>* cases) {
  AddResidualBlock(cases);
  AddDownsampleBlock(cases);
  AddInvertedResidual(cases);
  AddConvEpilogues(cases);
  AddMatmulEpilogues(cases);
  AddRegions(cases);
}

}  // namespace inlay::backend::testing
