// Transcendental functions on elements, scalars and vectors alike.
//
// f32 (which f16 and bf16 are computed in) has own expansions of what models spend time in, good for every input:
//   Exp 1 ulp · Log 1 ulp · Sin, Cos 1.75 ulp · Tanh 2.5 ulp · Sigmoid, Silu 2.5 ulp (0 below -88) · Softplus 3 ulp ·
//   Erf 2 ulp (2.5 without FMA) · Gelu for x >= -1 2 ulp, below within 3e-8 (without AVX2 3 ulp and 2e-7) ·
//   GeluTanh 2.5 ulp and 5e-8
// (testing/math_accuracy_test.py measures them over the whole range; NaN, infinities and subnormals as C's functions).
// Everything else, and all of f64, is libm's function on each lane.
#ifndef INLAY_CORE_BACKENDS_NATIVE_MATH_H_
#define INLAY_CORE_BACKENDS_NATIVE_MATH_H_

#include "core/backends/native/ops.h"

namespace inlay::native {

mlir::Value Exp(Ops& o, mlir::Value x);
// Of x <= 0 (or NaN), 1 ulp, a third cheaper: what softmax takes of differences to the maximum. Subnormal results may
// be 0.
mlir::Value ExpOfNonPositive(Ops& o, mlir::Value x);
// The largest so far, which is no NaN: nor is the result. For softmax, where a NaN makes the sum of its row one.
mlir::Value LargerOf(Ops& o, mlir::Value x, mlir::Value best);
mlir::Value Log(Ops& o, mlir::Value x);
mlir::Value Log1pOfPositive(Ops& o, mlir::Value x);  // log(1 + x), x >= 0
mlir::Value Sin(Ops& o, mlir::Value x);
mlir::Value Cos(Ops& o, mlir::Value x);
mlir::Value Tanh(Ops& o, mlir::Value x);
mlir::Value Erf(Ops& o, mlir::Value x);
mlir::Value Sigmoid(Ops& o, mlir::Value x);
mlir::Value Silu(Ops& o, mlir::Value x);
mlir::Value Gelu(Ops& o, mlir::Value x);      // x times the normal distribution's integral up to x
mlir::Value GeluTanh(Ops& o, mlir::Value x);  // its approximation by tanh
mlir::Value Softplus(Ops& o, mlir::Value x);
// x to the power of y, both of one float type.
mlir::Value Pow(Ops& o, mlir::Value x, mlir::Value y);
// Of integers; a negative exponent gives the truncated value (0, or ±1 of ±1).
mlir::Value PowInt(Ops& o, mlir::Value x, mlir::Value y, bool x_signed, bool y_signed);

}  // namespace inlay::native

#endif  // INLAY_CORE_BACKENDS_NATIVE_MATH_H_
