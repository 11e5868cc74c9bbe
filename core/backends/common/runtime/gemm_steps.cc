#include "core/backends/common/runtime/gemm_steps.h"

#include <cmath>
#include <cstring>

namespace inlay::backends {
namespace {

#define INLAY_INLINE inline __attribute__((always_inline))

// Written with GCC's vectors: its own vectoriser leaves the longer chains below scalar. One of AVX-512's registers, or
// several of an older CPU's.
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;

INLAY_INLINE Floats Splat(float x) { return Floats{} + x; }
INLAY_INLINE Floats Magnitude(Floats x) { return (Floats)((Ints)x & 0x7fffffff); }
INLAY_INLINE Floats WithSign(Floats magnitude, Floats sign) {
  return (Floats)((Ints)magnitude | ((Ints)sign & INT32_MIN));
}

// Highest power first.
template <typename... Rest>
INLAY_INLINE Floats Polynomial(Floats x, float first, Rest... rest) {
  Floats p = Splat(first);
  ((p = p * x + rest), ...);
  return p;
}

// Cephes' expf: 2^n e^r with |r| <= ln(2)/2. The comparisons are written so that NaN passes.
INLAY_INLINE Floats Exp(Floats x) {
  x = x > 89.f ? Splat(89.f) : x;
  x = x < -104.f ? Splat(-104.f) : x;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const Floats shifted = x * 1.44269504088896341f + 12582912.f;
  const Floats n = shifted - 12582912.f;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = Polynomial(r, 1.9875691500E-4f, 1.3981999507E-3f, 8.3334519073E-3f, 4.1665795894E-2f, 1.6666665459E-1f,
                        5.0000001201E-1f);
  p = p * (r * r) + r + 1.f;
  // 2^n in two factors: results near overflow and zero come out right.
  const Ints bits = (Ints)shifted - 0x4b400000, half = bits >> 1;
  return p * (Floats)((half + 127) << 23) * (Floats)((bits - half + 127) << 23);
}
INLAY_INLINE double Exp(double x) { return std::exp(x); }

// Cephes' tanhf.
INLAY_INLINE Floats Tanh(Floats x) {
  const Floats magnitude = Magnitude(x), z = x * x;
  const Floats p =
      Polynomial(z, -5.70498872745E-3f, 2.06390887954E-2f, -5.37397155531E-2f, 1.33314422036E-1f, -3.33332819422E-1f);
  const Floats small = z * x * p + x;
  const Floats large = WithSign(1.f - 2.f / (Exp(magnitude + magnitude) + 1.f), x);
  return magnitude < 0.625f ? small : large;
}
INLAY_INLINE double Tanh(double x) { return std::tanh(x); }

// Eigen's generic_fast_erf; exactly +-1 beyond its limit, since 1 + erf(x) must vanish there.
INLAY_INLINE Floats Erf(Floats x) {
  constexpr float kLimit = 3.832506856900711f;
  Floats y = x > kLimit ? Splat(kLimit) : x;
  y = y < -kLimit ? Splat(-kLimit) : y;
  const Floats z = y * y;
  const Floats p = Polynomial(z, 0.00022905065861350646f, 0.0034082910107109506f, 0.050955695062380861f,
                              0.18520832239976145f, 1.128379143519084f);
  const Floats q = Polynomial(z, -1.1791602954361697e-7f, 0.000023547966471313185f, 0.0010179625278914885f,
                              0.014070470171167667f, 0.11098505178285362f, 0.49746925110067538f, 1.f);
  return Magnitude(x) >= kLimit ? WithSign(Splat(1.f), x) : y * p / q;
}
INLAY_INLINE double Erf(double x) { return std::erf(x); }

// T: Floats or double; S: float or double.
template <StepOp op, typename T, typename S>
INLAY_INLINE T Unary(T x, S alpha, S beta) {
  const T zero{};
  if constexpr (op == StepOp::kRelu) return x < zero ? zero : x;
  if constexpr (op == StepOp::kLeakyRelu) return x < zero ? alpha * x : x;
  if constexpr (op == StepOp::kClip) {
    const T above = x < zero + alpha ? zero + alpha : x;
    return above > zero + beta ? zero + beta : above;
  }
  if constexpr (op == StepOp::kGelu) return S(0.5) * x * (S(1) + Erf(x * S(0.70710678118654752440)));
  if constexpr (op == StepOp::kGeluTanh) {
    return S(0.5) * x * (S(1) + Tanh(S(0.79788456080286535588) * (x + S(0.044715) * (x * x * x))));
  }
  if constexpr (op == StepOp::kSilu) return x / (S(1) + Exp(-x));
  if constexpr (op == StepOp::kSigmoid) return S(1) / (S(1) + Exp(-x));
  if constexpr (op == StepOp::kTanh) return Tanh(x);
}

template <StepOp op>
INLAY_INLINE void UnaryRow(float* c, int64_t columns, float alpha, float beta) {
  Floats x;
  int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) {
    std::memcpy(&x, c + j, sizeof(x));
    x = Unary<op>(x, alpha, beta);
    std::memcpy(c + j, &x, sizeof(x));
  }
  if (j == columns) return;
  float rest[kLanes] = {};
  std::memcpy(rest, c + j, (columns - j) * sizeof(float));
  std::memcpy(&x, rest, sizeof(x));
  x = Unary<op>(x, alpha, beta);
  std::memcpy(rest, &x, sizeof(x));
  std::memcpy(c + j, rest, (columns - j) * sizeof(float));
}

template <StepOp op>
INLAY_INLINE void UnaryRow(double* c, int64_t columns, double alpha, double beta) {
  for (int64_t j = 0; j < columns; ++j) c[j] = Unary<op>(c[j], alpha, beta);
}

template <StepOp op, typename T>
INLAY_INLINE T Binary(T x, T y) {
  if constexpr (op == StepOp::kAdd) return x + y;
  if constexpr (op == StepOp::kSub) return x - y;
  if constexpr (op == StepOp::kRsub) return y - x;
  if constexpr (op == StepOp::kMul) return x * y;
  if constexpr (op == StepOp::kDiv) return x / y;
}

template <StepOp op, typename T>
INLAY_INLINE void OneStep(T alpha, T beta, const StepTile<T>& t) {
  for (int64_t i = 0; i < t.rows; ++i) {
    T* __restrict c = t.c + i * t.stride;
    const int64_t columns = t.columns;
    if constexpr (op < StepOp::kAdd) {
      UnaryRow<op>(c, columns, alpha, beta);
    } else if (t.operand_is_column) {
      const T y = t.operand[i * t.operand_row_stride];
      for (int64_t j = 0; j < columns; ++j) c[j] = Binary<op>(c[j], y);
    } else {
      const T* __restrict y = t.operand + i * t.operand_row_stride;
      for (int64_t j = 0; j < columns; ++j) c[j] = Binary<op>(c[j], y[j]);
    }
  }
}

template <typename T>
INLAY_INLINE void AnyStep(StepOp op, T alpha, T beta, const StepTile<T>& tile) {
  switch (op) {
#define INLAY_STEP(name) \
  case StepOp::name:     \
    return OneStep<StepOp::name>(alpha, beta, tile)
    INLAY_STEP(kRelu);
    INLAY_STEP(kLeakyRelu);
    INLAY_STEP(kClip);
    INLAY_STEP(kGelu);
    INLAY_STEP(kGeluTanh);
    INLAY_STEP(kSilu);
    INLAY_STEP(kSigmoid);
    INLAY_STEP(kTanh);
    INLAY_STEP(kAdd);
    INLAY_STEP(kSub);
    INLAY_STEP(kRsub);
    INLAY_STEP(kMul);
    INLAY_STEP(kDiv);
#undef INLAY_STEP
  }
}

}  // namespace

__attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4"))) void RunStep(
    StepOp op, float alpha, float beta, const StepTile<float>& tile) {
  AnyStep(op, alpha, beta, tile);
}

__attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4"))) void RunStep(
    StepOp op, double alpha, double beta, const StepTile<double>& tile) {
  AnyStep(op, alpha, beta, tile);
}

}  // namespace inlay::backends
