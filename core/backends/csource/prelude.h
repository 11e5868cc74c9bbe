/* What generated C calls: elements as core/ir/OPS.md defines them (NaN, division by zero, saturation, rounding). C11,
 * no state; branch-free where loops over it should become vector instructions. Indices are of the type inlay_int, which
 * is defined before this. */

static inline inlay_int inlay_clamp(inlay_int i, inlay_int low, inlay_int high) {
  return i < low ? low : i > high ? high : i;
}
/* An index from data: negative ones count from the end, what is still outside is clamped. */
static inline inlay_int inlay_index(int64_t i, inlay_int extent) {
  const int64_t at = i < 0 ? i + extent : i;
  return (inlay_int)(at < 0 ? 0 : at >= extent ? extent - 1 : at);
}

/* Taps [begin, end) of a window that meet the input: tap k lies at low + k * dilation. */
static inline inlay_int inlay_first_tap(inlay_int low, inlay_int dilation) {
  return low < 0 ? (dilation - 1 - low) / dilation : 0;
}
static inline inlay_int inlay_last_tap(inlay_int low, inlay_int dilation, inlay_int taps, inlay_int extent) {
  const inlay_int fit = low >= extent ? 0 : (extent - low + dilation - 1) / dilation;
  return fit < taps ? fit : taps;
}

/* --- f16 and bf16 are stored as bits and computed in float ------------------------------------------------------- */

static inline float inlay_bits_f32(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static inline uint32_t inlay_f32_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static inline float inlay_load_bf16(uint16_t h) { return inlay_bits_f32((uint32_t)h << 16); }
static inline uint16_t inlay_store_bf16(float x) {
  const uint32_t bits = inlay_f32_bits(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(x != x ? 0x7fc0 : rounded);
}
static inline uint16_t inlay_store_bf16_f64(double x) { /* to odd first, so that it is rounded once */
  float f = (float)x;
  const double back = f;
  uint32_t bits = inlay_f32_bits(f);
  if (back != x && x == x && (bits & 0x7fffffff) < 0x7f800000) {
    if ((back < 0 ? -back : back) > (x < 0 ? -x : x)) bits -= 1;
    bits |= 1;
  }
  return inlay_store_bf16(inlay_bits_f32(bits));
}
static inline float inlay_load_f16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff);
  const uint32_t normal = (rest << 13) + 0x38000000, special = (rest << 13) | 0x7f800000;
  const float tiny = (float)(int32_t)rest * 0x1p-24f;
  return inlay_bits_f32(sign | (rest >= 0x7c00 ? special : rest < 0x400 ? inlay_f32_bits(tiny) : normal));
}
static inline uint16_t inlay_store_f16(float x) {
  const uint32_t bits = inlay_f32_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  const uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  /* Adding 0.5 makes the sum's last bit worth 2^-24: the addition rounds as the subnormal must. */
  const uint32_t tiny = inlay_f32_bits(inlay_bits_f32(rest < 0x38800000 ? rest : 0) + 0.5f) - 0x3f000000;
  const uint32_t small = rest < 0x38800000 ? tiny : normal;
  return (uint16_t)(sign | (rest > 0x7f800000 ? 0x7e00 : rest >= 0x477ff000 ? 0x7c00 : small));
}
static inline uint16_t inlay_store_f16_f64(double x) {
  float f = (float)x;
  const double back = f;
  uint32_t bits = inlay_f32_bits(f);
  if (back != x && x == x && (bits & 0x7fffffff) < 0x7f800000) {
    if ((back < 0 ? -back : back) > (x < 0 ? -x : x)) bits -= 1;
    bits |= 1;
  }
  return inlay_store_f16(inlay_bits_f32(bits));
}

/* --- Functions that differ by type only ----------------------------------------------------------------------------
 */

/* NEGATIVE: "a < 0", which compilers warn of where it can't be. */
#define INLAY_SIGNED(a) ((a) < 0)
#define INLAY_UNSIGNED(a) 0

#define INLAY_ORDERED(S, T, NEGATIVE)                                                                  \
  static inline T inlay_maximum_##S(T a, T b) { return a > b || a != a ? a : b; } /* NaN propagates */ \
  static inline T inlay_minimum_##S(T a, T b) { return a < b || a != a ? a : b; }                      \
  static inline T inlay_sign_##S(T a) { return (T)(a > 0 ? 1 : NEGATIVE(a) ? -1 : a); }
INLAY_ORDERED(f32, float, INLAY_SIGNED)
INLAY_ORDERED(f64, double, INLAY_SIGNED)
INLAY_ORDERED(i8, int8_t, INLAY_SIGNED)
INLAY_ORDERED(u8, uint8_t, INLAY_UNSIGNED)
INLAY_ORDERED(i16, int16_t, INLAY_SIGNED)
INLAY_ORDERED(i32, int32_t, INLAY_SIGNED)
INLAY_ORDERED(i64, int64_t, INLAY_SIGNED)
INLAY_ORDERED(bool, uint8_t, INLAY_UNSIGNED)

/* x / 0 and x mod 0 are 0, min / -1 wraps. */
#define INLAY_INTEGER(S, T, BITS, NEGATIVE)                                                                       \
  static inline T inlay_div_##S(T a, T b) {                                                                       \
    return (T)(b == 0 ? 0 : NEGATIVE(b) && b == (T) - 1 ? (T)(0 - (uint64_t)a) : a / b);                          \
  }                                                                                                               \
  static inline T inlay_fmod_##S(T a, T b) { return (T)(b == 0 || (NEGATIVE(b) && b == (T) - 1) ? 0 : a % b); }   \
  static inline T inlay_mod_##S(T a, T b) {                                                                       \
    const T r = inlay_fmod_##S(a, b);                                                                             \
    return (T)(r != 0 && NEGATIVE(r) != NEGATIVE(b) ? r + b : r);                                                 \
  }                                                                                                               \
  static inline T inlay_shift_left_##S(T a, T b) { return (T)(NEGATIVE(b) || b >= BITS ? 0 : (uint64_t)a << b); } \
  static inline T inlay_shift_right_##S(T a, T b) {                                                               \
    return (T)(NEGATIVE(b) || b >= BITS ? (NEGATIVE(a) ? -1 : 0) : a >> b);                                       \
  }
INLAY_INTEGER(i8, int8_t, 8, INLAY_SIGNED)
INLAY_INTEGER(u8, uint8_t, 8, INLAY_UNSIGNED)
INLAY_INTEGER(i16, int16_t, 16, INLAY_SIGNED)
INLAY_INTEGER(i32, int32_t, 32, INLAY_SIGNED)
INLAY_INTEGER(i64, int64_t, 64, INLAY_SIGNED)

/* C's own operators need not wrap. */
#define INLAY_WRAPPING(S, T, U)                                        \
  static inline T inlay_add_##S(T a, T b) { return (T)((U)a + (U)b); } \
  static inline T inlay_sub_##S(T a, T b) { return (T)((U)a - (U)b); } \
  static inline T inlay_mul_##S(T a, T b) { return (T)((U)a * (U)b); }
INLAY_WRAPPING(i32, int32_t, uint32_t)
INLAY_WRAPPING(i64, int64_t, uint64_t)

/* Float to integer: towards zero, out of range saturates, NaN is 0. HIGH is the first value beyond the range. */
#define INLAY_TO_INTEGER(F, FT, S, T, MIN, MAX, HIGH) \
  static inline T inlay_##F##_to_##S(FT x) { return x != x ? 0 : x >= (FT)HIGH ? MAX : x <= (FT)MIN ? MIN : (T)x; }
#define INLAY_TO_INTEGERS(F, FT)                                      \
  INLAY_TO_INTEGER(F, FT, i8, int8_t, INT8_MIN, INT8_MAX, 128)        \
  INLAY_TO_INTEGER(F, FT, u8, uint8_t, 0, UINT8_MAX, 256)             \
  INLAY_TO_INTEGER(F, FT, i16, int16_t, INT16_MIN, INT16_MAX, 32768)  \
  INLAY_TO_INTEGER(F, FT, i32, int32_t, INT32_MIN, INT32_MAX, 0x1p31) \
  INLAY_TO_INTEGER(F, FT, i64, int64_t, INT64_MIN, INT64_MAX, 0x1p63)
INLAY_TO_INTEGERS(f32, float)
INLAY_TO_INTEGERS(f64, double)

/* --- Mathematics -----------------------------------------------------------------------------------------------------
 */

/* e^x within 2 ulp: 2^n * e^r with |r| <= ln(2) / 2. Inlined, so that loops become vector code; libm's is a call. */
static inline float inlay_exp_f32(float x) {
  const float low = x < -104.0f ? -104.0f : x, y = low > 89.0f ? 89.0f : low; /* comparisons let NaN through */
  const float n = rintf(y * 1.44269504f);
  const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent = (int32_t)n, half = exponent >> 1; /* in two steps: 2^n may be subnormal, or 2^128 */
  return p * inlay_bits_f32((uint32_t)(half + 127) << 23) * inlay_bits_f32((uint32_t)(exponent - half + 127) << 23);
}
static inline double inlay_exp_f64(double x) { return exp(x); }

static inline float inlay_sigmoid_f32(float x) { return 1.0f / (1.0f + inlay_exp_f32(-x)); }
static inline double inlay_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }

static inline float inlay_tanh_f32(float x) {
  const float a = fabsf(x), s = x * x;
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const float near = x + x * s * p;
  const float far = copysignf(1.0f - 2.0f / (inlay_exp_f32(2.0f * a) + 1.0f), x);
  return a < 0.625f ? near : far; /* NaN: far */
}
static inline double inlay_tanh_f64(double x) { return tanh(x); }

/* x P(x^2) / Q(x^2), |x| <= 4 (beyond it is 1): the rational approximation that Eigen and XLA use; within 4e-7. */
static inline float inlay_erf_f32(float x) {
  const float low = x < -4.0f ? -4.0f : x, y = low > 4.0f ? 4.0f : low, s = y * y;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return y * p / q;
}
static inline double inlay_erf_f64(double x) { return erf(x); }

#define INLAY_FLOAT(S, T, F)                                                                                         \
  static inline T inlay_rsqrt_##S(T x) { return 1 / sqrt##F(x); }                                                    \
  static inline T inlay_silu_##S(T x) { return x * inlay_sigmoid_##S(x); }                                           \
  static inline T inlay_softplus_##S(T x) { return inlay_maximum_##S(x, 0) + log1p##F(inlay_exp_##S(-fabs##F(x))); } \
  static inline T inlay_gelu_##S(T x) { return (T)0.5 * x * (1 + inlay_erf_##S(x * (T)0.70710678118654752)); }       \
  static inline T inlay_gelu_tanh_##S(T x) {                                                                         \
    return (T)0.5 * x * (1 + inlay_tanh_##S((T)0.79788456080286536 * (x + (T)0.044715 * x * x * x)));                \
  }
INLAY_FLOAT(f32, float, f)
INLAY_FLOAT(f64, double, )
