#include "core/backend/testing/networks.h"

namespace inlay::backend::testing {
namespace {

using ir::VarPtr;
using Shape = std::vector<int64_t>;

VarPtr Conv(CaseBuilder* b, VarPtr x, int64_t channels, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  const int64_t in = x->type.tensor().dims[1].value();
  return b->Op("conv", {x, b->Weight({channels, in / groups, kernel, kernel}), b->Weight({channels})},
               {{"pads", Shape(4, kernel / 2)}, {"strides", Shape{stride, stride}}, {"groups", groups}});
}

VarPtr Relu(CaseBuilder* b, VarPtr x) { return b->Op("relu", {x}); }

VarPtr BottleneckOf(CaseBuilder* b, VarPtr x, int64_t inner, int64_t stride, bool project) {
  auto y = Relu(b, Conv(b, x, inner, 1));
  y = Relu(b, Conv(b, y, inner, 3, stride));
  y = Conv(b, y, inner * 4, 1);
  auto side = project ? Conv(b, x, inner * 4, 1, stride) : x;
  return Relu(b, b->Op("add", {y, side}));
}

}  // namespace

Case ResNet50() {
  CaseBuilder b;
  auto x = Relu(&b, Conv(&b, b.In({1, 3, 224, 224}), 64, 7, 2));
  x = b.Op("max_pool", {x}, {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}});
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < blocks[stage]; ++i) {
      x = BottleneckOf(&b, x, 64 << stage, i == 0 && stage > 0 ? 2 : 1, i == 0);
    }
  }
  x = b.Op("reduce_mean", {x}, {{"axes", Shape{2, 3}}});
  x = b.Op("add", {b.Op("matmul", {x, b.Weight({2048, 1000})}), b.Weight({1000})});
  return b.Done("resnet50", {x});
}

Case Bottleneck(int stage) {
  CaseBuilder b;
  auto x = b.In({1, 256 << stage, 56 >> stage, 56 >> stage});
  return b.Done("bottleneck", {BottleneckOf(&b, x, 64 << stage, 1, false)});
}

Case InvertedResidual(int64_t channels, int64_t size) {
  CaseBuilder b;
  auto x = b.In({1, channels, size, size});
  auto relu6 = [&](VarPtr v) { return b.Op("clip", {v}, {{"min", 0.0}, {"max", 6.0}}); };
  auto y = relu6(Conv(&b, x, channels * 6, 1));
  y = relu6(Conv(&b, y, channels * 6, 3, 1, channels * 6));
  return b.Done("inverted_residual", {b.Op("add", {Conv(&b, y, channels, 1), x})});
}

Case Linear(int64_t m, int64_t k, int64_t n, const char* activation) {
  CaseBuilder b;
  auto y = b.Op("add", {b.Op("matmul", {b.In({1, m, k}), b.Weight({k, n})}), b.Weight({n})});
  if (activation != nullptr) y = b.Op(activation, {y});
  return b.Done("linear", {y});
}

Case Scores(int64_t heads, int64_t tokens, int64_t width) {
  CaseBuilder b;
  auto y = b.Op("matmul", {b.In({1, heads, tokens, width}), b.In({1, heads, tokens, width})}, {{"transpose_b", true}});
  y = b.Op("mul", {y, ir::MakeScalar(ir::DType::kF32, 0.125)});
  return b.Done("scores", {b.Op("softmax", {y}, {{"axis", int64_t{-1}}})});
}

}  // namespace inlay::backend::testing
