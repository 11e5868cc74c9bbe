#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {
namespace {

using Shape = std::vector<int64_t>;

struct ConvCase {
  const char* name;
  Shape x, w;
  Shape strides, dilations, pads;
  int64_t groups = 1;
  bool bias = false;
};

void AddConv(const ConvCase& c, std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In(c.x), w = b.Weight(c.w);
  std::vector<ir::Operand> args = {x, w};
  if (c.bias) args.push_back(b.Weight({c.w[0]}));
  ir::Attrs attrs{{"groups", c.groups}};
  if (!c.strides.empty()) attrs.Set("strides", c.strides);
  if (!c.dilations.empty()) attrs.Set("dilations", c.dilations);
  if (!c.pads.empty()) attrs.Set("pads", c.pads);
  auto y = b.Op("conv", args, attrs);
  cases->push_back(b.Done(c.name, {y}));
}

void AddConvTranspose(const char* name, const Shape& x_shape, const Shape& w_shape, int64_t groups, ir::Attrs attrs,
                      std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In(x_shape), w = b.Weight(w_shape), bias = b.Weight({w_shape[1] * groups});
  attrs.Set("groups", groups);
  auto y = b.Op("conv_transpose", {x, w, bias}, attrs);
  cases->push_back(b.Done(name, {y}));
}

void AddMatmul(const char* name, const Shape& a_shape, const Shape& b_shape, bool ta, bool tb, bool constant,
               std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In(a_shape);
  auto w = constant ? b.Weight(b_shape) : b.In(b_shape);
  auto y = b.Op("matmul", {x, w}, {{"transpose_a", ta}, {"transpose_b", tb}});
  cases->push_back(b.Done(name, {y}));
}

void AddGatherMatmul(const char* name, int64_t rows, const Shape& table, bool transposed, std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In({rows, table[transposed ? 2 : 1]}), w = b.Weight(table);
  auto which = b.In({rows}, ir::DType::kI64);
  cases->push_back(b.Done(name, {b.Op("gather_matmul", {x, w, which}, {{"transpose_b", transposed}})}));
}

}  // namespace

void AddContractionCases(std::vector<Case>* cases) {
  AddConv({"conv_3x3", {1, 5, 13, 11}, {7, 5, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}}, cases);
  AddConv({"conv_3x3_wide", {2, 32, 14, 14}, {48, 32, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1, true}, cases);
  AddConv({"conv_7x7_strided", {1, 3, 33, 31}, {16, 3, 7, 7}, {2, 2}, {1, 1}, {3, 3, 3, 3}, 1, true}, cases);
  AddConv({"conv_1x1", {1, 19, 7, 5}, {33, 19, 1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}}, cases);
  AddConv({"conv_uneven_pads", {1, 4, 9, 8}, {6, 4, 3, 2}, {2, 1}, {1, 1}, {0, 1, 2, 0}}, cases);
  AddConv({"conv_dilated", {1, 8, 17, 15}, {9, 8, 3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}}, cases);
  AddConv({"conv_grouped", {1, 12, 9, 9}, {18, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 3, true}, cases);
  AddConv({"conv_depthwise", {1, 24, 15, 13}, {24, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 24, true}, cases);
  AddConv({"conv_1d", {2, 6, 29}, {10, 6, 5}, {2}, {1}, {2, 2}}, cases);
  AddConv({"conv_3d", {1, 3, 7, 6, 5}, {8, 3, 3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}}, cases);
  {
    CaseBuilder b;  // weights that change from call to call
    auto x = b.In({1, 5, 9, 9}), w = b.In({6, 5, 3, 3});
    cases->push_back(b.Done("conv_variable_weights", {b.Op("conv", {x, w})}));
  }
  AddConvTranspose("conv_transpose", {1, 6, 7, 5}, {6, 9, 3, 3}, 1, {{"strides", Shape{2, 2}}}, cases);
  AddConvTranspose("conv_transpose_padded", {1, 16, 8, 8}, {16, 8, 4, 4}, 1,
                   {{"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}}, cases);
  AddConvTranspose("conv_transpose_output_padding", {1, 4, 5, 6}, {4, 3, 3, 3}, 1,
                   {{"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}, {"output_padding", Shape{1, 1}}}, cases);
  AddConvTranspose("conv_transpose_grouped", {2, 6, 5, 5}, {6, 4, 3, 3}, 2, {{"strides", Shape{1, 2}}}, cases);

  AddGatherMatmul("gather_matmul", 37, {5, 53, 29}, false, cases);
  AddGatherMatmul("gather_matmul_transposed", 6, {16, 40, 64}, true, cases);
  AddMatmul("matmul_2d", {37, 53}, {53, 29}, false, false, true, cases);
  AddMatmul("matmul_transposed_weights", {5, 64}, {48, 64}, false, true, true, cases);
  AddMatmul("matmul_transposed_a", {31, 17}, {31, 13}, true, false, true, cases);
  AddMatmul("matmul_tokens", {2, 9, 40}, {40, 56}, false, false, true, cases);
  AddMatmul("matmul_one_row", {1, 300}, {300, 77}, false, false, true, cases);
  AddMatmul("matmul_variable", {23, 31}, {31, 19}, false, false, false, cases);
  AddMatmul("matmul_variable_transposed", {3, 4, 11, 16}, {3, 4, 13, 16}, false, true, false, cases);
  AddMatmul("matmul_batched", {3, 4, 11, 13}, {3, 4, 13, 16}, false, false, false, cases);
  AddMatmul("matmul_both_transposed", {6, 16, 11}, {6, 13, 16}, true, true, false, cases);
  AddMatmul("matmul_broadcast_batch", {5, 1, 7, 8}, {3, 8, 9}, false, false, false, cases);
  AddMatmul("matmul_broadcast_a", {7, 8}, {4, 8, 9}, false, false, false, cases);
  AddMatmul("matmul_vector", {4, 6, 8}, {8}, false, false, true, cases);
  AddMatmul("matmul_dot", {21}, {21}, false, false, false, cases);
}

}  // namespace inlay::backend::testing
