#include "core/runtime/float_support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace {

uint16_t Bits(_Float16 x) {
  uint16_t bits;
  std::memcpy(&bits, &x, 2);
  return bits;
}

double Value(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

TEST(FloatSupport, SingleToBf16) {
  EXPECT_EQ(Bits(__truncsfbf2(1.0f)), 0x3f80);
  EXPECT_EQ(Bits(__truncsfbf2(-2.0f)), 0xc000);
  EXPECT_EQ(Bits(__truncsfbf2(1.0f + 0x1p-8f)), 0x3f80);            // a tie: to even
  EXPECT_EQ(Bits(__truncsfbf2(1.0f + 0x1p-7f + 0x1p-8f)), 0x3f82);  // a tie: to even, upwards
  EXPECT_EQ(Bits(__truncsfbf2(1.0f + 0x1p-8f + 0x1p-20f)), 0x3f81);
  EXPECT_EQ(Bits(__truncsfbf2(std::numeric_limits<float>::max())), 0x7f80);  // rounds to infinity
  EXPECT_EQ(Bits(__truncsfbf2(-std::numeric_limits<float>::infinity())), 0xff80);
  EXPECT_TRUE(std::isnan(Value(Bits(__truncsfbf2(std::nanf(""))))));
}

TEST(FloatSupport, DoubleToBf16RoundsOnce) {
  // Just above a tie of bf16, by less than a float can tell: rounding twice would go down to the even one.
  EXPECT_EQ(Bits(__truncdfbf2(1.0 + 0x1p-8 + 0x1p-40)), 0x3f81);
  EXPECT_EQ(Bits(__truncdfbf2(-(1.0 + 0x1p-8 + 0x1p-40))), 0xbf81);
  EXPECT_EQ(Bits(__truncdfbf2(1.0 + 0x1p-7 + 0x1p-8 - 0x1p-40)), 0x3f81);
  EXPECT_EQ(Bits(__truncdfbf2(1.0 + 0x1p-8)), 0x3f80);
  EXPECT_EQ(Bits(__truncdfbf2(1e300)), 0x7f80);
  EXPECT_EQ(Bits(__truncdfbf2(0.0)), 0);
}

}  // namespace
