#include "core/runtime/cpu_features.h"

#include <gtest/gtest.h>

namespace inlay::runtime {
namespace {

#if defined(__x86_64__)
TEST(CheckCpu, WhatEveryX86HasIsThere) {
  EXPECT_TRUE(CheckCpu("x86_64-unknown-linux-gnu", "+sse2,+cx8,+fxsr,-avx512f").ok());
  EXPECT_TRUE(CheckCpu("x86_64-unknown-linux-gnu", "").ok());
  EXPECT_TRUE(CheckCpu("", "").ok());
}

TEST(CheckCpu, AgreesWithTheCompilersOwnCheck) {
  EXPECT_EQ(CheckCpu("", "+avx2").ok(), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(CheckCpu("", "+fma").ok(), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(CheckCpu("", "+avx512f").ok(), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(CheckCpu("", "+avx512vnni").ok(), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(CheckCpu("", "+bmi2,+popcnt").ok(), __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"));
}

TEST(CheckCpu, NamesWhatIsMissing) {
  // No CPU has both Intel's AMX in fp16 and AMD's XOP.
  const Status s = CheckCpu("", "+sse2,+xop,+amx-fp16,+prefer-256-bit");
  ASSERT_EQ(s.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(s.message().find("xop") != std::string::npos || s.message().find("amx-fp16") != std::string::npos);
  EXPECT_EQ(s.message().find("prefer-256-bit"), std::string::npos);
  EXPECT_EQ(s.message().find("sse2"), std::string::npos);
}

TEST(CheckCpu, OtherArchitecture) {
  EXPECT_EQ(CheckCpu("aarch64-unknown-linux-gnu", "").message(), "built for aarch64, this machine is x86_64");
}
#endif

}  // namespace
}  // namespace inlay::runtime
