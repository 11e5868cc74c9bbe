// Products of integers, and what quantised models have around them. Scales are powers of two, so that nothing is
// rounded before it should be.
#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {
namespace {

using ir::DType;
using ir::VarPtr;
using Shape = std::vector<int64_t>;

VarPtr Scalar(CaseBuilder* b, const char* op, VarPtr x, double value) {
  return b->Op(op, {x, ir::MakeScalar(DType::kF32, value)});
}

// What is computed of integers by `scale`, with `zero` for 0.
VarPtr Quantised(CaseBuilder* b, VarPtr x, double scale, double zero) {
  VarPtr y = Scalar(b, "mul", b->Op("cast", {x}, {{"dtype", DType::kF32}}), scale);
  y = Scalar(b, "add", b->Op("round", {y}), zero);
  return b->Op("cast", {b->Op("clip", {y}, {{"min", 0.0}, {"max", 255.0}})}, {{"dtype", DType::kU8}});
}

VarPtr Dequantised(CaseBuilder* b, VarPtr x, double scale, int64_t zero) {
  VarPtr y = b->Op("cast", {x}, {{"dtype", DType::kI32}});
  if (zero != 0) y = b->Op("sub", {y, ir::MakeScalar(DType::kI32, static_cast<double>(zero))});
  return Scalar(b, "mul", b->Op("cast", {y}, {{"dtype", DType::kF32}}), scale);
}

VarPtr Conv(CaseBuilder* b, VarPtr x, const Shape& w, int64_t zero, int64_t stride = 1, int64_t groups = 1) {
  const int64_t axes = static_cast<int64_t>(w.size()) - 2, pad = w.back() / 2;
  return b->Op(
      "conv_integer", {x, b->Weight(w, DType::kI8)},
      {{"pads", Shape(2 * axes, pad)}, {"strides", Shape(axes, stride)}, {"groups", groups}, {"x_zero", zero}});
}

void AddConv(const char* name, const Shape& x, const Shape& w, int64_t stride, int64_t groups,
             std::vector<Case>* cases) {
  CaseBuilder b;
  VarPtr y = Conv(&b, b.In(x, DType::kU8), w, 9, stride, groups);
  cases->push_back(b.Done(name, {Quantised(&b, y, 1.0 / 512, 100)}));
}

// Two images meet, as where a residual block ends; what is rounded between them stays in registers.
void AddSum(std::vector<Case>* cases) {
  CaseBuilder b;
  VarPtr x = b.In({2, 12, 9, 7}, DType::kU8), other = b.In({2, 20, 9, 7}, DType::kU8);
  VarPtr y = Quantised(&b, Conv(&b, x, {20, 12, 1, 1}, 0), 1.0 / 256, 131);
  VarPtr sum = b.Op("add", {Dequantised(&b, y, 0.5, 131), Dequantised(&b, other, 0.25, 0)});
  cases->push_back(b.Done("quantised_sum", {Quantised(&b, sum, 1, 3)}));
}

void AddPools(std::vector<Case>* cases) {
  CaseBuilder b;
  VarPtr x = b.In({2, 20, 9, 11}, DType::kU8);
  VarPtr y = b.Op("max_pool", {x}, {{"kernel", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"pads", Shape{1, 1, 1, 1}}});
  cases->push_back(b.Done("pool_of_bytes", {y}));
  CaseBuilder c;
  VarPtr one = c.In({2, 20, 9, 11}, DType::kU8), two = c.In({2, 13, 9, 11}, DType::kU8);
  cases->push_back(c.Done("concat_of_bytes", {c.Op("concat", {one, two}, {{"axis", int64_t{1}}})}));
  CaseBuilder d;
  VarPtr image = Dequantised(&d, d.In({2, 20, 9, 11}, DType::kU8), 0.5, 7);
  VarPtr mean = d.Op("reduce_mean", {image}, {{"axes", Shape{2, 3}}, {"keepdims", true}});
  cases->push_back(d.Done("mean_of_bytes", {mean}));
}

void AddNbits(const char* name, const Shape& a, int64_t bits, int64_t n, int64_t block, bool zeros,
              std::vector<Case>* cases) {
  CaseBuilder b;
  const int64_t blocks = (a.back() + block - 1) / block;
  std::vector<ir::Operand> args = {b.In(a), b.Weight({n, blocks, block * bits / 8}, DType::kU8), b.Weight({n, blocks})};
  if (zeros) args.push_back(b.Weight({n, blocks}, DType::kU8));
  cases->push_back(b.Done(name, {b.Op("matmul_nbits", args, {{"bits", bits}})}));
}

}  // namespace

void AddQuantisedCases(std::vector<Case>* cases) {
  AddConv("conv_integer_1x1", {2, 20, 7, 5}, {33, 20, 1, 1}, 1, 1, cases);
  AddConv("conv_integer_3x3", {1, 13, 14, 14}, {24, 13, 3, 3}, 1, 1, cases);
  AddConv("conv_integer_strided", {2, 16, 13, 12}, {16, 16, 3, 3}, 2, 1, cases);
  AddConv("conv_integer_of_few_channels", {1, 3, 33, 31}, {16, 3, 7, 7}, 2, 1, cases);
  AddConv("conv_integer_depthwise", {2, 19, 11, 10}, {19, 1, 3, 3}, 1, 19, cases);
  AddConv("conv_integer_grouped", {1, 12, 9, 9}, {18, 4, 3, 3}, 1, 3, cases);
  AddConv("conv_integer_1d", {2, 9, 29}, {10, 9, 5}, 2, 1, cases);
  AddSum(cases);
  AddPools(cases);
  CaseBuilder b;
  VarPtr y = b.Op("matmul_integer", {b.In({2, 7, 19}, DType::kU8), b.Weight({19, 33}, DType::kI8)});
  cases->push_back(b.Done("matmul_integer", {Quantised(&b, y, 1.0 / 256, 128)}));
  AddNbits("matmul_of_4_bits", {2, 1, 75}, 4, 37, 32, false, cases);
  AddNbits("matmul_of_4_bits_many_rows", {21, 64}, 4, 20, 32, true, cases);
  AddNbits("matmul_of_8_bits", {3, 40}, 8, 19, 16, true, cases);
  AddNbits("matmul_of_2_bits", {48}, 2, 7, 16, false, cases);
}

}  // namespace inlay::backend::testing
