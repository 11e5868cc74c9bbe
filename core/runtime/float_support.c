/* Conversions that LLVM calls for bf16 and f16 where the CPU has no instruction for them; Debian's libgcc 12 lacks
 * those of bf16. A bf16 travels in an SSE register like _Float16, of which only the bits matter here. */
#include "core/runtime/float_support.h"

#include <stdint.h>
#include <string.h>

static uint16_t RoundToBf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16) | 0x40; /* quiet NaN */
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);              /* nearest, ties to even */
}

static _Float16 Bits(uint16_t bits) {
  _Float16 result;
  memcpy(&result, &bits, 2);
  return result;
}

_Float16 __truncsfbf2(float x) { return Bits(RoundToBf16(x)); }

/* Through float, but rounded to odd first, so that the second rounding is the only one that counts. */
_Float16 __truncdfbf2(double x) {
  float f = (float)x;
  if ((double)f != x && x == x && f - f == 0) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const int rounded_away = ((double)f > x) == (f > 0);
    if ((bits & 1) == 0) bits += rounded_away ? -1 : 1; /* the odd neighbour on the other side of x */
    memcpy(&f, &bits, 4);
  }
  return Bits(RoundToBf16(f));
}
