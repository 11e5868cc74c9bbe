#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/measuring/output_check.h"
#include "server/measuring/synthetic_values.h"

namespace inlay::server {
namespace {

using runtime::DType;
using runtime::TensorType;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

template <typename T>
std::vector<T> Fill(DType dtype, std::vector<int64_t> shape, SyntheticRole role, const std::string& key = "k",
                    uint64_t seed = 1) {
  const TensorType type{dtype, std::move(shape)};
  std::vector<T> values(type.NumElements());
  EXPECT_EQ(type.NumBytes(), values.size() * sizeof(T));
  FillSynthetic(type, role, key, seed, reinterpret_cast<char*>(values.data()));
  return values;
}

double Deviation(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += v * v;
  return std::sqrt(sum / values.size());
}

TEST(SyntheticValues, DependOnKeyRoleAndSeedAlone) {
  auto fill = [](SyntheticRole role, const std::string& key, uint64_t seed) {
    return Fill<float>(DType::kF32, {100}, role, key, seed);
  };
  const auto values = fill(SyntheticRole::kInput, "a", 1);
  EXPECT_EQ(values, fill(SyntheticRole::kInput, "a", 1));
  EXPECT_NE(values, fill(SyntheticRole::kInput, "b", 1));
  EXPECT_NE(values, fill(SyntheticRole::kInput, "a", 2));
  EXPECT_NE(values, fill(SyntheticRole::kWeight, "a", 1));
  // The same in every process and on every machine: costs of different daemons are compared.
  EXPECT_FLOAT_EQ(values[0], 0.86265767f);
}

TEST(SyntheticValues, WeightsKeepActivationsInRange) {
  auto weight = [](std::vector<int64_t> shape) { return Fill<float>(DType::kF32, shape, SyntheticRole::kWeight); };
  EXPECT_NEAR(Deviation(weight({64, 32, 3, 3})), 1 / std::sqrt(32 * 9), 0.003) << "convolution: by fan-in";
  EXPECT_NEAR(Deviation(weight({96, 1, 3, 3})), 1 / 3.0, 0.03) << "depthwise";
  EXPECT_NEAR(Deviation(weight({256, 1024})), 1 / std::sqrt(512), 0.001) << "a matmul's, lying either way";
  EXPECT_NEAR(Deviation(weight({1, 128, 128})), 1 / std::sqrt(128), 0.001);
  EXPECT_NEAR(Deviation(weight({8, 64, 64})), 1 / std::sqrt(64), 0.001) << "of a batch of matmuls";
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1000}, {1, 64, 1, 1}}) {
    EXPECT_THAT(weight(shape), Each(AllOf(Ge(0.5f), Le(1.5f)))) << "a variance or a divisor";
  }
  EXPECT_EQ(RoleOfWeight("layer.1.attention.BIAS"), SyntheticRole::kOffset);
  EXPECT_EQ(RoleOfWeight("bn.running_mean"), SyntheticRole::kOffset);
  EXPECT_EQ(RoleOfWeight("bn.running_var"), SyntheticRole::kWeight);
  EXPECT_EQ(RoleOfWeight(""), SyntheticRole::kWeight);
  EXPECT_THAT(Fill<float>(DType::kF32, {1000}, SyntheticRole::kOffset), Each(AllOf(Ge(-0.1f), Le(0.1f))));
  EXPECT_EQ(Fill<float>(DType::kF32, {8, 8}, SyntheticRole::kOffset), weight({8, 8})) << "a matrix is multiplied";
  EXPECT_NEAR(Deviation(Fill<float>(DType::kF32, {10000}, SyntheticRole::kInput)), 1, 0.02);
}

TEST(SyntheticValues, WeightsAreWindowsOfOneSequence) {
  const std::vector<int64_t> shape = {33, 7};
  for (SyntheticRole role : {SyntheticRole::kWeight, SyntheticRole::kOffset}) {
    for (DType dtype : {DType::kF32, DType::kI32}) {
      std::vector<uint32_t> sequence(33 * 7 + kSyntheticSlack);
      FillSyntheticSequence({dtype, shape}, role, 1, reinterpret_cast<char*>(sequence.data()));
      for (const std::string key : {"", "a", "layer.1"}) {
        const int64_t begin = SyntheticWindow(key);
        EXPECT_EQ(begin * sizeof(uint32_t) % 64, 0);
        ASSERT_LT(begin, kSyntheticSlack);
        const std::vector<uint32_t> window(sequence.begin() + begin, sequence.begin() + begin + 33 * 7);
        EXPECT_EQ(window, Fill<uint32_t>(dtype, shape, role, key)) << key;
      }
    }
  }
  EXPECT_NE(SyntheticWindow("layer.1"), SyntheticWindow("layer.2"));
}

TEST(SyntheticValues, EveryType) {
  const auto indices = Fill<int64_t>(DType::kI64, {1000}, SyntheticRole::kInput);
  EXPECT_THAT(indices, Each(AllOf(Ge(0), Le(1))));
  EXPECT_THAT(indices, testing::Contains(0));
  EXPECT_THAT(indices, testing::Contains(1));
  EXPECT_THAT(Fill<int32_t>(DType::kI32, {99}, SyntheticRole::kInput), Each(AllOf(Ge(0), Le(1))));
  EXPECT_THAT(Fill<uint8_t>(DType::kBool, {99}, SyntheticRole::kInput), Each(AllOf(Ge(0), Le(1))));
  EXPECT_THAT(Fill<int8_t>(DType::kI8, {1000}, SyntheticRole::kWeight), Each(AllOf(Ge(-4), Le(4))));
  EXPECT_THAT(Fill<int16_t>(DType::kI16, {1000}, SyntheticRole::kWeight), testing::Contains(-4));
  EXPECT_THAT(Fill<uint8_t>(DType::kU8, {1000}, SyntheticRole::kWeight), Each(Le(7)));
  EXPECT_THAT(Fill<double>(DType::kF64, {99}, SyntheticRole::kWeight), Each(AllOf(Ge(0.5), Le(1.5))));
  for (const uint16_t bits : Fill<uint16_t>(DType::kF16, {99}, SyntheticRole::kWeight)) {
    EXPECT_GE(bits, 0x3800) << "0.5";
    EXPECT_LE(bits, 0x3e00) << "1.5";
  }
  for (const uint16_t bits : Fill<uint16_t>(DType::kBF16, {99}, SyntheticRole::kWeight)) {
    EXPECT_GE(bits, 0x3f00) << "0.5";
    EXPECT_LE(bits, 0x3fc0) << "1.5";
  }
  EXPECT_TRUE(Fill<float>(DType::kF32, {0, 3}, SyntheticRole::kInput).empty());
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

OutputDifference Compare(const std::vector<float>& expected, const std::vector<float>& got, double rtol = 0.01,
                         double atol = 0.01) {
  return CompareOutput({DType::kF32, {static_cast<int64_t>(expected.size())}},
                       reinterpret_cast<const char*>(expected.data()), reinterpret_cast<const char*>(got.data()), rtol,
                       atol);
}

TEST(OutputCheck, ToleranceFollowsTheScaleOfTheOutput) {
  EXPECT_EQ(Compare({1, 2, 3}, {1, 2, 3}).first_bad, -1);
  EXPECT_EQ(Compare({1e6f, 0}, {1.005e6f, 1000}).first_bad, -1) << "a thousandth of the others";
  EXPECT_EQ(Compare({1e-6f, 2e-6f}, {0, 0}).first_bad, 0) << "however small they all are";
  const OutputDifference difference = Compare({1, 2, 3, 0}, {1, 2.5, 7, 0});
  EXPECT_EQ(difference.first_bad, 1);
  EXPECT_EQ(difference.num_bad, 2);
  EXPECT_FLOAT_EQ(difference.max_error, 4);
  EXPECT_EQ(difference.ToString({DType::kF32, {2, 2}}), "element 1 of f32[2, 2] is 2.5 instead of 2; 2 of 4 are wrong");
}

TEST(OutputCheck, NotFinite) {
  EXPECT_EQ(Compare({kNaN, kInf, -kInf, 1}, {kNaN, kInf, -kInf, 1}).first_bad, -1);
  EXPECT_EQ(Compare({kNaN, 1}, {0, 1}).first_bad, 0);
  EXPECT_EQ(Compare({0, 1}, {kNaN, 1}).first_bad, 0);
  EXPECT_EQ(Compare({kInf, 1}, {-kInf, 1}).first_bad, 0);
  EXPECT_EQ(Compare({kInf, 1}, {3e38f, 1}).first_bad, 0);
  EXPECT_EQ(Compare({1, 3}, {1, kInf}).first_bad, 1);
  EXPECT_THAT(Compare({1, 3}, {1, kInf}).ToString({DType::kF32, {2}}), HasSubstr("is inf instead of 3"));
}

TEST(OutputCheck, Integers) {
  const int64_t expected[] = {0, 1, 5}, got[] = {0, 1, 4};
  const OutputDifference difference = CompareOutput({DType::kI64, {3}}, reinterpret_cast<const char*>(expected),
                                                    reinterpret_cast<const char*>(got), 1e-3, 1e-3);
  EXPECT_EQ(difference.first_bad, 2);
}

}  // namespace
}  // namespace inlay::server
