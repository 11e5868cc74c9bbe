// Products of bf16, which processors have instructions for, and what networks have around them.
#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {
namespace {

using ir::DType;
using ir::VarPtr;
using Shape = std::vector<int64_t>;

VarPtr Cast(CaseBuilder* b, VarPtr x, DType dtype) { return b->Op("cast", {x}, {{"dtype", dtype}}); }

void AddCase(const char* name, CaseBuilder* b, VarPtr result, std::vector<Case>* cases) {
  Case c = b->Done(name, {result});
  c.rtol = 2e-2;  // rounded to 8 bits, what it is computed of as well
  c.atol = 5e-2;
  cases->push_back(std::move(c));
}

// Of a layer: the convolution, a scale and a shift in f32 for each filter, an activation.
VarPtr Layer(CaseBuilder* b, VarPtr x, const Shape& w, int64_t stride, int64_t groups) {
  const int64_t axes = static_cast<int64_t>(w.size()) - 2, pad = w.back() / 2;
  VarPtr y = b->Op("conv", {x, b->Weight(w, DType::kBF16)},
                   {{"pads", Shape(2 * axes, pad)}, {"strides", Shape(axes, stride)}, {"groups", groups}});
  Shape each(axes + 1, 1);
  each[0] = w[0];
  y = b->Op("add", {b->Op("mul", {Cast(b, y, DType::kF32), b->Weight(each)}), b->Weight(each)});
  return Cast(b, b->Op("relu", {y}), DType::kBF16);
}

void AddConv(const char* name, const Shape& x, const Shape& w, int64_t stride, int64_t groups,
             std::vector<Case>* cases) {
  CaseBuilder b;
  AddCase(name, &b, Layer(&b, b.In(x, DType::kBF16), w, stride, groups), cases);
}

}  // namespace

void AddBf16Cases(std::vector<Case>* cases) {
  AddConv("bf16_conv_1x1", {2, 20, 7, 5}, {33, 20, 1, 1}, 1, 1, cases);
  AddConv("bf16_conv_3x3", {1, 32, 14, 14}, {24, 32, 3, 3}, 1, 1, cases);
  AddConv("bf16_conv_strided", {2, 16, 13, 12}, {16, 16, 3, 3}, 2, 1, cases);
  AddConv("bf16_conv_of_few_channels", {1, 3, 33, 31}, {16, 3, 7, 7}, 2, 1, cases);
  AddConv("bf16_conv_depthwise", {2, 19, 11, 10}, {19, 1, 3, 3}, 1, 19, cases);
  AddConv("bf16_conv_grouped", {1, 12, 9, 9}, {18, 4, 3, 3}, 1, 3, cases);
  {
    CaseBuilder b;  // a residual block: what meets there is widened where it meets
    VarPtr x = b.In({1, 16, 9, 7}, DType::kBF16);
    VarPtr y = Cast(&b, Layer(&b, x, {16, 16, 1, 1}, 1, 1), DType::kF32);
    AddCase("bf16_residual", &b, Cast(&b, b.Op("add", {y, Cast(&b, x, DType::kF32)}), DType::kBF16), cases);
  }
  {
    CaseBuilder b;
    VarPtr x = b.In({2, 20, 9, 11}, DType::kBF16);
    VarPtr pooled =
        b.Op("max_pool", {x}, {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}});
    AddCase("bf16_pool", &b, pooled, cases);
  }
  {
    CaseBuilder b;
    VarPtr y = b.Op("matmul", {b.In({2, 7, 70}, DType::kBF16), b.Weight({70, 33}, DType::kBF16)});
    AddCase("bf16_matmul", &b, y, cases);
  }
  {
    CaseBuilder b;
    VarPtr y = b.Op("matmul", {b.In({2, 20, 18}, DType::kBF16), b.In({2, 18, 33}, DType::kBF16)});
    AddCase("bf16_matmul_of_activations", &b, y, cases);
  }
  {
    CaseBuilder b;  // as mixed precision leaves it
    VarPtr q = b.In({3, 21, 24}, DType::kBF16), k = b.In({3, 37, 24}, DType::kBF16),
           v = b.In({3, 37, 16}, DType::kBF16);
    VarPtr scores = Cast(&b, b.Op("matmul", {q, k}, {{"transpose_b", true}}), DType::kF32);
    VarPtr weights =
        Cast(&b, b.Op("softmax", {b.Op("mul", {scores, b.Weight({1})})}, {{"axis", int64_t{2}}}), DType::kBF16);
    AddCase("bf16_attention", &b, b.Op("matmul", {weights, v}), cases);
  }
  {
    CaseBuilder b;  // between convolutions: what says what becomes of each axis
    VarPtr x = b.In({2, 20, 9, 11}, DType::kBF16), y = b.In({2, 12, 9, 11}, DType::kBF16);
    VarPtr all = b.Op("concat", {x, y}, {{"axis", int64_t{1}}});
    VarPtr some = b.Op("slice", {all},
                       {{"begins", Shape{0, 5, 8, 1}}, {"ends", Shape{2, 30, 0, 11}}, {"steps", Shape{1, 2, -1, 3}}});
    AddCase("bf16_concat_slice_pad", &b, b.Op("pad", {some}, {{"pads", Shape{0, 1, 2, 0, 0, 3, 0, 1}}}), cases);
  }
}

}  // namespace inlay::backend::testing
