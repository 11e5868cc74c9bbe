#include "core/backends/common/runtime/gemm_steps.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace inlay::backends {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Unary {
  StepOp op;
  double alpha, beta;
  std::function<double(double)> want;
  double tolerance;  // of max(|want|, 1)
};

const std::vector<Unary>& AllUnary() {
  static const auto* const kAll = new std::vector<Unary>{
      {StepOp::kRelu, 0, 0, [](double x) { return x < 0 ? 0 : x; }, 0},
      {StepOp::kLeakyRelu, 0.25, 0, [](double x) { return x < 0 ? 0.25 * x : x; }, 0},
      {StepOp::kClip, -0.5, 2, [](double x) { return x < -0.5 ? -0.5
                                                     : x > 2  ? 2
                                                              : x; }, 0},
      {StepOp::kSigmoid, 0, 0, [](double x) { return 1 / (1 + std::exp(-x)); }, 3e-7},
      {StepOp::kSilu, 0, 0, [](double x) { return x / (1 + std::exp(-x)); }, 3e-7},
      {StepOp::kTanh, 0, 0, [](double x) { return std::tanh(x); }, 3e-7},
      {StepOp::kGelu, 0, 0, [](double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }, 1e-6},
      {StepOp::kGeluTanh, 0, 0,
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }, 1e-6}};
  return *kAll;
}

// Every length of a row up to some vectors, so that the compiler's tails are met.
template <typename T>
void CheckUnary(double tolerance_scale) {
  for (const Unary& unary : AllUnary()) {
    for (int64_t columns = 1; columns <= 70; ++columns) {
      std::vector<T> x(3 * 80), y;
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(std::sin(i * 1.7) * (i % 3 == 0 ? 12 : 1.5));
      y = x;
      RunStep(unary.op, static_cast<T>(unary.alpha), static_cast<T>(unary.beta),
              StepTile<T>{y.data(), 3, columns, 80, nullptr, 0, true});
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = static_cast<int64_t>(i % 80) < columns ? unary.want(x[i]) : x[i];
        ASSERT_NEAR(y[i], want, unary.tolerance * tolerance_scale * std::max(1.0, std::abs(want)))
            << "op " << static_cast<int>(unary.op) << " of " << x[i] << ", " << columns << " columns";
      }
    }
  }
}

TEST(GemmSteps, UnaryF32) { CheckUnary<float>(1); }
TEST(GemmSteps, UnaryF64) { CheckUnary<double>(1e-8); }

TEST(GemmSteps, NanPropagatesAndInfinityFollows) {
  for (const Unary& unary : AllUnary()) {
    std::vector<float> x(37, static_cast<float>(kNan));
    x[1] = x[35] = static_cast<float>(kInfinity);
    RunStep(unary.op, static_cast<float>(unary.alpha), static_cast<float>(unary.beta),
            StepTile<float>{x.data(), 1, 37, 37, nullptr, 0, true});
    for (size_t i = 0; i < x.size(); ++i) {
      if (i != 1 && i != 35) {
        ASSERT_TRUE(std::isnan(x[i])) << static_cast<int>(unary.op) << " at " << i;
      } else {
        ASSERT_EQ(x[i], unary.want(kInfinity)) << static_cast<int>(unary.op) << " at " << i;
      }
    }
  }
}

TEST(GemmSteps, Binary) {
  const std::vector<std::pair<StepOp, std::function<float(float, float)>>> kAll = {
      {StepOp::kAdd, [](float x, float y) { return x + y; }},
      {StepOp::kSub, [](float x, float y) { return x - y; }},
      {StepOp::kRsub, [](float x, float y) { return y - x; }},
      {StepOp::kMul, [](float x, float y) { return x * y; }},
      {StepOp::kDiv, [](float x, float y) { return x / y; }}};
  constexpr int64_t kRows = 5, kColumns = 39, kStride = 50;
  for (const auto& [op, want] : kAll) {
    for (const bool is_column : {false, true}) {
      for (const int64_t row_stride : {int64_t{0}, kStride}) {
        std::vector<float> x(kRows * kStride), operand(x.size());
        for (size_t i = 0; i < x.size(); ++i) x[i] = 1.f + i % 7, operand[i] = 1.f + i % 11;
        std::vector<float> y = x;
        RunStep(op, 0.f, 0.f,
                StepTile<float>{y.data(), kRows, kColumns, kStride, operand.data(), row_stride, is_column});
        for (int64_t i = 0; i < kRows; ++i) {
          for (int64_t j = 0; j < kColumns; ++j) {
            ASSERT_EQ(y[i * kStride + j], want(x[i * kStride + j], operand[i * row_stride + (is_column ? 0 : j)]));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace inlay::backends
