#include <cmath>

#include "core/passes/pass_test_util.h"

namespace inlay::passes {
namespace {

Operand S(double v, DType dtype = DType::kF32) { return MakeScalar(dtype, v); }

std::string Gelu(std::function<VarPtr(FunctionBuilder&, VarPtr)> build, DType dtype = DType::kF32) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", ir::TensorType{dtype, {8, 4}});
  b.Return({build(b, x)});
  return BodyAfter(b, RecogniseComposites());
}

constexpr char kErf[] = "  %0: f32[8, 4] = gelu(%x, approximate=\"none\")\n  return %0\n";
constexpr char kTanh[] = "  %0: f32[8, 4] = gelu(%x, approximate=\"tanh\")\n  return %0\n";

VarPtr OnePlusErf(FunctionBuilder& b, Operand x) {
  return b.Call("add", {b.Call("erf", {b.Call("div", {x, S(std::sqrt(2.0))})}), S(1)});
}

TEST(RecogniseGeluTest, ErfInEveryOrder) {
  // torch.onnx: (x * (erf(x / 1.414) + 1)) * 0.5
  EXPECT_EQ(Gelu([](auto& b, VarPtr x) { return b.Call("mul", {b.Call("mul", {x, OnePlusErf(b, x)}), S(0.5)}); }),
            kErf);
  // HF: x * 0.5 * (1 + erf(..))
  EXPECT_EQ(Gelu([](auto& b, VarPtr x) { return b.Call("mul", {b.Call("mul", {x, S(0.5)}), OnePlusErf(b, x)}); }),
            kErf);
  // TF: x * (0.5 * (1 + erf(x * 0.7071)))
  EXPECT_EQ(Gelu([](auto& b, VarPtr x) {
              VarPtr e = b.Call("erf", {b.Call("mul", {x, S(0.70710678)})});
              return b.Call("mul", {x, b.Call("mul", {S(0.5), b.Call("add", {S(1), e})})});
            }),
            kErf);
  // division by 2
  EXPECT_EQ(Gelu([](auto& b, VarPtr x) { return b.Call("mul", {b.Call("div", {x, S(2)}), OnePlusErf(b, x)}); }), kErf);
}

TEST(RecogniseGeluTest, Tanh) {
  // GPT-2: 0.5 * x * (1 + tanh(0.797 * (x + 0.044715 * x^3)))
  EXPECT_EQ(Gelu([](auto& b, VarPtr x) {
              VarPtr cube = b.Call("pow", {x, S(3)});
              VarPtr inner = b.Call("add", {x, b.Call("mul", {cube, S(0.044715)})});
              VarPtr t = b.Call("tanh", {b.Call("mul", {inner, S(std::sqrt(2 / M_PI))})});
              return b.Call("mul", {b.Call("mul", {x, S(0.5)}), b.Call("add", {t, S(1)})});
            }),
            kTanh);
  // x^3 as x * x * x, which is what simplify makes of it
  EXPECT_EQ(Gelu([](auto& b, VarPtr x) {
              VarPtr cube = b.Call("mul", {b.Call("mul", {x, x}), x});
              VarPtr inner = b.Call("add", {b.Call("mul", {S(0.044715), cube}), x});
              VarPtr t = b.Call("tanh", {b.Call("mul", {S(0.7978845608), inner})});
              return b.Call("mul", {S(0.5), b.Call("mul", {x, b.Call("add", {S(1), t})})});
            }),
            kTanh);
  // tanh(0.797 * x * (1 + 0.044715 * x * x))
  EXPECT_EQ(Gelu([](auto& b, VarPtr x) {
              VarPtr poly = b.Call("add", {b.Call("mul", {b.Call("mul", {x, S(0.044715)}), x}), S(1)});
              VarPtr t = b.Call("tanh", {b.Call("mul", {b.Call("mul", {x, S(0.7978845608)}), poly})});
              return b.Call("mul", {b.Call("mul", {x, S(0.5)}), b.Call("add", {t, S(1)})});
            }),
            kTanh);
}

TEST(RecogniseGeluTest, NearMissesStay) {
  auto unchanged = [](std::function<VarPtr(FunctionBuilder&, VarPtr)> build) {
    return Gelu(build).find("gelu") == std::string::npos;
  };
  EXPECT_TRUE(
      unchanged([](auto& b, VarPtr x) { return b.Call("mul", {b.Call("mul", {x, OnePlusErf(b, x)}), S(0.25)}); }));
  EXPECT_TRUE(unchanged([](auto& b, VarPtr x) {
    VarPtr y = b.Call("exp", {x});
    return b.Call("mul", {b.Call("mul", {y, OnePlusErf(b, x)}), S(0.5)});
  }));
  EXPECT_TRUE(unchanged([](auto& b, VarPtr x) {
    VarPtr e = b.Call("add", {b.Call("erf", {b.Call("mul", {x, S(0.7)})}), S(1)});
    return b.Call("mul", {b.Call("mul", {x, e}), S(0.5)});
  }));
  // An inner value is a result too.
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr e = OnePlusErf(b, x);
  b.Return({b.Call("mul", {b.Call("mul", {x, e}), S(0.5)}), e});
  EXPECT_EQ(BodyAfter(b, RecogniseComposites()), Body(b.Module()));
}

TEST(RecogniseGeluTest, LongChainsTakeNoStack) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  for (int i = 0; i < 200000; ++i) x = b.Call("mul", {x, S(1.5)});
  b.Return({x});
  EXPECT_EQ(RunPass(b.Module(), RecogniseComposites()).functions["main"].body.bindings.size(), 200000);
}

TEST(RecogniseSiluTest, Silu) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({4}));
  VarPtr shared = b.Call("sigmoid", {b.Call("neg", {x})});
  b.Return({b.Call("mul", {b.Call("sigmoid", {x}), x}), b.Call("mul", {shared, x}), shared});
  EXPECT_EQ(BodyAfter(b, RecogniseComposites()),
            "  %0: f32[4] = neg(%x)\n"
            "  %1: f32[4] = sigmoid(%0)\n"
            "  %2: f32[4] = silu(%x)\n"
            "  %3: f32[4] = mul(%1, %x)\n"
            "  return %2, %3, %1\n");
}

struct LayerNormOptions {
  bool power = false, reciprocal = false, affine = true, keepdims = true;
  Ints axes = {2};
  bool leaks = false;
};

std::string LayerNorm(const LayerNormOptions& o) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 4, 8}));
  const ir::Attrs reduce{{"axes", o.axes}, {"keepdims", true}};
  VarPtr centred = b.Call("sub", {x, b.Call("reduce_mean", {x}, reduce)});
  VarPtr square = o.power ? b.Call("pow", {centred, S(2)}) : b.Call("mul", {centred, centred});
  VarPtr deviation = b.Call("sqrt", {b.Call("add", {b.Call("reduce_mean", {square}, reduce), S(1e-12)})});
  VarPtr y =
      o.reciprocal ? b.Call("mul", {centred, b.Call("reciprocal", {deviation})}) : b.Call("div", {centred, deviation});
  if (o.affine) y = b.Call("add", {b.Call("mul", {Weight({8}, "g"), y}), Weight({8}, "b")}, {}, "ln (Add)");
  if (o.leaks) {
    b.Return({y, deviation});
  } else {
    b.Return({y});
  }
  return BodyAfter(b, RecogniseComposites());
}

TEST(RecogniseLayerNormTest, TorchBelowOpset17) {
  const std::string expected =
      "  %0: f32[2, 4, 8] = layer_norm(%x, @w0, @w1, axis=2, epsilon=1e-12)  // ln (Add)\n  return %0\n";
  EXPECT_EQ(LayerNorm({}), expected);
  EXPECT_EQ(LayerNorm({/*power=*/true}), expected);
  EXPECT_EQ(LayerNorm({false, /*reciprocal=*/true}), expected);
}

TEST(RecogniseLayerNormTest, WhatIsNoneStays) {
  LayerNormOptions o;
  o.axes = {1};
  EXPECT_EQ(LayerNorm(o).find("layer_norm"), std::string::npos);
  o = {};
  o.leaks = true;
  EXPECT_EQ(LayerNorm(o).find("layer_norm"), std::string::npos);
  o = {};
  o.affine = false;
  EXPECT_EQ(LayerNorm(o).find("layer_norm"), std::string::npos);
}

TEST(RecogniseSoftmaxTest, Decomposed) {
  FunctionBuilder b;
  VarPtr x = b.Param("x", F32({2, 4}));
  const ir::Attrs reduce{{"axes", Ints{1}}, {"keepdims", true}};
  VarPtr e = b.Call("exp", {b.Call("sub", {x, b.Call("reduce_max", {x}, reduce)})});
  b.Return({b.Call("div", {e, b.Call("reduce_sum", {e}, reduce)})});
  EXPECT_EQ(BodyAfter(b, RecogniseComposites()), "  %0: f32[2, 4] = softmax(%x, axis=1)\n  return %0\n");
}

}  // namespace
}  // namespace inlay::passes
