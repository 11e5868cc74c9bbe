#include "absl/strings/str_cat.h"
#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {
namespace {

using Shape = std::vector<int64_t>;

void AddUnary(const std::string& name, const std::string& op, const Shape& shape, ir::Attrs attrs,
              std::vector<Case>* cases, double low = -3, double high = 3) {
  CaseBuilder b;
  auto x = b.In(shape);
  auto y = b.Op(op, {x}, std::move(attrs));
  cases->push_back(b.Done(name, {y}));
  cases->back().low = low;
  cases->back().high = high;
}

void AddBinary(const std::string& name, const std::string& op, const Shape& x_shape, const Shape& y_shape,
               std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In(x_shape), y = b.In(y_shape);
  cases->push_back(b.Done(name, {b.Op(op, {x, y})}));
}

void AddNorms(std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In({2, 7, 45}), scale = b.Weight({45}), bias = b.Weight({45});
  cases->push_back(b.Done("layer_norm", {b.Op("layer_norm", {x, scale, bias}, {{"axis", int64_t{-1}}})}));
  CaseBuilder c;
  auto y = c.In({3, 4, 5}), scale2 = c.Weight({4, 5}), bias2 = c.Weight({4, 5});
  cases->push_back(c.Done("layer_norm_two_axes", {c.Op("layer_norm", {y, scale2, bias2}, {{"axis", int64_t{1}}})}));
  CaseBuilder d;
  auto z = d.In({2, 11, 5, 3});
  std::vector<ir::Operand> args = {z};
  for (int i = 0; i < 4; ++i) args.push_back(d.Weight({11}));
  cases->push_back(d.Done("batch_norm", {d.Op("batch_norm", args)}));
  cases->back().low = 0.1;
}

void AddSample(const std::string& mode, const std::string& coordinate, const std::string& padding, const Shape& x_shape,
               const Shape& grid_shape, std::vector<Case>* cases) {
  CaseBuilder b;
  auto x = b.In(x_shape), grid = b.In(grid_shape);
  auto y = b.Op("grid_sample", {x, grid}, {{"mode", mode}, {"coordinate", coordinate}, {"padding", padding}});
  cases->push_back(
      b.Done(absl::StrCat("grid_sample_", x_shape.size() - 2, "d_", mode, "_", coordinate, "_", padding), {y}));
}

}  // namespace

// Images that a model itself transposes, to work on their channels.
void AddTransposedImages(std::vector<Case>* cases) {
  const ir::Attrs to_last = {{"perm", Shape{0, 2, 3, 1}}}, to_first = {{"perm", Shape{0, 3, 1, 2}}};
  {
    CaseBuilder b;
    auto x = b.In({2, 24, 5, 7}), scale = b.Weight({24}), bias = b.Weight({24});
    auto y = b.Op("layer_norm", {b.Op("transpose", {x}, to_last), scale, bias}, {{"axis", int64_t{3}}});
    cases->push_back(b.Done("norm_of_channels", {b.Op("transpose", {y}, to_first)}));
  }
  {
    CaseBuilder b;
    auto y = b.In({2, 5, 7, 24}), shortcut = b.In({2, 24, 5, 7}), gate = b.In({2, 24, 1, 1}),
         scale = b.Weight({24, 1, 1});
    auto x = b.Op("mul", {b.Op("transpose", {y}, to_first), scale});
    auto sum = b.Op("relu", {b.Op("add", {shortcut, b.Op("mul", {x, gate})})});
    cases->push_back(b.Done("scaled_shortcut", {sum, b.Op("transpose", {sum}, to_last)}));
  }
  {
    CaseBuilder b;
    auto x = b.In({1, 8, 3, 4, 5}), y = b.In({1, 3, 4, 5, 8});
    auto sum = b.Op("add", {b.Op("transpose", {x}, {{"perm", Shape{0, 2, 3, 4, 1}}}), y});
    cases->push_back(b.Done("transposed_volume", {b.Op("transpose", {sum}, {{"perm", Shape{0, 4, 1, 2, 3}}})}));
  }
  AddUnary("transpose_to_last", "transpose", {2, 9, 5, 7}, to_last, cases);
  AddUnary("transpose_to_first", "transpose", {2, 5, 7, 9}, to_first, cases);
}

void AddOtherCases(std::vector<Case>* cases) {
  for (const char* op : {"relu", "silu", "softplus", "sigmoid", "tanh", "exp", "abs", "neg", "erf", "sign"}) {
    AddUnary(op, op, {3, 37}, {}, cases);
  }
  AddUnary("log", "log", {5, 9}, {}, cases, 0.1, 4);
  AddUnary("sqrt", "sqrt", {5, 9}, {}, cases, 0.1, 4);
  AddUnary("softplus_large", "softplus", {77}, {}, cases, -100, 100);
  AddUnary("leaky_relu", "leaky_relu", {2, 3, 7}, {{"alpha", 0.1}}, cases);
  AddUnary("elu", "elu", {2, 3, 7}, {{"alpha", 1.3}}, cases);
  AddUnary("gelu", "gelu", {130}, {}, cases, -6, 6);
  AddUnary("gelu_tanh", "gelu", {130}, {{"approximate", std::string("tanh")}}, cases, -6, 6);
  AddUnary("hard_sigmoid", "hard_sigmoid", {50}, {{"alpha", 0.2}, {"beta", 0.5}}, cases, -4, 4);
  AddUnary("clip", "clip", {50}, {{"min", -0.5}, {"max", 1.5}}, cases);
  AddUnary("clip_low", "clip", {50}, {{"min", 0.0}}, cases);
  for (const char* op : {"add", "sub", "mul", "div", "minimum", "maximum"}) {
    AddBinary(op, op, {4, 19}, {4, 19}, cases);
    if (std::string(op) == "div") cases->back().low = 0.5;
  }
  AddBinary("add_channel", "add", {2, 5, 7, 3}, {5, 1, 1}, cases);
  AddBinary("mul_row", "mul", {6, 33}, {33}, cases);
  AddBinary("add_left_broadcast", "add", {33}, {6, 33}, cases);
  AddBinary("add_both_broadcast", "add", {6, 1}, {1, 5}, cases);

  AddUnary("softmax", "softmax", {3, 5, 41}, {{"axis", int64_t{-1}}}, cases, -20, 20);
  AddUnary("softmax_middle", "softmax", {3, 5, 7}, {{"axis", int64_t{1}}}, cases, -5, 5);
  AddUnary("log_softmax", "log_softmax", {9, 10}, {{"axis", int64_t{-1}}}, cases, -20, 20);
  AddNorms(cases);

  AddUnary("max_pool", "max_pool", {1, 9, 13, 11},
           {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}}, cases);
  AddUnary("max_pool_ceil", "max_pool", {1, 4, 8, 9},
           {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"ceil_mode", true}}, cases);
  AddUnary("max_pool_dilated", "max_pool", {1, 4, 12, 12}, {{"kernel", Shape{3, 3}}, {"dilations", Shape{2, 2}}},
           cases);
  AddUnary("max_pool_1d", "max_pool", {2, 3, 17}, {{"kernel", Shape{4}}, {"strides", Shape{3}}}, cases);
  AddUnary("avg_pool", "avg_pool", {2, 6, 9, 9},
           {{"kernel", Shape{3, 2}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 0, 1, 1}}}, cases);
  AddUnary("avg_pool_include", "avg_pool", {2, 6, 9, 9},
           {{"kernel", Shape{3, 3}}, {"pads", Shape{1, 1, 1, 1}}, {"count_include_pad", true}}, cases);
  AddUnary("avg_pool_ceil", "avg_pool", {1, 3, 8, 8},
           {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}, {"ceil_mode", true}},
           cases);
  AddUnary("avg_pool_3d", "avg_pool", {1, 2, 5, 6, 7}, {{"kernel", Shape{2, 3, 2}}}, cases);
  AddUnary("global_mean", "reduce_mean", {2, 19, 7, 5}, {{"axes", Shape{2, 3}}, {"keepdims", true}}, cases);
  AddUnary("global_mean_flat", "reduce_mean", {1, 64, 7, 7}, {{"axes", Shape{2, 3}}}, cases);
  AddUnary("reduce_mean_last", "reduce_mean", {4, 5, 9}, {{"axes", Shape{2}}}, cases);
  AddUnary("reduce_sum", "reduce_sum", {4, 5, 9}, {{"axes", Shape{0, 2}}}, cases);
  AddUnary("reduce_max_all", "reduce_max", {4, 5, 9}, {}, cases);
  AddUnary("reshape", "reshape", {4, 6}, {{"shape", Shape{3, 8}}}, cases);
  AddUnary("transpose", "transpose", {4, 6, 5}, {{"perm", Shape{2, 0, 1}}}, cases);
  {
    CaseBuilder b;
    auto x = b.In({2, 3, 4}), y = b.In({2, 5, 4}), z = b.In({2, 1, 4});
    cases->push_back(b.Done("concat", {b.Op("concat", {x, y, z}, {{"axis", int64_t{1}}})}));
  }
  AddTransposedImages(cases);
  for (const char* mode : {"linear", "nearest"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      AddSample(mode, "half_pixel", padding, {2, 7, 9, 19}, {2, 5, 3, 2}, cases);
    }
  }
  AddSample("linear", "align_corners", "reflection", {1, 6, 1, 3}, {1, 11, 2}, cases);
  AddSample("linear", "pixel", "zeros", {3, 4, 32}, {3, 13, 1}, cases);
  AddSample("linear", "align_corners", "zeros", {1, 3, 4, 5, 8}, {1, 6, 2, 3}, cases);
}

}  // namespace inlay::backend::testing
